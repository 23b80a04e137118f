"""Statistics of a trace, memory over time, the timeline.

- `stats`: sums by op, line, span, session and stream
- `diff`: compares two traces; `sites`: finds the matching lines of two traces
- `memory`: memory over time; `memory_picture`: draws it
- `timeline`: writes Chrome's trace format
"""

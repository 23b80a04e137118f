"""Sums over a trace, and its course in time.

- `stats`: sums by op, line, span, session and stream
- `diff`: two traces compared; `sites`: the matching lines of two traces
- `memory`: memory over time; `memory_picture`: its picture
- `timeline`: Chrome's trace format
"""

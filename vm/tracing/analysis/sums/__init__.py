"""Sums over a trace, and the course of time.

- `stats`: sums by op, line, span, session and stream
- `diff`: two traces compared; `sites`: which line of the one is which line of the other
- `memory`: memory over time; `memory_picture`: its picture
- `timeline`: Chrome's trace format
"""

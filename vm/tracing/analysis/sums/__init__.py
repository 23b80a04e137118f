"""Sums over a trace, and the course of time.

- `stats`: sums by op, line, span, session and stream, and two traces compared
- `memory`: memory over time; `memory_picture`: its picture
- `timeline`: Chrome's trace format
"""

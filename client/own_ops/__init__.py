"""Ops that users define.

- `op`: `tensord.op`, and the op that it makes of a function
"""

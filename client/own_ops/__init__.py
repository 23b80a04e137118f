"""Ops of users, as the client calls them.

- `op`: `tensord.op`, and the op that it makes of a function
"""

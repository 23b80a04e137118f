"""Gangs: launches of a library of collectives on GPUs of several nodes, which all begin or none.

- `states`: the states of a launch on one node, and its transitions, as a table
- `words`: the small values by which nodes agree on a launch
- `turns`: the right to launch on a node
- `gang`: one node's part of a launch
"""

"""Gangs: launches of a collective library on GPUs of several nodes. Either all nodes launch, or none does.

- `states`: the states of a launch on one node, and the table of transitions
- `messages`: the small values by which nodes agree on a launch
- `turns`: the exclusive right to launch on a node
- `gang`: one node's part of a launch
"""

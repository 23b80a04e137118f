"""The trace that the engine writes.

- `inside`: what records say of routines; `known_routines`: the routines that they speak of
- `details`: how many of all runs are timed call by call
- `record`: a record's fields; `flat`: the tuples that the ring keeps; `ring`: the last finished instructions
- `analysis/`: the tools that read records
"""

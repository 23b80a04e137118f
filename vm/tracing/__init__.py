"""The trace that the engine writes.

- `record`: the fields of a record, and the records of routines; `known_routines`: the routines themselves
- `flat`: the tuples that the ring keeps; `ring`: the last instructions that have finished, and the times of timed runs
- `link_labels`: labels of instructions between nodes, which name the other node and the transfer
- `analysis/`: the tools that read records
"""

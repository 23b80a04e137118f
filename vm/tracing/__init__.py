"""The trace that the engine writes.

- `record`: the fields of a record, and the records of routines; `known_routines`: the routines themselves
- `flat`: the tuples that the ring keeps; `ring`: the most recently finished instructions, and the timed runs
- `link_labels`: the node and transfer of instructions between nodes, in labels
- `analysis/`: the tools that read records
"""

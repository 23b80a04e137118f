"""The trace that the engine writes.

- `record`: the fields of a record, and of what a trace says of routines; `known_routines`: the routines themselves
- `flat`: the tuples that the ring keeps; `ring`: the last finished instructions, and which runs are timed
- `link_labels`: node and transfer of what goes to other nodes, in labels
- `analysis/`: the tools that read records
"""

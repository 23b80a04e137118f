"""The trace that the engine writes.

- `record`: a record's fields; `flat`: the tuples that the ring keeps; `ring`: the last finished instructions
- `analysis/`: the tools that read records
"""

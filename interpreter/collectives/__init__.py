"""Collectives: computations of several ranks, each with memory of its own, as steps between two of them.

- `collective`: the kinds, their inputs and results, and their checks
- `request`: the attributes of a message, checked
- `regions`: the boxes into which values are cut
- `steps`: a step, which moves one chunk from one rank to another, and the interface of algorithms
- `direct`, `ring`: the two algorithms; `choice`: selects one, by size and number of ranks alone
- `library`: a collective as calls of a library, NCCL
- `values`: the steps on plain arrays, one after the other
- `over_nodes`: the parts of several nodes in a collective
"""

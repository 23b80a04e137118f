"""Collectives: what several ranks, each with memory of its own, compute together; as steps between two of them.

- `collective`: the kinds, what each is given and gives, and the checks of that
- `request`: the attributes of a message, checked
- `regions`: the boxes that values are cut into
- `steps`: a step, which moves one chunk from one rank to another, and the interface of what makes steps
- `direct`, `ring`: the two algorithms; `choice`: which one, by size and number of ranks alone
- `library`: a collective as calls of a library that has them, NCCL
- `values`: the steps on plain arrays, one after the other
- `over_nodes`: what each of several nodes is told
"""

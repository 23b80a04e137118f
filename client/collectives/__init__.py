"""Collectives: computations of several tensors, each on a device of its own.

- `collectives`: the public functions; each sends one message
"""

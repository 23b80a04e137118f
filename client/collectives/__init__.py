"""Collectives: several tensors, each on a device of its own, computed with together.

- `collectives`: one call each, which is one message
"""

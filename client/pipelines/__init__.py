"""Pipelines: a model in stages on several devices, through which the microbatches of a batch pass one after the other.

- `pipeline`: the stages, the microbatches, and the limit of live microbatches
"""

"""A model in stages on several devices, through which the pieces of a batch follow each other.

- `pipeline`: the stages, the pieces, and what bounds how many of these are alive
"""

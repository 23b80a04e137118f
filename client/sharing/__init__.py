"""Names that sessions share.

- `names`: publishing and looking up, in steps
- `global_names`: names of global tensors, whose parts have names of their own
- `values`: published values in messages, and back; `publishing`: the same for routines
"""

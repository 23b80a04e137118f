"""Names that sessions share.

- `names`: publishing and looking up, in steps
- `global_names`: names of global tensors, whose parts have names of their own
- `values`: what stands under a name; `publishing`: routines under names, from one session to others
"""

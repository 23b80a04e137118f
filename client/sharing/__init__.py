"""Names that sessions share.

- `names`: publishing and looking up, in steps
- `values`: what stands under a name; `publishing`: routines under names, from one session to others
"""

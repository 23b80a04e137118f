"""Names that sessions share.

- `names`: publishing tensors, and looking them up
- `publishing`: routines under names, from one session to others
"""

"""Where values are: decided at admission, in program order, on planned state.

- `residency`: which copies are valid where, which transfers and copies an instruction needs in front of it
- `hints`: what sessions say about where values had better be
- `changed_files`: values whose file is not what it was
- `views`: tensors on the storage of others
"""

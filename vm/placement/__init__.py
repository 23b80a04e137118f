"""Where values are: decided at admission, in program order, on planned state.

- `residency`: which copies are valid where, which transfers and copies an instruction needs in front of it
- `hints`: what sessions say about where values had better be
- `routes`: from which copy, and which way
- `tiers`: whether there is room for it, and its transfer to a tier below where there is none
- `late_room`: room for instructions that were admitted, and lack some all the same
- `transfers`: the instructions that copy a value
- `loaded_files`: the files that tensors lie in, and values whose file is not what it was
- `views`: tensors on the storage of others
"""

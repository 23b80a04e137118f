"""Placement decides on which devices values are: at admission, in program order, and on planned state.

- `residency`: the valid copies of a storage, and the transfers and copies that an instruction needs first
- `hints`: placement hints of sessions: evict, prefetch
- `routes`: the source and the path of a transfer
- `tiers`: room on a device for a value, and evictions to a tier below to make room
- `late_room`: room for admitted instructions whose plan did not hold
- `releasing`: the end of handles, tensors and exports
- `transfers`: the instructions that copy a value
- `loaded_files`: the files in which tensors lie, and values whose file has changed
- `views`: tensors that share another tensor's storage
"""

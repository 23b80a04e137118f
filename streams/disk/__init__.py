"""The store: the tier below the host, which keeps values in files.

- `kind`: the kind "store"; `store`: the device; `spill`: its file
- `stored`: arrays whose bytes lie in a file; `checkpoint_values`: values of checkpoints, which are such arrays
"""

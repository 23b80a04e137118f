"""The tier below the host: values in files.

- `kind`: the kind "store"; `store`: the device; `spill`: its file
- `stored`: arrays whose bytes lie in a file; `kept`: the same for those of checkpoints
"""

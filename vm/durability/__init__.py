"""Checkpoints: published values at one point in program order are written to disk, and restored by a later machine.

- `target`: the known state of a directory of checkpoints: its last generation, and the values that are unchanged since
- `contents`: the values of a checkpoint, and the fields that restoring needs; `groups`: names that are written together
  or not at all
- `written_with`: the plugins and own ops with which values and routines were written, compared with those of this
  process
- `taking`: from a request to the instructions that read the values; `job`: one checkpoint's work on the disk, on the
  store's thread
- `restoring`: from a generation to published objects, for both engines; `in_store`: the virtual machine's part, where
  restored tensors lie in the generation's files
"""

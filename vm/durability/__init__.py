"""Checkpoints: published values at one place in program order are written to disk, and restored by a later machine.

- `target`: a machine's knowledge of a directory of checkpoints, and of the unchanged values there
- `contents`: the values of a checkpoint, and the fields that restoring needs; `groups`: names that are written together
  or not at all
- `written_with`: the plugins and own ops with which values and routines were written, and which of them differ here
- `job`: one checkpoint's work on the disk, on the store's thread
- `taking`: from a message to the instructions that read the values
- `restoring`: from a generation to published objects, for both engines; `in_store`: for tensors that lie in its files
"""

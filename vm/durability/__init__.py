"""Checkpoints, which survive the machine: taken of published values at one place in program order, and restored.

- `target`: a directory of checkpoints as one machine knows it, and which of its values are unchanged
- `contents`: what a checkpoint is of, and what restoring wants back; `groups`: what is written together or not at all
- `written_with`: the plugins that values and routines are written with, and which are others here
- `job`: one checkpoint; what it does on the disk, on the store's thread
- `taking`: from a message to the instructions that read the values
- `restoring`: from a generation to what is published, for either engine; `in_store`: for tensors that lie in its files
"""

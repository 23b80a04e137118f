"""Files of tensors.

- `loading`: from a file to tensors
- `saving`: from tensors to a file; `checkpoints`: those that a session asks for
- `savings`: what it writes and is not there yet, and how files get their names
"""

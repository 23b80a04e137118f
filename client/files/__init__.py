"""Files of tensors.

- `loading`: from a file to tensors
- `saving`: from tensors to a file; `checkpoints`: checkpoints that a session asks for
- `writes`: a session's unfinished writes, and how files get their names
"""

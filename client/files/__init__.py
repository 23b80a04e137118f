"""Files of tensors.

- `loading`: from a file to tensors
- `saving`: from tensors to a file; `commits`: gives the file its name
- `checkpoints`: those that a session asks for; `savings`: what it writes and is not there yet
"""

"""Files of tensors.

- `loading`: from a file to tensors
- `saving`: from tensors to a file; checkpoints
"""

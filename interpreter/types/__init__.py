"""The types of tensors and scalars.

- `meta`: shape and dtype of a tensor, and checks of axes and operands; `kinds`: the standard's kinds of dtypes
- `sizes`: numbers of bytes for people
"""

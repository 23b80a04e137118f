"""The types of tensors and scalars.

- `meta`: shape and dtype of a tensor; `kinds`: the standard's kinds of dtypes; `axes`: axes and operands, checked
- `sizes`: numbers of bytes for people
"""

"""The types of tensors and scalars.

- `meta`: shape and dtype of a tensor, and checks of operands; `kinds`: the standard's kinds of dtypes
- `axes`: axes counted from the front; `joined_axes`: the joined axes of arrays that are broadcast together
- `device_names`: names of devices and of nodes
- `sizes`: numbers of bytes as readable text
"""

"""What values are.

- `meta`: shape and dtype of a tensor; `kinds`: the standard's kinds of dtypes; `axes`: axes and operands, checked
"""

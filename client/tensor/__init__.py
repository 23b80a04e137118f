"""A handle and its ops.

- `tensor`: a tensor as users have it; `handle`: its fields, and its life
- `operators`, `methods`: its ops, and the indices that select a part
- `waiting`: what waits for its value, also as a Python number; `reading`: piece by piece
- `display`: what people see of it; `exchange`: DLPack, both ways
- `hints`: what to write in place of NumPy's names
"""

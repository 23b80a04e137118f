"""A handle and its ops.

- `tensor`: the handle; `operators`, `methods`: its ops; `indices`: what selects a part
- `waiting`: its awaitable forms; `reading`: its value piece by piece
- `display`: what people see of it; `exchange`: DLPack, both ways
- `hints`: what to write in place of NumPy's names
"""

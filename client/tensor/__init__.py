"""A handle and its ops.

- `tensor`: the public class; `handle`: its fields, and its lifetime
- `operators`, `methods`: its ops, and indices that select a part; `numpy_functions`: its answers to NumPy
- `waiting`: methods that wait for its value, also as a Python number; `reading`: reading it piece by piece
- `display`: its texts for people; `exchange`: DLPack, both ways
- `hints`: names of other libraries, and their replacements
"""

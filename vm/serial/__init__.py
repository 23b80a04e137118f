"""The serial engine: the same messages, executed one by one. The oracle of the engine.

- `engine`: the engine; `values`: what it keeps
"""

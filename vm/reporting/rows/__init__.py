"""Counters and tables.

- `statistics`: counters of the engine, its devices and a session
- `devices`, `tensors`, `routines`, `names`: a row each; `properties`: what rows say of one tensor
- `eviction`: what leaves and comes back
"""

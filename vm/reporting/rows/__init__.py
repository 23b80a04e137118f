"""Counters and tables.

- `statistics`: counters of the engine, its devices and a session
- `devices`, `tensors` (and names), `routines`: a row each
- `eviction`: what leaves and comes back; `metrics`: figures for monitoring
"""

"""Counters and tables.

- `statistics`: counters of the engine, its devices and a session
- `devices`, `tensors` (and names), `routines`: rows of devices, tensors, names and routines
- `eviction`: totals of evictions, and eviction by an operator; `metrics`: figures for monitoring
"""

"""Counters and tables.

- `statistics`: counters of the engine, its devices and a session
- `devices`, `tensors` (and names), `routines`: one row each
- `eviction`: totals of evictions, and eviction by an operator; `metrics`: figures for monitoring
"""

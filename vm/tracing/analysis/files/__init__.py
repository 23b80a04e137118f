"""Traces in files, and as machines send them. Nothing that is read is trusted.

- `file`, `recording`: trace files, read and written
- `parts`: from a machine's slices to records; `routine_parts`: the same for routines and runs
- `forms`: records from plain values that nobody vouches for
"""

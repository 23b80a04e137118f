"""Traces in files, and as machines send them. Nothing that is read is trusted.

- `file`: trace files, read and written; `recording`: a file that is written while its records arrive
- `parts`: from a machine's slices to records, routines and runs
- `forms`: records from plain values that nobody vouches for
"""

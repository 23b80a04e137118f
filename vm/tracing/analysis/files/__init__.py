"""Traces in files, and in the form in which machines send them. No input is trusted.

- `file`: trace files, read and written; `recording`: a file that is written while its records arrive
- `parts`: from a machine's slices to records, routines and runs
- `forms`: records from untrusted plain values
"""

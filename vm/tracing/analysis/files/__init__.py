"""Traces in files, and in the form in which machines send them. No input is trusted.

- `file`: reads and writes trace files; `recording`: writes a file while its records arrive
- `parts`: converts the parts in which a machine sends its ring to records, routines and runs
- `forms`: records from untrusted plain values
"""

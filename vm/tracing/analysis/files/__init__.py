"""Traces in files, and in the form in which machines send them. No input is trusted.

- `trace_file`: reads and writes trace files; `trace_writer`: writes a file while its records arrive
- `parts`: converts the parts in which a machine sends its ring to records, routines and runs
- `validators`: makes records from plain values that are not trusted
"""

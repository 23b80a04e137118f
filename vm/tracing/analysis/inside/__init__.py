"""The events inside the runs of routines.

- `insides`: the programs of routines, and the calls of their runs with times
- `steps`: the steps of a run as records, and where their values lie
"""

"""The insides of the runs of routines.

- `insides`: programs of routines, and the calls of their runs with their times
- `steps`: the steps of a run as records, and where their values lie
"""

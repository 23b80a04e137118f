"""From a Python function to a program: the function runs once, and its ops are recorded.

- `capture`: records the ops of a function; `symbolic`: the tensors that the function gets; `numbers`: its numbers
- `slots`: the devices, chains and functions to which a program's small numbers refer
- `blocks`: functions of control flow, captured within another capture
- `structure`: nested arguments and results; `binding`: nested arguments by a calling convention
- `results`: from a run's results to the value that the function returned; `evaluation`: a program's numbers for each
  run

`outbox/current.py` knows the capture of each thread.
"""

"""From a Python function to a program: its ops are recorded while it runs once.

- `capture`: records what a function does; `symbolic`: the tensors that the function gets; `numbers`: its numbers
- `slots`: the devices, chains and functions that a program's numbers stand for
- `blocks`: functions of control flow, captured within the capture around
- `structure`: arguments and results, nested; `binding`: nested arguments by a calling convention
- `results`: from a run's results to what the function returned; `evaluation`: the numbers of a program, for each run

Which capture a thread is in, `outbox/current.py` knows.
"""

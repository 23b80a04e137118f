"""The client. Its rooms, from the bottom to the top: a room imports only rooms above it in this list.

- `locations/`: the lines and spans of the user's code
- `process/`: effects of a fork, and of the end of the process, on sessions
- `transport/`: the connection to a daemon
- `outbox/`: unsent messages
- `waiting/`: procedures that wait, for threads and for event loops
- `device_arrays/`: tensors as arrays of this process's GPU, and such arrays as tensors
- `requests/`: questions to the machine, and side effects in program order
- `core/`: the parts of a session
- `tensor/`: a handle and its ops
- `calls/`: from a call to a message; contexts
- `host_arrays/`: uploads of arrays, and downloads of results
- `collectives/`: computations of several devices together
- `global_tensors/`: one value in parts on several devices
- `own_ops/`: ops that users define
- `array_api/`: the namespace of the standard, and functions beyond it
- `pipelines/`: stages on several devices, which process microbatches one after the other
- `capture/`: from a Python function to a program
- `linking/`: programs that run on a session
- `routines/`: functions that are captured once and run as one message
- `sharing/`: names that sessions share
- `files/`: files of tensors, and checkpoints
- `periods/`: repeated sequences of calls, found by the client
- `embedded/`: a machine in this process
- `recording/`: the messages and values of sessions, written to a file
- `session/`: the public facade of all these
- `cluster/`: sessions on several machines behind one facade
- `replay/`: runs recordings again on other machines, and compares results
- `cli/`: the command line

`embedded`, `replay` and `cli` reach into the machine; a thin client imports none of them.
"""

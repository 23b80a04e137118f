"""The client. Its rooms, from the bottom to the top; a room imports those above it in this list, and none below.

- `locations/`: where the user's code is
- `process/`: what a fork and the end of the process do to sessions
- `transport/`: how messages reach a daemon
- `outbox/`: unsent messages
- `waiting/`: procedures that wait, for threads and for event loops
- `device_arrays/`: tensors as arrays of this process's GPU, and back
- `requests/`: questions, and side effects in program order
- `core/`: what a session consists of
- `tensor/`: a handle and its ops
- `calls/`: from a call to a message; contexts
- `host_arrays/`: from arrays to tensors, and results that come near the host
- `collectives/`: tensors on several devices, computed with together
- `global_tensors/`: one value in parts on several devices
- `own_ops/`: ops of users, as the client calls them
- `array_api/`: the namespace of the standard, and functions beyond it
- `pipelines/`: stages on several devices, one microbatch behind the other
- `capture/`: from a Python function to a program
- `linking/`: programs that run on a session
- `routines/`: functions that are captured once and run as one message
- `sharing/`: names that sessions share
- `files/`: files of tensors, and checkpoints
- `periods/`: what repeats, found by the client
- `embedded/`: a machine in this process
- `recording/`: what sessions do, with its values, written to a file
- `session/`: the facade of all that
- `cluster/`: sessions on several machines behind one facade
- `replay/`: recordings run again on other machines, results compared
- `cli/`: the command line

`embedded`, `replay` and `cli` reach into the machine; a thin client imports none of them.
"""

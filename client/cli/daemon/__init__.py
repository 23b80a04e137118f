"""Commands that ask a running daemon.

- `ask`: one question, or several, or a session, which is `patient`: its waits end when the daemon hangs
- `reconnecting`: a connection that is made again when the daemon comes back
- `admin`: status, sessions, tensors, names, devices, drawn by `listed` or `shown`; `health`: problems that need an
  operator
- `nodes`: these commands for all nodes of a cluster
- `plugins`: other packages that define ops and devices
- `top`, which asks repeatedly, and its `screen`; `evict` and `stop`, which act
"""

"""Commands that ask a running daemon.

- `ask`: one question, or several, or a session, which is `patient`: no wait is without an end; `lasting`: a connection
  that is made anew when the daemon comes back
- `admin`: status, sessions, tensors, names, devices, as they are `listed` or `shown`; `health`: what needs an operator
- `nodes`: those commands for all nodes of a cluster
- `plugins`: what defines ops and devices beside ours
- `top`, which asks again and again, and its `screen`; `evict` and `stop`, which act
"""

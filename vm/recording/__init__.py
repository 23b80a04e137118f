"""Recordings of what sessions send, for replaying it.

- `tap`: the buffer of one recorder; `tapped`: a session that is recorded, between its client and admission
- `state`: what a session has at the moment from which it is recorded, as messages
- `starting`: the recorders of a machine
"""

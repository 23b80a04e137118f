"""Recordings of the messages of sessions, for replay.

- `tap`: the buffer of one recorder; `tapped`: a recorded session, between its client and admission
- `state`: the state of a session at the start of its recording, as messages
- `starting`: the recorders of a machine
"""

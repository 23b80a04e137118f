"""Records the messages of sessions, for replay.

- `recorders`: the recorders of a machine: starts and ends recordings
- `tap`: the buffer of one recorder; `tapped`: a recorded session, between its client and admission
- `state`: the state of a session at the start of its recording, as messages
"""

"""Records the messages of sessions, for replay.

- `recorders`: the recorders of a machine: starts and ends recordings
- `tapped`: a recorded session: notes its messages and values; `tap`: the buffer of the entries for one recorder
- `state`: the state of a session at the start of its recording, as messages
"""

"""Recordings with values: the messages and values that a machine notes for its recorder, written to a file.

- `recorder`: fetches entries and writes them; `left_out`: finds values that must be removed again
- `session_recording`: a session that records itself
"""

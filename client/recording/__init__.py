"""Recording values: what a machine tells its recorder, written to a file.

- `recorder`: fetches entries and writes them; `left_out`: which values are to be taken out again
- `session_recording`: a session that records itself
"""

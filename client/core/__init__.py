"""The parts of a session.

- `core`: these parts; handles and all rooms above refer to the core and not to the session
- `scopes`: which handles a context holds, and releases at its end
"""

"""The parts of a session.

- `core`: its parts, which handles and all rooms above have in place of the session
"""

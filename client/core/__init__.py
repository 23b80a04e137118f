"""The parts of a session.

- `core`: these parts; handles and all rooms above refer to the core and not to the session
"""

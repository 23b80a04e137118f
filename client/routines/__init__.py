"""Routines: Python functions whose ops are captured once and run as one message.

- `linked`: a program linked to devices and tensors of a session, and its runs
"""

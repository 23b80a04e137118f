"""Locations in the user's code, and tracebacks that end there.

- `locations`: the lines that issue calls, and `spans`: both are sent once, and then named by number
- `frames`: the owner of a frame's code, and its description for people
- `telemetry`: spans as those of OpenTelemetry
- `tracebacks`: errors whose traceback ends at the user's line
"""

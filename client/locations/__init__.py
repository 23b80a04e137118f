"""Locations in the user's code, and tracebacks that end there.

- `locations`: the lines that issue calls, and `spans`: sent once, then named by number
- `frames`: whose code a frame runs, and what people call that code
- `telemetry`: spans as those of OpenTelemetry
- `tracebacks`: errors that end at the user's line
"""

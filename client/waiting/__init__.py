"""Waiting, for threads and for event loops.

- `steps`: procedures that wait, written once, and how a thread takes their steps; `procedures`: those about several
  sessions, as one
- `on_loop`: how an event loop takes them, and waits for room; `helper`: a thread for what may take long in this process
"""

"""Waiting, for threads and for event loops.

- `steps`: procedures that wait, written once, and run by a thread; `procedures`: several procedures as one
- `on_loop`: procedures run by an event loop, which also waits for room; `helper`: a thread for slow work in this
  process
"""

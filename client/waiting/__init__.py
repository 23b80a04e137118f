"""Waiting, for threads and for event loops.

- `steps`: procedures that wait, written once, and run by a thread; `procedures`: several procedures as one
- `on_loop`: procedures run by an event loop; `message_room`: its wait for room for more messages
- `helper`: a thread for slow work in this process
"""

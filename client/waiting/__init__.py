"""Waiting without holding up whoever waits: the awaitable forms of what waits.

- `steps`: procedures that wait, written once, and how a thread takes their steps
- `on_loop`: how an event loop takes them; `room`: flow control there; `helper`: a thread for what may take long in this
  process
- `of_tensors`, `of_sessions`: the awaitable forms of a tensor and a session
- `connecting`: opening a session in a loop
"""

"""Periods: calls that repeat, found in a session's stream of calls and sent as runs of programs.

With `connect(..., routines="auto")` a session has a `PeriodicOutbox`. It sees what any outbox sees, messages in order,
so that a session without it pays nothing.

- `history`: what a message is in the stream of calls; finds stretches of the stream that repeat
- `period`: what repeats, with its tensors and numbers left open; `catalogue`: those that are known
- `learning`: from what repeats to periods
- `linking`: a period as a program, and the messages that link it
- `outbox`: holds the calls of a period back until it is over, and sends a run in their place
"""

"""Periods: repeated sequences of calls, found in a session's stream of calls and sent as runs of programs.

With `connect(..., routines="auto")` a session has a `PeriodicOutbox`. It sees the same messages as any outbox, in
order, so that a session without it pays nothing.

- `history`: the stream of calls; finds repetitions in it
- `period`: a repeated sequence, with its tensors and numbers as variables; `catalogue`: the known periods
- `learning`: makes periods from repetitions
- `linking`: a period as a program, and the messages that link it
- `outbox`: holds the calls of a period back until it is complete, and sends a run in their place
"""

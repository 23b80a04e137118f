"""Routines: Python functions that are captured once, and run as programs as long as what they depend on is the same.

- `routine`: looks a call's program up; `entries`: what a routine has captured
- `first_call`: captures what was not captured yet; and says why one was captured again; `symbols`: what stands for
  arguments meanwhile
- `control_flow`: cond, case, while_loop, repeat; `explaining`: what calls on global tensors would move
- `guards`: Python state outside of the arguments that a capture depends on; `places`, `contents`: how it is looked up
  and compared
- `search`: finds it in code and data; `looks`: which of `functions`, `containers`, `objects` looks into what; `kinds`:
  what things are, and lead to
- `names`: what code names; `computed`: what it asks for by names that it computes
- `watch`: sees what a function reads in ways that no search finds, while it is captured; `readers`: which calls those
  are
"""

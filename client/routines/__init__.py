"""Routines: Python functions that are captured once, and run as programs while everything that they depend on is
unchanged.

- `routine`: looks up the program of a call; `entries`: the captures of a routine
- `first_call`: captures the function of a new kind of call, and warns about repeated captures; `symbols`: stand-ins for
  arguments during a capture
- `control_flow`: cond, case, while_loop, repeat; `explaining`: what calls on global tensors would move
- `guards`: Python state outside of the arguments that a capture depends on; `guard_checks`, `contents`: how that state
  is looked up and compared
- `search`: finds that state in code and data; `look_at`: selects one of `functions`, `containers`, `objects` by the
  kind of an object; `kinds`: classifies objects
- `names`: the names in code; `computed`: accesses by names that code computes
- `watch`: observes accesses that no search finds, during the capture; `readers`: calls that make such accesses
"""

"""Routines: Python functions captured as programs, and run as such.

- `current`: which capture a thread is in, and what is refused there; all that the rest of the client knows of captures
- `capture`: records what a function does; `symbolic`: the tensors that the function gets; `numbers`: its numbers
- `control_flow`: cond, case, while_loop, repeat; `blocks`: their functions, captured within the capture around
- `structure`: arguments and results, nested; `results`: from a run's results to what the function returned
- `guards`: Python state outside of the arguments that a capture depends on; `places`: how it is looked up and compared
- `search`: finds it in code and data; `names`: what code names; `kinds`, `parts`: what things are, and lead to
- `watch`: sees what a function reads in ways that no search finds, while it is captured
- `routine`: looks a call's program up, or captures it; `entries`: what a routine has captured; `evaluation`: its
  numbers, for each run; `changes`: says why it was captured again
- `binding`: nested arguments by a calling convention; `linked_routine`: one capture as a function of its own
- `publishing`: routines under names, from one session to others
- `linking`: `session.link`, for programs that were not captured here; `report`: what the machine has made of a routine
- `linked`: a program with its devices and captured tensors, ready to run; `inlining`: one that is called in a capture
"""

"""Programs that run on a session.

- `linking`: `session.link`, for programs that were not captured here
- `linked`: a program with its devices and captured tensors, ready to run, and what the machine has made of it
- `runs`: how it is run, or becomes a part of a capture
- `linked_routine`: one capture as a function of its own; `inlining`: one that is called in a capture
"""

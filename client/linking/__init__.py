"""Programs that run on a session.

- `linking`: `session.link`, for programs that were not captured here
- `linked`: a program with its devices and captured tensors, ready to run, and the report of its compiled form
- `runs`: runs such a program, or makes it a part of a capture
- `linked_routine`: one capture as a function of its own; `inlining`: a linked program called in a capture
"""

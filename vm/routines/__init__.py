"""Routines: programs that run as one message. Below admission, which takes the messages.

- `segments`: cutting a program into segments and single steps; `recipe`: compiling a segment: its memory, its calls;
  `arena`: offsets in its memory; `layouts`: views; `liveness`: who uses its values, and until when
- `passes`: programs after their passes, and `compiled`: what is compiled of programs; for all sessions
- `inside`: a compiled segment as the trace has it; `stamps`: the times of its calls
- `replay`: a segment's calls, bound to memory; `instruction`: RunRoutine, which runs a segment; `parts`: its ops as
  tasks of a stream that something interferes with
- `programs`: programs and routines of a session, from its messages, with what may be refused
- `publishing`: routines under names, for other sessions
- `unfolding`: a run as the messages of its ops, one by one: what every run may fall back to, and what it has to equal
- `control_flow`: the same for steps with blocks, which wait for values; `run`: what both know of a run, and ask of an
  engine; `ids`: the ids of a run's tensors
"""

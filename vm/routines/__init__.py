"""Routines: programs that run as one message. Below admission, which takes the messages.

- `programs`: programs and routines of a session, from its messages, with what may be refused
- `publishing`: routines under names, for other sessions
- `compiling/`: from a program to segments, and from these to calls in memory that is laid out
- `running/`: RunRoutine, which runs a segment
- `op_by_op/`: a run as the messages of its ops: what every run may fall back to, and what it has to equal
"""

"""Routines: programs that run as one message. Admission takes the messages, and imports this package.

- `programs`: programs and routines of a session, built from its messages and checked
- `publishing`: routines under names, for other sessions
- `compiling/`: cutting a program into segments, and compiling a segment to calls in planned memory
- `running/`: RunRoutine, which runs a segment
- `op_by_op/`: a run as the messages of its ops: it defines the results of every run, and is the fallback
"""

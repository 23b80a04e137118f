"""From a program to segments, and from these to calls in memory that is laid out.

- `passes`: programs after their passes, and `compiled`: what is compiled of programs; for all sessions
- `segments`: cutting a program into segments and single steps
- `recipe`: compiling a segment: its memory, its calls; `arena`: offsets in its memory; `layouts`: views
- `liveness`: the uses of its values
- `inside`: a compiled segment as the trace has it
"""

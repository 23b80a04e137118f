"""Cutting a program into segments, and compiling each segment to calls in planned memory.

- `passes`: programs after their passes; `compiled`: compiled parts of programs. Both are caches for all sessions
- `segments`: cutting a program into segments and single steps
- `recipe`: compiling a segment: its memory and its calls; `arena`: offsets in its memory; `layouts`: its views
- `liveness`: the uses of a segment's values
- `inside`: the trace's record of a compiled segment
"""

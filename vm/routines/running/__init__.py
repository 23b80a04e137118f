"""RunRoutine, which runs a segment.

- `instruction`: the instruction; `segment`, `segment_plan`: what the runs of a segment share
- `replay`: a segment's calls, bound to memory, and the times of its calls
- `refusals`: data that a call refuses after its launch
- `graphing`: a segment whose launches have become one graph
- `parts`: its ops as tasks of a stream that something interferes with
"""

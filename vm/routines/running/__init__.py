"""RunRoutine, the instruction that runs a segment.

- `instruction`: the instruction; `segment`, `segment_plan`: the state that the runs of a segment share
- `replay`: a segment's calls, bound to memory, and the times of its calls
- `poisoned_values`: the poisoned values of a run, and the errors that arose in it
- `refusals`: data that a call refuses after its launch
- `graphing`: the launches of a segment as one graph
- `parts`: the ops of a run as tasks of a stream with injected delays or faults
"""

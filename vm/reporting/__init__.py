"""Reports about a machine.

- `questions`: the questions that a session may ask; `answering`: common rules of both engines' answers
- `rows/`: counters and tables
- `memory/`: every byte of the pools: its purpose and its holders
- `membership`: the members of the cluster, as told by the supervisor
- `invariants`: checks of an engine's invariants
- `live_trace`: the ring and the live instructions, in slices; `locations`: the lines of location numbers
"""

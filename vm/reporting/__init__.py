"""Reports about a machine.

- `questions`: the questions that a session may ask; `answering`: what the answers of both engines have in common
- `rows/`: counters and tables
- `memory/`: every byte of the pools: what it is for, who holds it
- `membership`: the members of the cluster, as this machine was told of them
- `invariants`: checks of an engine's invariants
- `live_trace`: the ring and the live instructions, in slices; `locations`: the lines behind location numbers
"""

"""Reports about a machine.

- `questions`: the questions that a session may ask; `answering`: rules of answers, for both engines
- `rows/`: counters and tables
- `memory/`: the purpose and the holders of each byte in the pools
- `membership`: the members of the cluster, a table that the supervisor sets
- `invariants`: checks of an engine's invariants
- `live_trace`: sends the ring and the live instructions in slices; `locations`: finds the line of a location's number
"""

"""What a machine tells of itself.

- `questions`: what a session may ask
- `statistics`, `device_rows`, `tensor_rows`: counters and tables
- `invariants`: what is always true of an engine, checked
- `live_trace`: the ring and the live instructions, in slices; `locations`: the lines behind location numbers
"""

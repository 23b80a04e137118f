"""What a machine tells of itself.

- `questions`: what a session may ask
- `statistics`, `device_rows`, `tensor_rows`: counters and tables
- `live_trace`: the ring and the live instructions, in slices; `locations`: the lines behind location numbers
"""

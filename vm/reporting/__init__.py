"""Reports about a machine.

- `questions`: the questions that a session may ask; `answering`: what all answers have in common
- `statistics`, `device_rows`, `tensor_rows`, `routine_rows`, `name_rows`: counters and tables; `properties`: what rows
  say of one tensor
- `holdings`: the copies that have memory now; `eviction`: what leaves and comes back
- `extents`: every byte of the pools, in pieces; `held_rows`: who holds them, summed up;
  `pool_rows`, `idle_arenas`: the pools themselves
- `invariants`: checks of an engine's invariants
- `live_trace`: the ring and the live instructions, in slices; `locations`: the lines behind location numbers
"""

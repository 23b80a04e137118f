"""Memory of devices: planned at admission, reserved at dispatch, released at retirement.

- `planning`: the plan of a device's memory: the bytes in use once every admitted instruction has run
- `ledger`: the order in which instructions reserve memory, and the queue of instructions that wait for memory
- `allocation`: allocating buffers; `release`: releasing them
- `run_memory`: memory that stays allocated between runs of routines, until memory is short
- `recycling`: reusing the Python objects of a released result
- `replicas`: copies that are also valid elsewhere
- `making_room`: dropping and evicting copies when a plan exceeds its device; `victims`: the order of eviction
- `refusals`: a cache of searches that found no victim
- `shortage`: clauses for errors about memory that cannot be freed
- `reservation`: reserving memory at dispatch; `binding`: turning operands into arrays
- `overwriting`: the rule for writing in place, and for giving memory to another value; `mapped`: copies that clients
  have mapped; `pins`: values that sessions keep in place
"""

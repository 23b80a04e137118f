"""Memory of devices: planned at admission, reserved at dispatch, released at retirement.

- `ledger`: planned memory, instructions that have not reserved their memory yet, instructions that wait for memory
- `allocation`: allocating buffers; `release`: releasing them
- `run_memory`: memory that is kept from run to run of routines, and given up when memory is short
- `recycling`: reusing the objects of a released result
- `planning`: what the plan of a device counts
- `replicas`: copies that are also valid elsewhere
- `making_room`: dropping and evicting copies when a plan exceeds its device; `victims`: the order of eviction
- `refusals`: a cache of searches that found no victim
- `kept`: clauses for errors about memory that cannot be freed
- `reservation`: reserving at dispatch; `binding`: operands become arrays
- `overwriting`: the rule for writing in place, and for giving memory to another value; `mapped`: copies that clients
  have mapped; `pins`: values that sessions keep in place
"""

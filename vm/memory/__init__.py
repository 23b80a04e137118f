"""Memory: planned at admission, reserved at dispatch, released at retirement.

- `ledger`: planned memory, instructions that have not reserved theirs, instructions that wait for memory
- `allocation`: allocating buffers; `release`: releasing them
- `run_memory`: what runs keep between them, given up where memory is short
- `recycling`: reusing the objects of a released result
- `replicas`: copies that are also valid elsewhere
- `making_room`: what leaves where a plan exceeds its device; `victims`: in which order, by how lately it was used
- `refusals`: where none may leave, as was just found
- `kept`: what making room cannot have, for errors
- `reservation`: reserving at dispatch; `binding`: operands become arrays
- `overwriting`: which memory may take another value, that of an input its result; `mapped`: copies that clients have
  mapped; `pins`: those that sessions keep in place
"""

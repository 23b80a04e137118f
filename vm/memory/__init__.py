"""Memory: planned at admission, reserved at dispatch, released at retirement.

- `ledger`: planned memory, instructions that have not reserved theirs, instructions that wait for memory
- `allocation`: allocating buffers; `release`: releasing them; `forwarding`: reusing the buffer of an input
- `recycling`: reusing the objects of a released result
- `replicas`: copies that are also valid elsewhere; `recency`: how lately and how often storages are used
- `making_room`: what leaves where a plan exceeds its device; `victims`: in which order
- `refusals`: where none may leave, as was just found
- `kept`: what making room cannot have, for errors
- `reservation`: reserving at dispatch; `binding`: operands become arrays
- `overwriting`: which memory may take another value; `mapped`: copies that clients have mapped;
  `pins`: those that sessions keep in place
"""

"""The virtual machine. What to read, in this order.

- `tensor`, `instruction`, `lane`, `session`: the objects; what is kept per device and per session
- `engine`: the scheduler's phases
- `admission`, `calls`, `accesses`, `plan`, `views`, `names`, `ids`, `refusal`: messages become instructions
- `quotas`: what a session may hold
- `immediate`: ... or run at once, where nothing stands in their way
- `edges`, `pending`, `cancel`, `lost`: edges, and the errors that follow them
- `residency`, `spill`, `reservation`, `binding`: where copies are, what moves, what fits
- `shares`: how much of a stream one session may have
- `machine`, `log`: threads; who drives the engine, who waits
- `report`, `queries`, `tensor_rows`, `device_rows`, `tracing`: what it shows of itself
- `serial`, `serial_values`: the oracle that it is tested against
"""

"""The virtual machine. What to read, in this order:

| what | where |
|---|---|
| the objects: tensors, storages, copies; instructions and their life; what is kept per device and per session | `tensor`, `instruction`, `lane`, `session` |
| the scheduler's phases | `engine` |
| admission: messages become instructions | `admission`, `calls`, `accesses`, `plan`, `views`, `names`, `ids`, `refusal` |
| ... or run at once, where nothing stands in their way | `immediate` |
| edges, and errors that follow them | `edges`, `pending`, `cancel`, `lost` |
| where copies are, what moves, what fits | `residency`, `spill`, `reservation`, `binding` |
| threads: who drives the engine, who waits | `machine`, `interrupts`, `log` |
| what it shows of itself | `report`, `tracing` |
| the oracle it is tested against | `serial`, `serial_values` |
"""

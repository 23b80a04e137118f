"""The virtual machine. The rooms are listed from the top down; each imports only the rooms below it (`make imports`).

- `cluster/`: supervisors, which keep daemons running on several machines; one room of it imports Ray
- `service/`: the daemon with its sockets and connections. `machine`: the embedded machine. Both drive a `runtime`
- `reporting/`: answers to questions about an engine: statistics, tables, invariants
- `engine`: combines admission and scheduler: `receive`, `schedule`
- `admission/`: turns messages into instructions, or runs them at once
- `recording/`: passes the messages and fetched values of sessions to a recorder
- `routines/`: programs that run as one message; `durability/`: checkpoints of published tensors, and restoring
- `placement/`: where values are, and which transfers an instruction needs
- `scheduler/`: the order of execution: edges, phases, fair queues, pending metas, lost devices
- `memory/`: the room on devices: the ledger, reservation, binding
- `tracing/`: trace records and their ring buffer; `tracing/analysis/`: the tools that read a trace
- `plugins/`: external packages that define ops and kinds of devices
- `model/`: the objects: tensors and copies, instructions and their states, devices, sessions, plans

Beside them: `serial/`, an engine without a scheduler, for users and as the oracle of the tests; `log`, the machine's
log; `failures`, which logs the failures that no client waits for; `client_files`, which opens the files and
resolves the paths that clients name; `process`, which describes the machine's process.
"""

"""The virtual machine. Rooms, from the roof down; each imports only those below it (`make imports`).

- `cluster/`: supervisors, which keep daemons running on several machines; one room of it imports Ray
- `service/`: the daemon: sockets, connections, turns. `machine`: the embedded machine; both drive a `runtime`
- `reporting/`: questions about an engine, statistics, tables
- `engine`: composes admission and scheduler: receive, schedule
- `admission/`: messages become instructions, or run at once
- `recording/`: what sessions send and fetch, kept for a recorder
- `routines/`: programs that run as one message; `durability/`: checkpoints of what is published, and restoring
- `placement/`: where values are; which transfers an instruction needs
- `scheduler/`: what runs when: edges, phases, fair queues, pending metas, lost devices
- `memory/`: what fits: the ledger, reservation, binding
- `tracing/`: records, the ring of them; `tracing/analysis/`: the tools that read a trace
- `plugins/`: packages from outside that define ops and kinds of devices
- `model/`: what there is: tensors and copies, instructions and their life, devices, sessions, plans

Beside them: `serial/`, an engine without a scheduler that users can choose and that the tests compare with; `log`, the
machine's log; `failures`, those that nobody waits for, which go to the log; `places`, from what clients name to open
files and real paths; `process`, what answers tell of the machine's process.
"""

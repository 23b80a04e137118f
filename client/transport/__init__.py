"""How a session's messages reach a daemon, and the answers come back.

- `seeking`: how a daemon is looked for; `keys`: the client's keys
- `interface`: what a session needs of any transport
- `replies`: the answers to requests
- `remote`: the transport to a daemon; `link`: its socket; `socket_lock`: which thread has it; `reconnecting`: the
  attempts to resume a session whose connection is lost
- `outgoing`, `incoming`: frames out and in; `credit`: how much may be unfinished; `idle_flush`: what a session left
  unsent; `effects`: the callbacks of side effects
- `memory`: where arrays lie that a daemon reads or writes in place
- `gpus`: the numbers that a daemon's GPUs have here
- `host_functions`: functions of the program that the machine calls; `callers`: the threads that call them
- `questions`: a connection that only asks, without NumPy
- `segments`: memory files for uploads and results; `host_readers`: host arrays that uploads are read from
"""

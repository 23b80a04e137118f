"""Carries a session's messages to a daemon, and the answers back.

- `seeking`: looks for a daemon; `keys`: the client's keys
- `interface`: the interface of any transport
- `replies`: the answers to requests
- `remote`: the transport to a daemon; `link`: its socket; `socket_lock`: the thread that holds it; `reconnecting`:
  attempts to resume a session whose connection is lost
- `outgoing`, `incoming`: frames out and in; `credit`: limits unfinished work; `idle_flush`: sends a session's unsent
  messages in the background; `effects`: the callbacks of side effects
- `memory`: arrays that a daemon reads or writes in place
- `gpus`: the numbers of a daemon's GPUs in this process
- `host_functions`: functions of the program that the machine calls; `callers`: the threads that call them
- `questions`: a connection that only asks, without NumPy
- `segments`: memory files for uploads and results; `host_readers`: host arrays from which uploads are read
"""

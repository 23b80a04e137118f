"""The daemon: an engine behind sockets, in one process.

- `daemon`: the parts of the daemon, and the order of startup and shutdown; `preflight`: the conditions of a start;
  `restored`: names restored from a checkpoint at the start
- `warming`: calls of ops at the start, so that their kernels are compiled
- `loop`: the daemon's one thread; `busy_polling`: how long the loop polls before it sleeps
- `exporter`: metrics, exported by a child process
- `descriptors`: the shares of sessions, segments and peers in the file descriptors
- `peers`: links to the daemons of other nodes; `certificates`: TLS for these links
- `connections/`: from a socket to the engine, and back
- `access/`: which peers may connect, and a bound on the memory that a connection costs
- `settings/`: the configuration
- `process/`: files, locks, logs, signals, and the service manager
"""

"""The daemon's service.

- `daemon`: the composition, the order of startup and of shutdown; `preflight`: what has to hold before a start;
  `restored`: what there is from a checkpoint
- `warming`: what is called at the start, so that kernels are compiled
- `loop`: the daemon's one thread; `busy_polling`: how long it looks for news before it sleeps
- `exporter`: metrics, offered by a child process
- `descriptors`: the share of each use in the descriptors
- `peers`: the daemons of other nodes; `certificates`: with which values are taken from them
- `connections/`: from a socket to the engine, and back
- `access/`: which peers may connect, and a bound on the memory that a connection costs
- `settings/`: the configuration
- `process/`: files, locks, logs, signals, and the service manager
"""

"""The daemon's service: its files, in reading order.

- `daemon`: the composition, the order of startup and of shutdown; `preflight`: what has to hold before a start;
  `restored`: what there is from a checkpoint
- `loop`: the daemon's one thread; `busy_polling`: how long it looks for news before it sleeps
- `listener`, `listen_address`: a socket that the daemon listens on; its address and socket options
- `peer`, `registry`: one connection; the connection registry. `unauthenticated`: connections that have not said HELLO
- `inbound`, `front`, `outbound`: frames to messages; fairness among connections; answers to frames
- `config` (`config_text`, `checks`), `instance`, `logs`, `notify`, `errors`: files, locks, logs, systemd, failures;
  `signals`: what they mean
- `zap`, `allowlist`: authentication; `refusals`: the log of who was refused
- `guard`: a bound on the memory of unfinished messages; `descriptors`: the shares of each use
"""

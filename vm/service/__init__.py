"""The daemon's service. What to read, in this order.

- `daemon`: the composition; what starts, and how it ends
- `loop`: the one thread
- `listener`, `listen_address`: an address that the daemon listens on, and what guards it
- `peer`, `registry`: connections, and the registry of them; `unauthenticated`: those that have not said HELLO
- `inbound`, `front`, `outbound`: frames to messages, whose turn it is, answers to frames
- `config` (`config_text`, `checks`), `instance`, `logs`, `notify`, `errors`: files, locks, logs, systemd, failures
- `zap`, `allowlist`: who may connect
- `guard`: memory that nobody else bounds
"""

"""The daemon's service. What to read, in this order.

- `daemon`: the composition; what starts, and how it ends
- `loop`: the one thread
- `door`, `peer`, `lobby`: addresses, connections, who comes and goes
- `inbound`, `front`, `outbound`: frames to messages, whose turn it is, answers to frames
- `config`, `instance`, `logs`, `notify`: files, locks, logs, systemd
- `zap`, `allowlist`, `entrance`: who may connect
- `guard`: memory that nobody else bounds
"""

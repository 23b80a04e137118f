"""From a socket to the engine, and back: in reading order.

- `listener`: a socket that the daemon listens on, and the credentials of its peers
- `process_end`: whether a client's process has ended
- `peer`, `registry`: one connection; the connection registry. `unauthenticated`: connections that have not sent HELLO
- `inbound`, `front`, `outbound`: frames to messages; fairness among connections; answers to frames
"""

"""Links over TCP.

- `frames`: the format of frames between two nodes; `hello`: the handshake of a connection
- `halves`: the states of a transfer's halves, and which events change them
- `protocol`: one link as a state machine, from calls and frames to frames and callbacks; `sender`, `receiver`: its two
  sides; `outgoing`: frames to write, and notices
- `pairing`: decides whether the two connections of a link belong together
- `sockets`: connections with deadlines, plain or TLS
- `link`: a link's threads; `links`: all links of a node, and the port where values are taken
"""

"""Links over TCP.

- `frames`: what goes between two nodes; `hello`: the first words of a connection
- `halves`: the states of a transfer's halves, and which events move them
- `protocol`: one link as a state machine: frames in and out, callbacks due; `sender`, `receiver`: its two sides;
  `outgoing`: frames to write, and notices
- `pairing`: do the two connections of a link belong together?
- `sockets`: connections with deadlines, plain or TLS
- `link`: a link's threads; `links`: all links of a node, and the port where values are taken
"""

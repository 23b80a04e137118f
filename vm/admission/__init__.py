"""Admission turns messages into instructions, in program order.

- `admission`: messages of a session, one after the other, and groups of them; `handlers`: which part handles which
  kind of message
- `tensors`: uploads, moves, releases and hints; `signatures`: objects stored under a number
- `turns`: which messages a session may have admitted before others have their turn
- `calls`: ops; `inline`: ops that run at admission, `inline_launches`: their launches; `at_once`: the conditions for
  running at admission, the operands there, and reads
- `accesses`: uploads, fetches, waits; `exports`: results that clients read in place; `shares`: results that clients
  read in the memory of a GPU
- `effects`: side effects; `host_calls`: functions of clients whose results become tensors
- `collectives`: computations of several devices together; `collective_group`: the instructions of a collective;
  `collective_launch`: a collective carried out by a library, `collective_gang`: on several nodes;
  `groups_at_once`: small collectives at admission; `collectives_over_nodes`: collectives with devices of other nodes
- `packing`: packed copies of values; `node_transfers`: values sent to other nodes, and received from them
- `files`: tensors in files; `durable`: checkpoints, and restoring them
- `routines`: programs, links and runs; `segments`: parts of runs as one instruction;
  `runs_at_once`: short runs at admission
- `names`: tensors and routines shared by name; `publications`: messages about them
- `cancellation`: cancelling and closing sessions; `rejection`: messages that cannot be admitted
- `lookup`: from ids and numbers to tensors, signatures and devices; `quotas`: limits of a session
"""

"""Admission: messages become instructions.

- `admission`: one handler per kind of message
- `calls`: ops; `inline`: ops that run at admission; `at_once`: the rule of what may
- `accesses`: bytes in and out, waits; `exports`: results that clients read in place; `shares`: those in
  the memory of a GPU
- `effects`: side effects; `host_calls`: functions of clients whose results become tensors
- `collectives`: what several devices compute together; `collective_group`: the instructions of one;
  `collective_launch`: those of one that a library carries out, `collective_gang`: on several nodes;
  `groups_at_once`: small ones at admission; `collectives_over_nodes`: those with devices of other nodes
- `packing`: values that have to lie packed; `node_transfers`: values that go to other nodes, and come from there
- `files`: tensors that lie in files; `durable`: checkpoints and their restoring
- `routines`: programs, links and runs; `segments`: runs as one instruction;
  `runs_at_once`: short ones at admission
- `names`: tensors and routines shared by name
- `cancellation`: of a session, and its end; `rejection`: messages that cannot be admitted
- `lookup`: from ids and numbers to tensors, signatures and devices; `quotas`: limits of a session
"""

"""A session on several machines: one ordinary session for each node behind one facade.

- `session`: the facade; `connect`: from an address to a session
- `cluster`: the nodes and their sessions, as they are found, opened, lost and found again
- `nodes`: which nodes there are, and waiting for them
- `gate`: the lock of procedures and blocks about several nodes
- `routing`: which node a call is for; `namespace`: the standard's functions, each on the node of its tensors
- `moving`: a tensor from one node to another; `collectives`: tensors of several nodes
- `atomic`, `spans`: blocks on whichever node they are about
- `order`, `names`, `checkpoints`, `reports`: what concerns all nodes
- `facet`: what the classes of the facade's methods share; `opening`: a session on one member
- `traces`: the trace of all nodes on one clock
- `watching`: what has become of a node that does not answer; `losses`: what the other nodes are told of it
"""

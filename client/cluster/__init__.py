"""A session on several machines: one ordinary session for each node behind one facade.

- `session`: the facade; `connect`: from an address to a session
- `cluster`: the nodes and their sessions: finding, opening, losing and reopening them
- `nodes`: lists the nodes, and waits for them
- `gate`: the lock of procedures and blocks that concern several nodes
- `routing`: chooses the node of a call; `namespace`: the standard's functions, each on the node of its tensors
- `moving`: moves a tensor from one node to another; `collectives`: collectives on tensors of several nodes
- `atomic`, `spans`: blocks that are open on the sessions of all nodes
- `order`, `names`, `checkpoints`, `reports`: methods that concern all nodes
- `facet`: the base class of the facade's methods; `opening`: opens a session on one member
- `traces`: the trace of all nodes on one clock
- `watching`: finds out whether a node that does not answer is lost; `losses`: notifies the other nodes
"""

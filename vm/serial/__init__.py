"""The serial engine: the same messages, executed one by one. Users rule out the scheduler with it, tests compare.

- `engine`: the engine; `state`: what its handlers share; `values`: tensors and sessions
- `effects`, `names`: side effects; published tensors and routines
- `collectives`: their steps, one after the other
- `node_transfers`: values that go from a node to itself
- `routines`: runs, op by op; `files`: tensors of files, read at once; `durability`: checkpoints
- `machine`: the engine for the sessions of a process; `questions`: the questions that a session may ask
"""

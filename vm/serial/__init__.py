"""The serial engine: executes the same messages one by one. Users rule out the scheduler with it, and tests compare.

- `engine`: the engine; `state`: the shared state of its handlers; `values`: tensors and sessions
- `effects`, `names`: side effects; published tensors and routines
- `collectives`: their steps, one after the other
- `node_transfers`: values that a node sends to itself
- `routines`: runs, op by op; `files`: tensors of files, read at once; `durability`: checkpoints
- `machine`: the engine for the sessions of a process; `questions`: the questions of a session
"""

"""The serial engine, which executes messages one by one.

Users can check with it whether the scheduler causes a problem, and tests compare the two engines.

- `engine`: the engine; `state`: the shared state of its handlers; `values`: tensors and sessions
- `effects`: side effects; `names`: published tensors and routines
- `collectives`: collectives, computed step by step
- `node_transfers`: values that a node sends to itself
- `routines`: runs, executed op by op; `files`: tensors in files, read at once; `durability`: checkpoints
- `machine`: the engine for the sessions of a process; `questions`: answers the questions of a session
"""

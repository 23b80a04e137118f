"""A run as the messages of its ops, one by one: this defines the results of every run, and is the fallback.

- `unfolding`: the messages; `control_flow`: the messages of steps with blocks, which wait for values
- `run`: the state of a run that both files use, such as the ids of its tensors, and their interface to an engine
"""

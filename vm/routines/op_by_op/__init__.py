"""A run as the messages of its ops, one by one: the fallback for every run, which defines its results.

- `unfolding`: the messages; `control_flow`: the messages of steps with blocks, which wait for values
- `run`: the state of a run that both use, such as the ids of its tensors, and their interface to an engine
"""

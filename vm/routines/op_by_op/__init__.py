"""A run as the messages of its ops, one by one: what every run may fall back to, and what it has to equal.

- `unfolding`: the messages; `control_flow`: those of steps with blocks, which wait for values
- `run`: what both know of a run, the ids of its tensors among that, and ask of an engine
"""

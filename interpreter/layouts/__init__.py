"""How a global tensor lies on its devices, and what an op makes of that. Knows nothing of single ops.

- `layout`: split, broadcast and partial, for each dimension of a grid of devices
- `placement`: the devices, and their grid
- `shares`: which part of a tensor each device has
- `rules`: signatures, the layouts of operands and results with which an op needs no bytes of another device
- `text`: grid and layout as text; `part_names`: names of parts at the machine
- `matching`: signatures from axes that operands and results share
"""

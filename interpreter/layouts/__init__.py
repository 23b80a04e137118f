"""How a global tensor lies on its devices, and the rules of ops for layouts. Knows nothing of single ops.

- `layout`: split, broadcast and partial, for each dimension of a grid of devices
- `placement`: the devices, and their grid
- `shares`: the part of a tensor on each device
- `rules`: signatures: layouts of operands and results with which an op needs no bytes of another device
- `text`: grid and layout as text; `part_names`: names of parts at the machine
- `matching`: signatures from axes that operands and results share
"""

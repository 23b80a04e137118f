"""Every byte of the pools: its purpose and its holders.

- `extents`: the contents of the pools, piece by piece; `held`: sums by holder
- `holdings`: the largest copies that have memory now
- `pools`: the pools themselves, and unused arenas
"""

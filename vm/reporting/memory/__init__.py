"""Every byte of the pools: what it is for, who holds it.

- `extents`: the pools in pieces; `held`: who holds them, summed up
- `holdings`: the largest copies that have memory now
- `pools`: the pools themselves, and the arenas that nobody uses
"""

"""The purpose and the holders of each byte in the pools.

- `extents`: the contents of the pools, extent by extent; `held`: sums by session, name, device or line
- `holdings`: the largest copies that have memory now
- `pools`: rows about the pools, and unused arenas
"""

"""Passes: each makes another program of a program, with the same results, effects and errors, bit for bit.

- `table`: the passes by name, and `apply`
- `needless`: removes unneeded steps, and computes equal results once
- `numbers`: shares equal numbers, and computes constants
- `devices`: groups the steps of each device
- `transfers`: shares moves, removes needless ones, and starts them early
- `sharing`: merges two steps that make the same; for `needless` and `transfers`
- `rebuilding`: makes a program from another's steps, checked again by the builder

Every pass preserves: the order of prints and effects; in-place writes; errors with their locations, so that a step that
may fail on data stays; the numbers of random calls; and layouts, since NumPy's results for packed and strided operands
may differ in their bits. A pass that has nothing to do returns the program itself.
"""

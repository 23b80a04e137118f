"""Passes: each makes another program of a program, with the same results, effects and errors, bit for bit.

- `table`: the passes by name, and `apply`
- `needless`: what nobody needs is left out, and what is computed twice is computed once
- `numbers`: unused numbers are left out, equal ones shared, constants computed
- `devices`: steps of one device stand together
- `transfers`: moves are shared, folded away, and come early
- `sharing`: two steps that make the same, made one; for `needless` and `transfers`
- `rebuilding`: a program from another's steps, checked anew by the builder

What every pass keeps: the order of prints and effects; in-place writes; errors with their locations, so that a step
which may fail on data stays; the numbers of random calls; and layouts, since NumPy's results for packed and strided
operands may differ in their bits. A pass that has nothing to do gives the program itself.
"""

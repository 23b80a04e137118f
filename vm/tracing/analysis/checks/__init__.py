"""Checks of a trace against rules that are written down here once more, apart from the engine's.

- `dependences`: the rules of dependence as a model of their own; `verify`: every edge recomputed by it, and runs
- `inside_check`: what a segment was compiled to, against its program
- `views`: where views lie, as NumPy has it
"""

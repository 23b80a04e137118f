"""Checks of a trace against rules that are stated here independently of the engine.

- `dependences`: the rules of dependence as a model of their own; `verify`: recomputes every edge with it, checks runs
- `inside_check`: a compiled segment against its program
- `views`: the layouts of views, computed by NumPy
"""

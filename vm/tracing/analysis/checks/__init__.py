"""Checks of a trace against rules that are written here a second time, independently of the engine.

- `dependences`: a second model of the rules of dependence; `verify`: recomputes every edge with it, and checks runs
- `segment_check`: compares a compiled segment with its program
- `views`: computes the layouts of views by NumPy
"""

"""`tensord doctor`.

- `doctor`: the command; `findings`: what a check finds
- checks of a running `daemon`, this `system`, the GPU (`gpu`, with CuPy `cuda`), and a directory of `checkpoints`
"""

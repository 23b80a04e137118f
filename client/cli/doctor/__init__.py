"""`tensord doctor`.

- `doctor`: the command; `findings`: the results of checks
- checks of a running `daemon`, this `system`, the GPU (`gpu`, with CuPy `cuda`), and a directory of `checkpoints`
"""

"""The ops, in a module for each family. Importing this package fills `opdef.REGISTRY`.

How to add an op:

1. Find the module of its family, or make one: every module here is imported, in alphabetical order.
2. Write its infer function: `(metas, attributes) -> output metas`. An operand's meta is a `Meta`, or the type of a
   Python scalar. Raise TypeError or ValueError with a message; `infer` adds the op's name and its operands. Return
   `None` for an output whose shape depends on data (the op is then `dynamic`), but still check the operands.
3. Write its kernel against an array module (NumPy or CuPy): fill `outputs` (or return arrays, if `dynamic`), and
   allocate little. An op is `elementwise` only if its kernel never reads an input after it has begun to write an
   output. NaN is a value: the thread that runs kernels switches floating-point warnings off. If one ufunc of the array
   module is the whole kernel, `ufunc=` is faster.
4. If its temporaries may take more than half a megabyte, give a function for their bytes as `scratch`
   (`schema.scratch` has building blocks), or set `pointwise`: the kernel is then called on one piece of the operands
   after another. tests/interpreter/ops/test_scratch.py measures every op: add a call to `large_calls.py` there.
5. Give as `layouts` a rule from `rules/`: it lists the layouts of global tensors with which each device computes only
   its own part. If there are none, give the reason instead. tests/interpreter/layouts tries each signature on parts;
   docs/layouts.md lists the ops whose parts are rounded differently from the whole.
6. `define(...)`. Name the op and its attributes as the Python array API standard does. Give `work` if the cost is not
   proportional to the size of the largest operand, `scalars` if a Python int need not fit the promoted dtype, and
   `total` if no data make the kernel raise; tests/interpreter/ops/test_total.py tries to make it raise.
7. Compare it with NumPy in tests/interpreter/ops; the tests of aliasing and of the registry there include it
   automatically.

The families:

- `elementwise` (`corrections`: where NumPy deviates from the standard), `special/`: special functions
- `reductions`, `cumulative`
- `quantiles`, `histograms`, `curves`: interpolation and convolution
- `creation`, `random`
- `views`, `rearranging`, `joining`, `indexing` (`selection`, `assignment`: its rules; `positions`: checks of positions
  that are read from tensors)
- `dynamic`: results whose shape depends on data; `ordering`: dependences that carry no data
- `searching`, `sets`, `sorting`
- `linalg`, `einsum`, `decompositions`, `solving`, `norms` (`matrices`: their common parts), `diagonals`, `fft`
- `nn/`: neural networks
- `rules/`: the layouts of global tensors with which an op needs no data from other devices
"""

from __future__ import annotations

from ..submodules import import_submodules

import_submodules(__name__)

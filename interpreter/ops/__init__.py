"""The ops, by family. Importing this package fills `opdef.REGISTRY`.

How to add an op:

1. Find its family's module, or make one: each module here is imported, in the order of the alphabet.
2. Write its infer function: `(metas, attributes) -> output metas`. An operand's meta is a `Meta`, or the type of a
   Python scalar. Raise TypeError or ValueError with a message; `infer` adds the op's name and its operands. Give
   `None` for an output whose shape the data decide (then the op is `dynamic`), but still check the operands.
3. Write its kernel against an array module: fill `outputs` (or return arrays, if `dynamic`), allocate little, and
   never read an input again once an output is partly written if you want to set `elementwise`. NaN is a value: no
   kernel warns, and floating-point errors are switched off by the thread that runs it. If a ufunc of the array
   module does all of this, `ufunc=` is faster than any kernel.
4. If its temporaries may take more than half a megabyte, say in `scratch` how much (`schema.scratch` has the parts), or
   set `pointwise`: the kernel is then called on pieces. tests/interpreter/ops/test_scratch.py measures every op: add a
   call to `large_calls.py` there.
5. Say in `layouts` with which layouts of global tensors each device computes its own part (`rules/`), or why it
   computes all. tests/interpreter/layouts tries each signature on shares; docs/layouts.md says whose bits are others.
6. `define(...)`. Name op and attributes as the Python array API standard does. Give `work` where the largest
   operand's size misleads, `scalars` where a Python int need not fit the promoted dtype, and `total` if the kernel
   raises on no data; tests/interpreter/ops/test_total.py tries to make it raise.
7. Compare it with NumPy in tests/interpreter/ops; the aliasing and registry tests there find it by themselves.

The families:

- `elementwise` (`corrections`: where NumPy departs from the standard), `special/`: special functions
- `reductions`, `cumulative`
- `quantiles`, `histograms`, `curves`: interpolation and convolution
- `creation`, `random`
- `views`, `rearranging`, `joining`, `indexing` (`positions`: checks of positions that are data)
- `dynamic`: shapes that data decide; `ordering`: an order without data
- `searching`, `sets`, `sorting`
- `linalg`, `einsum`, `decompositions`, `solving`, `norms`, `fft`
- `nn/`: neural networks
- `rules/`: with which layouts of global tensors an op needs nothing of other devices
"""

from __future__ import annotations

from ..submodules import import_submodules

import_submodules(__name__)

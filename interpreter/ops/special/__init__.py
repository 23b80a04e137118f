"""The special functions of real numbers, computed by SciPy on the host and by CuPy on a GPU.

- `functions`: the list of the functions, and the definition of their ops
- `kernels`: the library's function for each op; `composed`: functions that are composed of others on a GPU
- `normal_cdf`: the distribution function of the normal distribution without SciPy, for GELU

A device has these ops if the library can be imported in the device's process. Inference of shapes and dtypes needs no
library.
"""

from __future__ import annotations

from . import functions  # noqa: F401 - it fills the registry

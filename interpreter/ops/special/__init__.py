"""The special functions of real numbers: SciPy's on the host, CuPy's on a GPU.

- `functions`: which there are, and how such an op is defined
- `kernels`: which function of a library each is; `composed`: those that are made of others, on a GPU
- `normal_cdf`: the normal distribution without SciPy, for GELU

A device has these ops if the library can be imported where the device is. Inference needs no library.
"""

from __future__ import annotations

from . import functions  # noqa: F401 - it fills the registry

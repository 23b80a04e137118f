"""The namespace of the Python array API standard, one module per chapter of the standard, and functions beyond it.

- `namespace`: the namespace itself, and its capabilities; `functions`: the base class of the families
- `constants`, `creation`, `data_types`, `elementwise`, `indexing`, `manipulation`, `searching`, `sets`, `sorting`,
  `statistical`, `utility`: the families
- `linalg`, `fft`: the standard's extensions; `special`: an extension that the standard does not have yet
- `beyond`: functions that the standard lacks; `nn`, `random`: functions for neural networks, and random numbers
"""

"""The namespace of the Python array API standard, one module per chapter of its text, and functions beyond it.

- `namespace`: the namespace itself, and what it can do; `functions`: what the families share
- `constants`, `creation`, `data_types`, `elementwise`, `indexing`, `manipulation`, `searching`, `sets`, `sorting`,
  `statistical`, `utility`: the families
- `linalg`, `fft`: the extensions; `special`: one that the standard has not yet
- `beyond`: functions that the standard lacks; `nn`, `random`: those of neural networks, and of chance
"""

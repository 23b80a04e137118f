"""The special functions of real numbers, with SciPy's names and values.

- `error_functions` (`normal_cdf`), `entropies`: logistic functions, too
- `gamma`, `zeta`, `bessel`, `exponential`, `elementary`
- `incomplete_gamma`, `incomplete_beta`, and `distributions` made of them
- `table`: how such an op is defined; `polynomials`: series and their tables
"""

from __future__ import annotations

from . import (
    bessel,
    distributions,
    elementary,
    entropies,
    error_functions,
    exponential,
    gamma,
    incomplete_beta,
    incomplete_gamma,
    zeta,
)

__all__ = [
    "bessel",
    "distributions",
    "elementary",
    "entropies",
    "error_functions",
    "exponential",
    "gamma",
    "incomplete_beta",
    "incomplete_gamma",
    "zeta",
]

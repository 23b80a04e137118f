"""The special functions of real numbers, with SciPy's names and values.

- `error_functions` (`normal_cdf`), `entropies`: logistic functions, too
- `gamma`, `zeta`, `exponential`, `elementary`, `dilogarithm`
- `bessel` of orders 0 and 1, `bessel_orders` of others
- `legendre`, `hypergeometric`
- `incomplete_gamma`, `incomplete_beta`, and `distributions` made of them; `inverses` of all these
- `table`: how such an op is defined
- `polynomials`: series and their tables; `fractions`: continued fractions, and series of any length; `doubled`: numbers
  of twice the precision
"""

from __future__ import annotations

from . import (
    bessel,
    bessel_orders,
    dilogarithm,
    distributions,
    elementary,
    entropies,
    error_functions,
    exponential,
    gamma,
    hypergeometric,
    incomplete_beta,
    incomplete_gamma,
    inverses,
    legendre,
    zeta,
)

__all__ = [
    "bessel",
    "bessel_orders",
    "dilogarithm",
    "distributions",
    "elementary",
    "entropies",
    "error_functions",
    "exponential",
    "gamma",
    "hypergeometric",
    "incomplete_beta",
    "incomplete_gamma",
    "inverses",
    "legendre",
    "zeta",
]

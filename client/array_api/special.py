"""The namespace `special`: what SciPy's dispatch looks for there, and the standard has not yet.

SciPy (with SCIPY_ARRAY_API=1) calls the functions of this name that a namespace has, and its own for NumPy arrays.
"""

from __future__ import annotations

from .elementwise import binary, unary
from .functions import Extension


class Special(Extension):
    """Special functions of real numbers, elementwise, with SciPy's names and values. Integers give float64."""

    entr = unary("entr")
    erf = unary("erf")
    erfc = unary("erfc")
    expit = unary("expit")
    kl_div = binary("kl_div")
    log_ndtr = unary("log_ndtr")
    logit = unary("logit")
    ndtr = unary("ndtr")
    ndtri = unary("ndtri")
    rel_entr = binary("rel_entr")
    xlog1py = binary("xlog1py")
    xlogy = binary("xlogy")

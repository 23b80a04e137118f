"""The namespace `special`: functions that SciPy's dispatch looks for there, and that the standard does not have yet.

With SCIPY_ARRAY_API=1, SciPy calls a namespace's function of the same name if there is one, and its own for NumPy
arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

from ...interpreter.errors import MetadataTypeError
from ...interpreter.schema.opdef import REGISTRY
from ..locations.locations import located
from ..tensor.tensor import Tensor
from .elementwise import Operand, binary, operand, unary
from .functions import Extension, Functions

Ternary: TypeAlias = Callable[[Any, Operand, Operand, Operand], "Tensor"]


def ternary(name: str) -> Ternary:
    """The function for an op of three operands, two of which may be Python scalars."""

    def function(self: Functions, x1: Operand, x2: Operand, x3: Operand, /) -> Tensor:
        return self._call(name, operand(x1, name), operand(x2, name), operand(x3, name))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = REGISTRY[name].summary
    return function


class Special(Extension):
    """Special functions of real numbers, elementwise: SciPy's, or CuPy's on a GPU. Integers give float64.

    They need SciPy where the devices are, in the daemon or here: `pip install "tensord[special]"`.
    """

    # --- error functions, logistic functions, entropies

    entr = unary("entr")
    erf = unary("erf")
    erfc = unary("erfc")
    erfcinv = unary("erfcinv")
    erfcx = unary("erfcx")
    erfinv = unary("erfinv")
    expit = unary("expit")
    kl_div = binary("kl_div")
    log_ndtr = unary("log_ndtr")
    logit = unary("logit")
    ndtr = unary("ndtr")
    ndtri = unary("ndtri")
    rel_entr = binary("rel_entr")
    xlog1py = binary("xlog1py")
    xlogy = binary("xlogy")

    # --- gamma, beta and zeta functions

    beta = binary("beta")
    betainc = ternary("betainc")
    betaincc = ternary("betaincc")
    betaincinv = ternary("betaincinv")
    betaln = binary("betaln")
    binom = binary("binom")
    digamma = unary("psi", "digamma")
    gamma = unary("gamma")
    gammainc = binary("gammainc")
    gammaincc = binary("gammaincc")
    gammainccinv = binary("gammainccinv")
    gammaincinv = binary("gammaincinv")
    gammaln = unary("gammaln")
    gammasgn = unary("gammasgn")
    loggamma = unary("loggamma")
    poch = binary("poch")
    polygamma = binary("polygamma")
    psi = unary("psi")
    rgamma = unary("rgamma")
    zetac = unary("zetac")

    # --- Bessel functions

    i0 = unary("i0")
    i0e = unary("i0e")
    i1 = unary("i1")
    i1e = unary("i1e")
    j0 = unary("j0")
    j1 = unary("j1")
    k0 = unary("k0")
    k0e = unary("k0e")
    k1 = unary("k1")
    k1e = unary("k1e")
    y0 = unary("y0")
    y1 = unary("y1")
    yn = binary("yn")

    # --- exponentials, roots, degrees, losses, elliptic integrals, dilogarithm, Legendre and hypergeometric functions

    boxcox = binary("boxcox")
    boxcox1p = binary("boxcox1p")
    cbrt = unary("cbrt")
    cosdg = unary("cosdg")
    cosm1 = unary("cosm1")
    cotdg = unary("cotdg")
    ellipk = unary("ellipk")
    ellipkm1 = unary("ellipkm1")
    exp1 = unary("exp1")
    exp2 = unary("exp2")
    exp10 = unary("exp10")
    expi = unary("expi")
    expn = binary("expn")
    exprel = unary("exprel")
    huber = binary("huber")
    hyp1f1 = ternary("hyp1f1")
    inv_boxcox = binary("inv_boxcox")
    inv_boxcox1p = binary("inv_boxcox1p")
    lpmv = ternary("lpmv")
    pseudo_huber = binary("pseudo_huber")
    radian = ternary("radian")
    sinc = unary("sinc")
    sindg = unary("sindg")
    spence = unary("spence")
    tandg = unary("tandg")

    # --- distributions

    bdtr = ternary("bdtr")
    bdtrc = ternary("bdtrc")
    bdtri = ternary("bdtri")
    chdtr = binary("chdtr")
    chdtrc = binary("chdtrc")
    chdtri = binary("chdtri")
    fdtr = ternary("fdtr")
    fdtrc = ternary("fdtrc")
    fdtri = ternary("fdtri")
    gdtr = ternary("gdtr")
    gdtrc = ternary("gdtrc")
    nbdtr = ternary("nbdtr")
    nbdtrc = ternary("nbdtrc")
    nbdtri = ternary("nbdtri")
    pdtr = binary("pdtr")
    pdtrc = binary("pdtrc")
    pdtri = binary("pdtri")
    stdtr = binary("stdtr")
    stdtrit = binary("stdtrit")

    # --- functions with more than one form of call

    def multigammaln(self, a: Tensor, d: int, /) -> Tensor:
        """The logarithm of the multivariate gamma function of dimension d, a Python int from 1 on; a > (d - 1) / 2."""
        if type(d) is not int or d < 1:
            raise located(MetadataTypeError(f"multigammaln: the dimension must be an int of at least 1, not {d!r}"))
        total = self.loggamma(a)
        for j in range(1, d):
            total = total + self.loggamma(self._call("subtract", a, j / 2))
        return total + d * (d - 1) / 4 * math.log(math.pi)

    def zeta(self, x: Operand, q: Operand | None = None, /) -> Tensor:
        """The zeta function of Riemann, or with `q` of Hurwitz: the sum of (q + k)**-x, for x > 1 and q > 0."""
        if q is None:
            return self._call("riemann_zeta", x)
        return self._call("hurwitz_zeta", operand(x, "zeta"), operand(q, "zeta"))

"""Defines the special functions as ops: elementwise on real numbers; integers give float64.

All of them are computed in float64, whatever the dtype of the result.
"""

from __future__ import annotations

import numpy as np

from ...schema.opdef import ArrayModule, Arrays, Attributes, OutputMetas, define
from ...schema.promotion import accepts_any, broadcast, check_mixing
from ...schema.scratch import scratch
from ...types.kinds import REAL
from ...types.meta import Meta, Metas
from ..elementwise import TRANSCENDENTAL_COST
from ..rules.stacks import pointwise
from .composed import COMPOSED
from .kernels import LIBRARY, compute

FUNCTIONS = (
    # --- error functions, logistic functions, entropies
    ("erf", 1, "The error function."),
    ("erfc", 1, "1 - erf(x), to full precision in its tail."),
    ("erfcx", 1, "exp(x**2) * erfc(x), to full precision in its tail."),
    ("erfinv", 1, "The inverse of `erf`; NaN outside of [-1, 1]."),
    ("erfcinv", 1, "The inverse of `erfc`; NaN outside of [0, 2]."),
    ("ndtr", 1, "The distribution function of the standard normal distribution."),
    ("log_ndtr", 1, "The logarithm of `ndtr`, to full precision in both tails."),
    ("ndtri", 1, "The inverse of `ndtr`; NaN outside of [0, 1]."),
    ("expit", 1, "1 / (1 + exp(-x)), the logistic function."),
    ("logit", 1, "log(x / (1 - x)), the inverse of `expit`."),
    ("entr", 1, "-x * log(x), 0 for 0, and -inf for negative x."),
    ("rel_entr", 2, "x1 * log(x1 / x2), 0 for x1 = 0, and inf where it is not defined."),
    ("kl_div", 2, "x1 * log(x1 / x2) - x1 + x2, x2 for x1 = 0, and inf where it is not defined."),
    ("xlogy", 2, "x1 * log(x2), 0 for x1 = 0 unless x2 is NaN."),
    ("xlog1py", 2, "x1 * log(1 + x2), 0 for x1 = 0 unless x2 is NaN."),
    # --- gamma, beta and zeta functions
    ("gamma", 1, "The gamma function; NaN at negative integers."),
    ("gammaln", 1, "log(abs(gamma(x))), inf at its poles."),
    ("loggamma", 1, "log(gamma(x)); NaN for negative x."),
    ("rgamma", 1, "1 / gamma(x), 0 at the poles of gamma."),
    ("gammasgn", 1, "The sign of gamma(x); NaN at negative integers."),
    ("psi", 1, "The digamma function, the derivative of gammaln; NaN at negative integers."),
    ("polygamma", 2, "The derivative of psi of order x1, at x2; NaN for x2 below -20,000."),
    ("beta", 2, "gamma(x1) * gamma(x2) / gamma(x1 + x2)."),
    ("betaln", 2, "log(abs(beta(x1, x2)))."),
    ("binom", 2, "The number of ways to choose x2 of x1, also for real numbers."),
    ("poch", 2, "gamma(x1 + x2) / gamma(x1), the rising factorial."),
    ("gammainc", 2, "The regularised lower incomplete gamma function."),
    ("gammaincc", 2, "The regularised upper incomplete gamma function."),
    ("gammaincinv", 2, "The inverse of gammainc: its second operand, where its value is x2."),
    ("gammainccinv", 2, "The inverse of gammaincc: its second operand, where its value is x2."),
    ("betainc", 3, "The regularised incomplete beta function of x1, x2 at x3."),
    ("betaincc", 3, "1 - betainc(x1, x2, x3), to full precision."),
    ("betaincinv", 3, "The inverse of betainc: its third operand, where its value is x3."),
    ("riemann_zeta", 1, "The zeta function of Riemann."),
    ("hurwitz_zeta", 2, "The sum of (x2 + k)**-x1 over k = 0, 1, ...; NaN for x2 below -20,000."),
    ("zetac", 1, "The zeta function of Riemann, less 1."),
    # --- Bessel functions
    ("i0", 1, "The modified Bessel function of the first kind of order 0."),
    ("i0e", 1, "exp(-abs(x)) * i0(x)."),
    ("i1", 1, "The modified Bessel function of the first kind of order 1."),
    ("i1e", 1, "exp(-abs(x)) * i1(x)."),
    ("k0", 1, "The modified Bessel function of the second kind of order 0."),
    ("k0e", 1, "exp(x) * k0(x)."),
    ("k1", 1, "The modified Bessel function of the second kind of order 1."),
    ("k1e", 1, "exp(x) * k1(x)."),
    ("j0", 1, "The Bessel function of the first kind of order 0."),
    ("j1", 1, "The Bessel function of the first kind of order 1."),
    ("y0", 1, "The Bessel function of the second kind of order 0."),
    ("y1", 1, "The Bessel function of the second kind of order 1."),
    ("yn", 2, "The Bessel function of the second kind of whole order x1, at x2; NaN for orders beyond 20,000."),
    # --- exponentials, roots, degrees, losses, and others
    ("exp1", 1, "The exponential integral E1; NaN for negative x."),
    ("expi", 1, "The exponential integral Ei."),
    ("expn", 2, "The exponential integral of order x1, a whole number from 0 on; NaN for negative x2."),
    ("exp2", 1, "2**x."),
    ("exp10", 1, "10**x."),
    ("exprel", 1, "(exp(x) - 1) / x, 1 at 0."),
    ("boxcox", 2, "(x1**x2 - 1) / x2, log(x1) where x2 is 0."),
    ("boxcox1p", 2, "((1 + x1)**x2 - 1) / x2, log(1 + x1) where x2 is 0."),
    ("inv_boxcox", 2, "(x1 * x2 + 1)**(1 / x2), exp(x1) where x2 is 0."),
    ("inv_boxcox1p", 2, "(x1 * x2 + 1)**(1 / x2) - 1, exp(x1) - 1 where x2 is 0."),
    ("cbrt", 1, "The cube root."),
    ("sinc", 1, "sin(pi * x) / (pi * x), 1 at 0."),
    ("cosm1", 1, "cos(x) - 1, to full precision near 0."),
    ("sindg", 1, "The sine of degrees."),
    ("cosdg", 1, "The cosine of degrees."),
    ("tandg", 1, "The tangent of degrees."),
    ("cotdg", 1, "The cotangent of degrees."),
    ("radian", 3, "Degrees, minutes and seconds as radians."),
    ("huber", 2, "The loss x2**2 / 2 up to x1, and linear beyond it."),
    ("pseudo_huber", 2, "The smooth loss x1**2 * (sqrt(1 + (x2 / x1)**2) - 1)."),
    ("ellipk", 1, "The complete elliptic integral of the first kind, of the parameter m = k**2."),
    ("ellipkm1", 1, "ellipk(1 - x), to full precision near 0."),
    ("spence", 1, "The dilogarithm of 1 - x; NaN for negative x."),
    ("hyp1f1", 3, "Kummer's confluent hypergeometric function of x1, x2 at x3."),
    (
        "lpmv",
        3,
        "The associated Legendre function of order x1 and degree x2, at x3; NaN for either beyond 20,000.",
    ),
    # --- distributions
    ("bdtr", 3, "Binomial distribution: the probability of at most x1 successes among x2, each with probability x3."),
    ("bdtrc", 3, "1 - bdtr(x1, x2, x3), to full precision."),
    ("bdtri", 3, "The inverse of bdtr: its third operand, where its value is x3."),
    ("nbdtr", 3, "Negative binomial distribution: at most x1 failures before x2 successes, each with probability x3."),
    ("nbdtrc", 3, "1 - nbdtr(x1, x2, x3), to full precision."),
    ("nbdtri", 3, "The inverse of nbdtr: its third operand, where its value is x3."),
    ("pdtr", 2, "Poisson distribution of mean x2: the probability of at most x1."),
    ("pdtrc", 2, "1 - pdtr(x1, x2), to full precision."),
    ("pdtri", 2, "The inverse of pdtr: its second operand, where its value is x2."),
    ("chdtr", 2, "Chi square distribution with x1 degrees of freedom, at x2."),
    ("chdtrc", 2, "1 - chdtr(x1, x2), to full precision."),
    ("chdtri", 2, "The inverse of chdtrc: its second operand, where its value is x2."),
    ("gdtr", 3, "Gamma distribution of rate x1 and shape x2, at x3."),
    ("gdtrc", 3, "1 - gdtr(x1, x2, x3), to full precision."),
    ("fdtr", 3, "F distribution with x1 and x2 degrees of freedom, at x3."),
    ("fdtrc", 3, "1 - fdtr(x1, x2, x3), to full precision."),
    ("fdtri", 3, "The inverse of fdtr: its third operand, where its value is x3."),
    ("stdtr", 2, "Student's t distribution with x1 degrees of freedom, at x2."),
    ("stdtrit", 2, "The inverse of stdtr: its second operand, where its value is x2."),
)
# The cost of an element relative to an error function (some 10 ns), if it is much higher: measured with SciPy 1.17.
COSTS = {
    **dict.fromkeys(("beta", "betaln", "expi", "poch"), 16),
    **dict.fromkeys(("chdtr", "chdtrc", "exp1", "expn", "gammainc", "gammaincc", "gdtr", "gdtrc", "pdtr", "pdtrc"), 64),
    **dict.fromkeys(("erfcinv", "erfinv"), 64),  # for operands outside of the domain; others are quick
    **dict.fromkeys(("betainc", "betaincc", "fdtr", "fdtrc", "stdtr"), 64),
    **dict.fromkeys(("bdtr", "bdtrc", "bdtri", "nbdtr", "nbdtrc", "nbdtri"), 256),
    **dict.fromkeys(("betaincinv", "chdtri", "fdtri", "gammainccinv", "gammaincinv", "pdtri", "stdtrit"), 256),
    **dict.fromkeys(("hurwitz_zeta", "hyp1f1", "lpmv", "polygamma", "yn"), 512),
}
UNBOUNDED_COST = (
    256  # from this cost on, the time depends on the values of the operands, so a worker thread computes the op
)
# Bytes per element besides the operands in float64: the result and masked operands; the same for a composed function.
TEMPORARY_BYTES, COMPOSED_TEMPORARY_BYTES = 32, 96


def infer_special(metas: Metas, _attributes: Attributes) -> OutputMetas:
    """The dtype of the operands if that is floating-point, else float64."""
    shape = broadcast(metas)
    check_mixing(metas)
    dtype = np.result_type(*(m.dtype for m in metas if isinstance(m, Meta)))
    return (Meta.of(shape, dtype if dtype.kind == "f" else np.dtype(np.float64)),)


def special_work(metas: Metas, outputs: OutputMetas, _attributes: Attributes) -> int:
    """The work of an error function: some exponentials for each element."""
    return 8 * TRANSCENDENTAL_COST * sum(m.size for m in outputs if m is not None) if metas else 0


def define_special(name: str, summary: str, inputs: int = 1, *, cost: int = 1, bounded: bool = True) -> None:
    """Define the op. `cost`: its time relative to an error function; `bounded`: whether that is an upper bound."""

    def work(metas: Metas, outputs: OutputMetas, attributes: Attributes) -> int:
        return cost * special_work(metas, outputs, attributes)

    def kernel(xp: ArrayModule, given: Arrays, outputs: Arrays, _attributes: Attributes) -> None:
        outputs[0][...] = compute(xp, name, [xp.asarray(x, dtype=np.float64) for x in given])

    define(
        name=name,
        inputs=inputs,
        infer=infer_special,
        summary=summary,
        dtypes=(REAL,),
        kernel=kernel,
        elementwise=True,
        pointwise=True,
        scratch=scratch(elements=8 * inputs + (COMPOSED_TEMPORARY_BYTES if name in COMPOSED else TEMPORARY_BYTES)),
        bounded=bounded,
        work=work,
        scalars=accepts_any,
        library=LIBRARY,
        layouts=pointwise,
    )


for _name, _inputs, _summary in FUNCTIONS:
    _cost = COSTS.get(_name, 1)
    define_special(_name, _summary, _inputs, cost=_cost, bounded=_cost < UNBOUNDED_COST)

"""Special cases of the elementwise functions of complex numbers, line by line as the standard lists them.

The notation is that of special.py; the operands are a + bj, and c + dj.
"""

from __future__ import annotations

# --- one operand

# Rules for the whole plane are stated for b >= 0, and for a >= 0 where the function is odd or even.
COMPLEX_UNARY = {
    "acos": """
        ±0       +0       -> ~pi/2 -0
        ±0       nan      -> ~pi/2 nan
        finite   +inf     -> ~pi/2 -inf
        nonzero  nan      -> nan nan
        -inf     positive -> ~pi -inf
        +inf     positive -> +0 -inf
        -inf     +inf     -> ~3pi/4 -inf
        +inf     +inf     -> ~pi/4 -inf
        ±inf     nan      -> nan ±inf
        nan      finite   -> nan nan
        nan      +inf     -> nan -inf
        nan      nan      -> nan nan
    """,
    "acosh": """
        ±0       +0       -> +0 ~pi/2
        finite   +inf     -> +inf ~pi/2
        nonzero  nan      -> nan nan
        +0       nan      -> nan ±pi/2
        -inf     positive -> +inf ~pi
        +inf     positive -> +inf 0
        -inf     +inf     -> +inf ~3pi/4
        +inf     +inf     -> +inf ~pi/4
        ±inf     nan      -> +inf nan
        nan      finite   -> nan nan
        nan      +inf     -> +inf nan
        nan      nan      -> nan nan
    """,
    "asinh": """
        +0       +0       -> +0 0
        positive +inf     -> +inf ~pi/2
        finite   nan      -> nan nan
        +inf     positive -> +inf 0
        +inf     +inf     -> +inf ~pi/4
        nan      +0       -> nan 0
        nan      nonzero  -> nan nan
        nan      +inf     -> ±inf nan
        nan      nan      -> nan nan
    """,
    "atanh": """
        +0       +0       -> +0 0
        +0       nan      -> +0 nan
        1        +0       -> +inf 0
        positive +inf     -> +0 ~pi/2
        nonzero  nan      -> nan nan
        +inf     positive -> +0 ~pi/2
        +inf     +inf     -> +0 ~pi/2
        +inf     nan      -> +0 nan
        nan      finite   -> nan nan
        nan      +inf     -> ±0 ~pi/2
        nan      nan      -> nan nan
    """,
    "cosh": """
        +0       +0       -> 1 0
        +0       +inf     -> nan ±0
        +0       nan      -> nan ±0
        nonzero  +inf     -> nan nan
        nonzero  nan      -> nan nan
        +inf     +0       -> +inf 0
        +inf     nonzero  -> inf*cos(b) inf*sin(b)
        +inf     +inf     -> ±inf nan
        +inf     nan      -> +inf nan
        nan      ±0       -> nan ±0
        nan      nonzero  -> nan nan
        nan      nan      -> nan nan
    """,
    "exp": """
        ±0       +0       -> 1 0
        finite   +inf     -> nan nan
        finite   nan      -> nan nan
        +inf     +0       -> +inf 0
        -inf     finite   -> 0*cos(b) 0*sin(b)
        +inf     nonzero  -> inf*cos(b) inf*sin(b)
        -inf     +inf     -> ±0 ±0
        +inf     +inf     -> ±inf nan
        -inf     nan      -> ±0 ±0
        +inf     nan      -> ±inf nan
        nan      +0       -> nan 0
        nan      nonzero  -> nan nan
        nan      ±inf     -> nan nan
        nan      nan      -> nan nan
    """,
    "expm1": """
        ±0       +0       -> 0 0
        finite   +inf     -> nan nan
        finite   nan      -> nan nan
        +inf     +0       -> +inf 0
        -inf     finite   -> -1 0*sin(b)
        +inf     nonzero  -> inf*cos(b) inf*sin(b)
        -inf     +inf     -> -1 ±0
        +inf     +inf     -> ±inf nan
        -inf     nan      -> -1 ±0
        +inf     nan      -> ±inf nan
        nan      +0       -> nan 0
        nan      nonzero  -> nan nan
        nan      ±inf     -> nan nan
        nan      nan      -> nan nan
    """,
    "log": """
        -0       +0       -> -inf ~pi
        +0       +0       -> -inf 0
        finite   +inf     -> +inf ~pi/2
        finite   nan      -> nan nan
        -inf     positive -> +inf ~pi
        +inf     positive -> +inf 0
        -inf     +inf     -> +inf ~3pi/4
        +inf     +inf     -> +inf ~pi/4
        ±inf     nan      -> +inf nan
        nan      finite   -> nan nan
        nan      +inf     -> +inf nan
        nan      nan      -> nan nan
    """,
    "log1p": """
        -1       +0       -> -inf 0
        finite   +inf     -> +inf ~pi/2
        finite   nan      -> nan nan
        -inf     positive -> +inf ~pi
        +inf     positive -> +inf 0
        -inf     +inf     -> +inf ~3pi/4
        +inf     +inf     -> +inf ~pi/4
        ±inf     nan      -> +inf nan
        nan      finite   -> nan nan
        nan      +inf     -> +inf nan
        nan      nan      -> nan nan
    """,
    "sinh": """
        +0       +0       -> +0 0
        +0       +inf     -> ±0 nan
        +0       nan      -> ±0 nan
        positive +inf     -> nan nan
        positive nan      -> nan nan
        +inf     +0       -> +inf 0
        +inf     positive -> inf*cos(b) inf*sin(b)
        +inf     +inf     -> ±inf nan
        +inf     nan      -> ±inf nan
        nan      +0       -> nan 0
        nan      nonzero  -> nan nan
        nan      nan      -> nan nan
    """,
    # The standard's text has two slips: it says (nan nan) of (-inf positive), and (+0 +inf) of (+inf positive), which
    # is what belongs to the former. And of its two rules for (nan +inf), C99 has the one about +inf. C99 it is.
    "sqrt": """
        ±0       +0       -> +0 0
        any      +inf     -> +inf +inf
        finite   nan      -> nan nan
        -inf     positive -> +0 +inf
        +inf     positive -> +inf 0
        -inf     nan      -> nan ±inf
        +inf     nan      -> +inf nan
        nan      finite   -> nan nan
        nan      nan      -> nan nan
    """,
    "tanh": """
        +0       +0       -> +0 0
        nonzero  +inf     -> nan nan
        +0       +inf     -> +0 nan
        nonzero  nan      -> nan nan
        +0       nan      -> +0 nan
        +inf     positive -> 1 +0
        +inf     +inf     -> 1 ±0
        +inf     nan      -> 1 ±0
        nan      +0       -> nan 0
        nan      nonzero  -> nan nan
        nan      ±inf     -> nan nan
        nan      nan      -> nan nan
    """,
}
PARITY = {"asinh": "odd", "atanh": "odd", "cosh": "even", "sinh": "odd", "tanh": "odd"}
# Function -> the function that it becomes after a quarter turn: as f(x*1j), or as -1j * f(x*1j).
TURNED = {
    "asin": ("asinh", True),
    "atan": ("atanh", True),
    "cos": ("cosh", False),
    "sin": ("sinh", True),
    "tan": ("tanh", True),
}
# log(x) divided by the real number log(2) or log(10).
LOGARITHMS = {"log2": 2.0, "log10": 10.0}

# Above a cut, where the imaginary part is +0 (or the real part, of a cut along the imaginary axis); below it are the
# conjugates. As in C99, to which the standard refers.
BRANCH_CUTS = {
    "acos": """
        2  +0 -> +0 -
        -2 +0 -> ~pi -
    """,
    "acosh": """
        0.5 +0 -> +0 +
        -2  +0 -> + ~pi
    """,
    "asin": """
        2  +0 -> ~pi/2 +
        -2 +0 -> ~-pi/2 +
    """,
    "asinh": """
        +0 2 -> + ~pi/2
        -0 2 -> - ~pi/2
    """,
    "atan": """
        +0 2 -> ~pi/2 +
        -0 2 -> ~-pi/2 +
    """,
    "atanh": """
        2  +0 -> + ~pi/2
        -2 +0 -> - ~pi/2
    """,
    "log": """
        -1 +0 -> +0 ~pi
        -3 +0 -> + ~pi
    """,
    "log10": """
        -3 +0 -> + +
    """,
    "log1p": """
        -3 +0 -> + ~pi
    """,
    "log2": """
        -3 +0 -> + +
    """,
    "sqrt": """
        -4 +0 -> +0 2
    """,
}

COMPLEX_PREDICATES = {
    "isfinite": """
        nan    any    -> false
        any    nan    -> false
        ±inf   any    -> false
        any    ±inf   -> false
        finite finite -> true
    """,
    "isinf": """
        ±inf   any    -> true
        finite ±inf   -> true
        nan    ±inf   -> true
        finite finite -> false
        finite nan    -> false
        nan    finite -> false
        nan    nan    -> false
    """,
    "isnan": """
        nan    any    -> true
        any    nan    -> true
        notnan notnan -> false
    """,
}
# The magnitude of a complex number.
COMPLEX_ABS = """
    ±inf   any    -> +inf
    any    ±inf   -> +inf
    ±0     notnan -> |b|
    notnan ±0     -> |a|
    nan    finite -> nan
    finite nan    -> nan
    nan    nan    -> nan
"""
# x / |x| but for zeros and NaN. The quotient of an infinity is implementation-dependent.
COMPLEX_SIGN = """
    ±0       ±0       -> 0 0
    nan      any      -> nan nan
    any      nan      -> nan nan
    positive ±0       -> 1 ±0
    negative ±0       -> -1 ±0
    ±0       positive -> ±0 1
    ±0       negative -> ±0 -1
"""

# --- two operands

COMPLEX_BINARY = {
    # The textbook's formula for finite numbers, but for the signs of zeros, on which algorithms for division differ.
    # Infinities, zero divisors and NaN are implementation-dependent, unless all parts are NaN.
    "divide": """
        nan nan nan nan -> nan nan
        1   2   2   ±0  -> 0.5 1
        1   2   -2  ±0  -> -0.5 -1
        1   2   ±0  2   -> 1 -0.5
        3   ±0  2   ±0  -> 1.5 ±0
        ±0  ±0  2   3   -> ±0 ±0
        -5  10  3   4   -> 1 2
    """,
    "equal": """
        nan    any    1      2      -> false
        1      nan    1      any    -> false
        any    -2     nan    -2     -> false
        +inf   any    +inf   nan    -> false
        nan    nan    nan    nan    -> false
        ±0     +inf   ±0     +inf   -> true
        -inf   ±0     -inf   ±0     -> true
        notnan +inf   notnan +inf   -> (a==c)*(b==d)
        2      notnan 2      notnan -> (a==c)*(b==d)
        -1     notnan +0     notnan -> (a==c)*(b==d)
    """,
    # The textbook's formula, with the signs of zeros. Infinities and NaN as for division.
    "multiply": """
        nan nan nan nan -> nan nan
        ±0  ±0  ±0  ±0  -> a*c-b*d b*c+a*d
        1   ±0  ±0  2   -> a*c-b*d b*c+a*d
        -3  2   ±0  ±0  -> a*c-b*d b*c+a*d
        ±0  ±0  0.5 -2  -> a*c-b*d b*c+a*d
        3   -2  -1  0.5 -> a*c-b*d b*c+a*d
    """,
    "not_equal": """
        nan    any    1      2      -> true
        1      nan    1      any    -> true
        any    -2     nan    -2     -> true
        +inf   any    +inf   nan    -> true
        nan    nan    nan    nan    -> true
        ±0     +inf   ±0     +inf   -> false
        -inf   ±0     -inf   ±0     -> false
        notnan +inf   notnan +inf   -> 1-(a==c)*(b==d)
        2      notnan 2      notnan -> 1-(a==c)*(b==d)
        -1     notnan +0     notnan -> 1-(a==c)*(b==d)
    """,
    # exp(x2 * log(x1)), or a more careful way, as the standard allows: the power zero of any number is 1, and the
    # power one is the number itself.
    "pow": """
        any      any      ±0       ±0 -> 1 ±0
        nonzero  nonzero  1        +0 -> a b
        ±inf     notnan   1        +0 -> a b
        ±0       ±0       positive ±0 -> ±0 ±0
        ±0       ±0       negative ±0 -> ±inf nan
        ±inf     finite   negative ±0 -> ±0 ±0
        finite   ±inf     negative ±0 -> ±0 ±0
        positive nan      nonzero  nan -> nan nan
        nan      nan      2        1  -> nan nan
        nan      nan      nan      nan -> nan nan
        # From above and below the branch cut of the logarithm.
        -4       +0       0.5      +0 -> any ~2
        -4       -0       0.5      +0 -> any ~-2
    """,
}

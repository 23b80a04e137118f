"""Special cases of the elementwise functions of one real number, line by line as the standard lists them.

The notation is that of special.py.
"""

from __future__ import annotations

REAL_UNARY = {
    "abs": """
        nan  -> nan
        -0   -> +0
        -inf -> +inf
    """,
    "acos": """
        nan -> nan
        >1  -> nan
        <-1 -> nan
        1   -> +0
    """,
    "acosh": """
        nan  -> nan
        <1   -> nan
        1    -> +0
        +inf -> +inf
    """,
    "asin": """
        nan -> nan
        >1  -> nan
        <-1 -> nan
        +0  -> +0
        -0  -> -0
    """,
    "asinh": """
        nan  -> nan
        +0   -> +0
        -0   -> -0
        +inf -> +inf
        -inf -> -inf
    """,
    "atan": """
        nan  -> nan
        +0   -> +0
        -0   -> -0
        +inf -> ~pi/2
        -inf -> ~-pi/2
    """,
    "atanh": """
        nan -> nan
        <-1 -> nan
        >1  -> nan
        -1  -> -inf
        +1  -> +inf
        +0  -> +0
        -0  -> -0
    """,
    "ceil": """
        whole -> x1
        +inf  -> +inf
        -inf  -> -inf
        +0    -> +0
        -0    -> -0
        nan   -> nan
    """,
    "cos": """
        nan  -> nan
        +0   -> 1
        -0   -> 1
        +inf -> nan
        -inf -> nan
    """,
    "cosh": """
        nan  -> nan
        +0   -> 1
        -0   -> 1
        +inf -> +inf
        -inf -> +inf
    """,
    "exp": """
        nan  -> nan
        +0   -> 1
        -0   -> 1
        +inf -> +inf
        -inf -> +0
    """,
    "expm1": """
        nan  -> nan
        +0   -> +0
        -0   -> -0
        +inf -> +inf
        -inf -> -1
    """,
    "floor": """
        whole -> x1
        +inf  -> +inf
        -inf  -> -inf
        +0    -> +0
        -0    -> -0
        nan   -> nan
    """,
    "isfinite": """
        ±inf   -> false
        nan    -> false
        finite -> true
    """,
    "isinf": """
        ±inf   -> true
        nan    -> false
        finite -> false
    """,
    "isnan": """
        nan    -> true
        ±inf   -> false
        finite -> false
    """,
    "log": """
        nan  -> nan
        <0   -> nan
        ±0   -> -inf
        1    -> +0
        +inf -> +inf
    """,
    "log1p": """
        nan  -> nan
        <-1  -> nan
        -1   -> -inf
        -0   -> -0
        +0   -> +0
        +inf -> +inf
    """,
    "log2": """
        nan  -> nan
        <0   -> nan
        ±0   -> -inf
        1    -> +0
        +inf -> +inf
    """,
    "log10": """
        nan  -> nan
        <0   -> nan
        ±0   -> -inf
        1    -> +0
        +inf -> +inf
    """,
    # 1.0 / x.
    "reciprocal": """
        nan  -> nan
        +0   -> +inf
        -0   -> -inf
        +inf -> +0
        -inf -> -0
        >0   -> +
        <0   -> -
    """,
    "round": """
        whole -> x1
        +inf  -> +inf
        -inf  -> -inf
        +0    -> +0
        -0    -> -0
        nan   -> nan
        # Of two integers that are equally close, the even one.
        0.5   -> +0
        -0.5  -> -0
        1.5   -> 2
        -1.5  -> -2
        2.5   -> 2
        -2.5  -> -2
        3.5   -> 4
    """,
    "sign": """
        <0  -> -1
        ±0  -> 0
        >0  -> +1
        nan -> nan
    """,
    "signbit": """
        +0       -> false
        -0       -> true
        +inf     -> false
        -inf     -> true
        positive -> false
        negative -> true
        +nan     -> false
        -nan     -> true
    """,
    "sin": """
        nan  -> nan
        +0   -> +0
        -0   -> -0
        ±inf -> nan
    """,
    "sinh": """
        nan  -> nan
        +0   -> +0
        -0   -> -0
        +inf -> +inf
        -inf -> -inf
    """,
    "sqrt": """
        nan  -> nan
        <0   -> nan
        +0   -> +0
        -0   -> -0
        +inf -> +inf
        2    -> math.sqrt(x1)  # rounded as IEEE 754 has it
        3    -> math.sqrt(x1)
    """,
    # x * x.
    "square": """
        nan  -> nan
        ±0   -> +0
        ±inf -> +inf
        <0   -> +
        >0   -> +
    """,
    "tan": """
        nan  -> nan
        +0   -> +0
        -0   -> -0
        ±inf -> nan
    """,
    "tanh": """
        nan  -> nan
        +0   -> +0
        -0   -> -0
        +inf -> +1
        -inf -> -1
    """,
    "trunc": """
        whole -> x1
        +inf  -> +inf
        -inf  -> -inf
        +0    -> +0
        -0    -> -0
        nan   -> nan
    """,
}

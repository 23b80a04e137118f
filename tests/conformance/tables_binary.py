"""Special cases of the elementwise functions of two real numbers and more, line by line as the standard lists them.

The notation is that of special.py.
"""

from __future__ import annotations

REAL_BINARY = {
    "add": """
        nan      any      -> nan
        any      nan      -> nan
        +inf     -inf     -> nan
        -inf     +inf     -> nan
        +inf     +inf     -> +inf
        -inf     -inf     -> -inf
        +inf     finite   -> +inf
        -inf     finite   -> -inf
        finite   +inf     -> +inf
        finite   -inf     -> -inf
        -0       -0       -> -0
        -0       +0       -> +0
        +0       -0       -> +0
        +0       +0       -> +0
        ±0       nonzero  -> x2
        nonzero  ±0       -> x1
        0.5      -0.5     -> +0
        -1.5     1.5      -> +0
        1.5      2        -> 3.5
    """,
    "atan2": """
        nan      any      -> nan
        any      nan      -> nan
        >0       +0       -> ~pi/2
        >0       -0       -> ~pi/2
        +0       >0       -> +0
        +0       +0       -> +0
        +0       -0       -> ~pi
        +0       <0       -> ~pi
        -0       >0       -> -0
        -0       +0       -> -0
        -0       -0       -> ~-pi
        -0       <0       -> ~-pi
        <0       +0       -> ~-pi/2
        <0       -0       -> ~-pi/2
        positive +inf     -> +0
        positive -inf     -> ~pi
        negative +inf     -> -0
        negative -inf     -> ~-pi
        +inf     finite   -> ~pi/2
        -inf     finite   -> ~-pi/2
        +inf     +inf     -> ~pi/4
        +inf     -inf     -> ~3pi/4
        -inf     +inf     -> ~-pi/4
        -inf     -inf     -> ~-3pi/4
    """,
    "copysign": """
        notnan   <0       -> -|x1|
        notnan   -0       -> -|x1|
        notnan   +0       -> |x1|
        notnan   >0       -> |x1|
        notnan   -nan     -> -|x1|
        notnan   +nan     -> |x1|
        +nan     <0       -> -nan
        -nan     <0       -> -nan
        +nan     -0       -> -nan
        -nan     -0       -> -nan
        +nan     +0       -> +nan
        -nan     +0       -> +nan
        +nan     >0       -> +nan
        -nan     >0       -> +nan
        +nan     -nan     -> -nan
        -nan     -nan     -> -nan
        +nan     +nan     -> +nan
        -nan     +nan     -> +nan
    """,
    "divide": """
        nan      any      -> nan
        any      nan      -> nan
        ±inf     ±inf     -> nan
        ±0       ±0       -> nan
        +0       >0       -> +0
        -0       >0       -> -0
        +0       <0       -> -0
        -0       <0       -> +0
        >0       +0       -> +inf
        >0       -0       -> -inf
        <0       +0       -> -inf
        <0       -0       -> +inf
        +inf     positive -> +inf
        +inf     negative -> -inf
        -inf     positive -> -inf
        -inf     negative -> +inf
        positive +inf     -> +0
        positive -inf     -> -0
        negative +inf     -> -0
        negative -inf     -> +0
        positive positive -> +
        negative negative -> +
        positive negative -> -
        negative positive -> -
        3        2        -> 1.5
    """,
    "equal": """
        nan      any      -> false
        any      nan      -> false
        +inf     +inf     -> true
        -inf     -inf     -> true
        -0       ±0       -> true
        +0       ±0       -> true
        finite   finite   -> x1==x2
        ±inf     finite   -> false
        finite   ±inf     -> false
        +inf     -inf     -> false
        -inf     +inf     -> false
    """,
    # Where the standard leaves a choice between floor(x1 / x2) and Python's result, it prefers the former; so do we.
    "floor_divide": """
        nan      any      -> nan
        any      nan      -> nan
        ±inf     ±inf     -> nan
        ±0       ±0       -> nan
        +0       >0       -> +0
        -0       >0       -> -0
        +0       <0       -> -0
        -0       <0       -> +0
        >0       +0       -> +inf
        >0       -0       -> -inf
        <0       +0       -> -inf
        <0       -0       -> +inf
        +inf     positive -> +inf
        +inf     negative -> -inf
        -inf     positive -> -inf
        -inf     negative -> +inf
        positive +inf     -> +0
        positive -inf     -> -0
        negative +inf     -> -0
        negative -inf     -> +0
        positive positive -> +
        negative negative -> +
        positive negative -> -
        negative positive -> -
        3        2        -> 1
        -3       2        -> -2
        3        -2       -> -2
        -3       -2       -> 1
    """,
    "hypot": """
        ±inf     any      -> +inf
        any      ±inf     -> +inf
        ±0       notnan   -> |x2|
        notnan   ±0       -> |x1|
        finite   nan      -> nan
        nan      finite   -> nan
        nan      nan      -> nan
        3        -4       -> 5
        1e30     1e30     -> math.hypot(x1,x2)  # whose squares have no room in float32
        1e-30    0        -> x1
    """,
    "logaddexp": """
        nan      any      -> nan
        any      nan      -> nan
        +inf     notnan   -> +inf
        notnan   +inf     -> +inf
        # What log(0 + exp(x)) is; the standard does not say.
        -inf     nonzero  -> x2
        nonzero  -inf     -> x1
        -inf     -inf     -> -inf
    """,
    "maximum": """
        nan      any      -> nan
        any      nan      -> nan
        -inf     notnan   -> x2
        +inf     notnan   -> +inf
    """,
    "minimum": """
        nan      any      -> nan
        any      nan      -> nan
        -inf     notnan   -> -inf
        +inf     notnan   -> x2
    """,
    "multiply": """
        nan      any      -> nan
        any      nan      -> nan
        ±inf     ±0       -> nan
        ±0       ±inf     -> nan
        positive positive -> +
        negative negative -> +
        positive negative -> -
        negative positive -> -
        +0       positive -> +0
        +0       negative -> -0
        -0       positive -> -0
        -0       negative -> +0
        positive +0       -> +0
        negative +0       -> -0
        positive -0       -> -0
        negative -0       -> +0
        +0       +0       -> +0
        -0       +0       -> -0
        +0       -0       -> -0
        -0       -0       -> +0
        +inf     +inf     -> +inf
        -inf     +inf     -> -inf
        +inf     -inf     -> -inf
        -inf     -inf     -> +inf
        +inf     positive -> +inf
        +inf     negative -> -inf
        -inf     positive -> -inf
        -inf     negative -> +inf
        positive +inf     -> +inf
        negative +inf     -> -inf
        positive -inf     -> -inf
        negative -inf     -> +inf
        1.5      3        -> 4.5
    """,
    "nextafter": """
        nan      any      -> nan
        any      nan      -> nan
        -0       +0       -> +0
        +0       -0       -> -0
        # The next there is, which of zero is the least of its sign.
        +0       >0       -> +
        +0       <0       -> -
        0.5      0.5      -> 0.5
        +inf     +inf     -> +inf
        -inf     -inf     -> -inf
    """,
    "not_equal": """
        nan      any      -> true
        any      nan      -> true
        +inf     -inf     -> true
        -inf     +inf     -> true
        finite   finite   -> x1!=x2
        +inf     +inf     -> false
        -inf     -inf     -> false
        -0       ±0       -> false
        +0       ±0       -> false
    """,
    "pow": """
        !=1      nan      -> nan
        any      +0       -> 1
        any      -0       -> 1
        nan      <0       -> nan
        nan      >0       -> nan
        nan      nan      -> nan
        |>1|     +inf     -> +inf
        |>1|     -inf     -> +0
        1        ±inf     -> 1
        -1       ±inf     -> 1
        1        notnan   -> 1
        |<1|     +inf     -> +0
        |<1|     -inf     -> +inf
        +inf     >0       -> +inf
        +inf     <0       -> +0
        -inf     odd>0    -> -inf
        -inf     other>0  -> +inf
        -inf     odd<0    -> -0
        -inf     other<0  -> +0
        +0       >0       -> +0
        +0       <0       -> +inf
        -0       odd>0    -> -0
        -0       other>0  -> +0
        -0       odd<0    -> -inf
        -0       other<0  -> +inf
        negative 1.5      -> nan
        negative -0.5     -> nan
        -2       3        -> -8
    """,
    "remainder": """
        nan      any      -> nan
        any      nan      -> nan
        ±inf     ±inf     -> nan
        ±0       ±0       -> nan
        +0       >0       -> +0
        -0       >0       -> +0
        +0       <0       -> -0
        -0       <0       -> -0
        >0       +0       -> nan
        >0       -0       -> nan
        <0       +0       -> nan
        <0       -0       -> nan
        +inf     positive -> nan
        +inf     negative -> nan
        -inf     positive -> nan
        -inf     negative -> nan
        positive +inf     -> x1
        positive -inf     -> x2
        negative +inf     -> x2
        negative -inf     -> x1
        nonzero  nonzero  -> x1%x2
        # The sign is that of x2, of zeros, too.
        finite   positive -> +
        finite   negative -> -
    """,
}

# Whole rules of three operands: x, min, max.
CLIP = """
    nan    -1  1    -> nan
    any    nan 1    -> nan
    any    -1  nan  -> nan
    nan    nan nan  -> nan
    +inf   -1  1    -> 1
    -inf   -1  1    -> -1
    +inf   -1  +inf -> +inf
    -inf   -inf 1   -> -inf
"""

# Division by zero and negative powers are implementation-dependent.
INTEGER_BINARY = {
    # The sign is that of x2, as in Python.
    "remainder": """
        0  3  -> 0
        7  3  -> 1
        -7 3  -> 2
        7  -3 -> -2
        -7 -3 -> -1
        6  3  -> 0
        -6 3  -> 0
    """,
    "floor_divide": """
        0  3  -> 0
        7  3  -> 2
        -7 3  -> -3
        7  -3 -> -3
        -7 -3 -> 2
        -6 3  -> -2
    """,
    "pow": """
        0  0  -> 1
        5  0  -> 1
        0  3  -> 0
        2  5  -> 32
        -2 5  -> -32
    """,
    # It keeps the sign, as a division by a power of two that rounds down.
    "bitwise_right_shift": """
        7  1  -> 3
        -7 1  -> -4
        -1 5  -> -1
        5  0  -> 5
    """,
}

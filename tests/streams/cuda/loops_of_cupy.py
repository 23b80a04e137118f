"""Some loops of CuPy's ufuncs, dtypes and device code, so that kernels can be generated without CuPy.

`make cupy` compares them with CuPy's own.
"""

from __future__ import annotations

INTEGERS = "bBhHiIqQ"
FLOATS = "fd"
Loops = list[tuple[str, str, str]]


def alike(code: str, dtypes: str, count: int, given: str = "") -> Loops:
    """The same code for operands of one dtype each."""
    return [(dtype * count, given or dtype, code) for dtype in dtypes]


NO_NAN = "out0 = (isnan(in0) | isnan(in1)) ? out0_type(NAN) : out0_type({}(in0, in1))"
TRUE_DIVIDE = "out0 = static_cast<out0_type>(in0) / static_cast<out0_type>(in1)"
LOOPS: dict[str, Loops] = {
    "add": [("??", "?", "out0 = in0 | in1"), *alike("out0 = in0 + in1", INTEGERS + FLOATS, 2)],
    "subtract": alike("out0 = in0 - in1", INTEGERS + FLOATS, 2),
    "multiply": [("??", "?", "out0 = in0 & in1"), *alike("out0 = in0 * in1", INTEGERS + FLOATS, 2)],
    "divide": [*alike(TRUE_DIVIDE, "qQ", 2, "d"), *alike(TRUE_DIVIDE, FLOATS, 2)],
    "negative": alike("out0 = -in0", INTEGERS + FLOATS, 1),
    "square": alike("out0 = in0 * in0", INTEGERS + FLOATS, 1),
    "sqrt": alike("out0 = sqrt(in0)", FLOATS, 1),
    "exp": alike("out0 = exp(in0)", FLOATS, 1),
    "tanh": alike("out0 = tanh(in0)", FLOATS, 1),
    "log": alike("out0 = log(in0)", FLOATS, 1),
    "reciprocal": alike("out0 = 1 / in0", FLOATS, 1),
    "maximum": [
        *alike("out0 = max(in0, in1)", "?" + INTEGERS, 2),
        *alike(NO_NAN.format("max"), FLOATS, 2),
    ],
    "minimum": [
        *alike("out0 = min(in0, in1)", "?" + INTEGERS, 2),
        *alike(NO_NAN.format("min"), FLOATS, 2),
    ],
    "bitwise_and": alike("out0 = in0 & in1", "?" + INTEGERS, 2),
    "invert": [("?", "?", "out0 = !in0"), *alike("out0 = ~in0", INTEGERS, 1)],
    "less": alike("out0 = in0 < in1", "?qQ" + FLOATS, 2, "?"),
    "greater": alike("out0 = in0 > in1", "?qQ" + FLOATS, 2, "?"),
    "equal": alike("out0 = in0 == in1", "?qQ" + FLOATS, 2, "?"),
    "not_equal": alike("out0 = in0 != in1", "?qQ" + FLOATS, 2, "?"),
    "isnan": alike("out0 = isnan(in0)", FLOATS, 1, "?"),
}

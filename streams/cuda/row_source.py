"""The sources of kernels that compute rows: softmax, its logarithm, their gradients, layer norm and RMS norm.

CuPy computes these by four to nine launches. Here a block of threads computes a row: each of its n threads takes every
n-th element, and their results are combined in halves. So the order of a sum depends only on the length of a row: a
thread adds its elements one after the other, then thread t adds the sum of thread t + n/2, then of t + n/4, and so on.
The formulas are those of the kernels in `interpreter.ops.nn`. `loss_source` has the cross entropy.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from .loops import HEADERS, NAMES

MAX_THREADS: Final = 256
LOWEST: Final = {"float32": "-3.402823466e+38f", "float64": "-1.7976931348623157e+308"}

COMMON: Final = """// The larger one; NaN, if one of both is that.
template <typename T> static __device__ inline T larger(T one, T other) {
    return isnan(one) ? one : isnan(other) ? other : one < other ? other : one;
}
template <typename T> static __device__ inline T plus(T one, T other) { return one + other; }
// The results of all threads of the block, combined in halves.
template <typename T> static __device__ inline T combined(T own, T* partials, T (*both)(T, T)) {
    partials[threadIdx.x] = own;
    __syncthreads();
    for (unsigned int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) partials[threadIdx.x] = both(partials[threadIdx.x], partials[threadIdx.x + half]);
        __syncthreads();
    }
    const T result = partials[0];
    __syncthreads();
    return result;
}
"""
EACH: Final = "for (long long i = threadIdx.x; i < width; i += blockDim.x)"

SHIFTED: Final = """T most = lowest;
        EACH most = larger(most, x[i]);
        most = combined(most, partials, larger<T>);
        T sum = 0;
        EACH sum += exp(x[i] - most);
        sum = larger(combined(sum, partials, plus<T>), (T)1);"""
_NORM: Final = """T square = 0;
        EACH square += (x[i] - mean) * (x[i] - mean);
        const T scale = 1 / sqrt(combined(square, partials, plus<T>) / width + eps);
        EACH r[i] = (x[i] - mean) * scale"""


class RowOp(NamedTuple):
    """The computation of a row by an op: its operands with a row for each, its operands that are one row, and the
    statements."""

    rows: tuple[str, ...]
    weights: tuple[str, ...]
    body: str


ROW_OPS: Final = {
    "softmax": RowOp(("x",), (), f"{SHIFTED}\n        EACH r[i] = exp(x[i] - most) / sum;"),
    "log_softmax": RowOp(("x",), (), f"{SHIFTED}\n        sum = log(sum);\n        EACH r[i] = (x[i] - most) - sum;"),
    "softmax_grad": RowOp(
        ("dy", "y"),
        (),
        """T sum = 0;
        EACH sum += dy[i] * y[i];
        sum = combined(sum, partials, plus<T>);
        EACH r[i] = (dy[i] - sum) * y[i];""",
    ),
    "log_softmax_grad": RowOp(
        ("dy", "y"),
        (),
        """T sum = 0;
        EACH sum += dy[i];
        sum = combined(sum, partials, plus<T>);
        EACH r[i] = dy[i] - exp(y[i]) * sum;""",
    ),
    "layer_norm": RowOp(
        ("x",),
        ("weight", "bias"),
        f"""T mean = 0;
        EACH mean += x[i];
        mean = combined(mean, partials, plus<T>) / width;
        {_NORM}""",
    ),
    "rms_norm": RowOp(("x",), ("weight",), f"const T mean = 0;\n        {_NORM}"),
}
NORMS: Final = frozenset(("layer_norm", "rms_norm"))


def row_source(op: str, count: int, dtype: str) -> str:
    """The source of an op with `count` operands of that dtype."""
    rows, weights, body = ROW_OPS[op]
    weights = weights[: count - len(rows)]
    of_type = NAMES[dtype]
    given = [f"const {of_type}* {name}" for name in (*(f"all_{name}" for name in rows), *weights)]
    parameters = ", ".join(
        [*given, f"{of_type}* all_r", f"const {of_type} eps", "const long long rows", "const long long width"]
    )
    pointers = [f"const T* {name} = all_{name} + row * width;" for name in rows]
    if op in NORMS:
        ends = {0: ";", 1: " * weight[i];", 2: " * weight[i] + bias[i];"}
        body += ends[len(weights)]
    lines = "\n        ".join([*pointers, "T* r = all_r + row * width;", body.replace("EACH", EACH)])
    return f"""{HEADERS}typedef {of_type} T;
{COMMON}extern "C" __global__ void rows({parameters}) {{
    __shared__ T partials[{MAX_THREADS}];
    const T lowest = {LOWEST[dtype]};
    for (long long row = blockIdx.x; row < rows; row += gridDim.x) {{
        {lines}
    }}
}}
"""

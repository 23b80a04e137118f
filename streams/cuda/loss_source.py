"""The sources of the kernels of the cross entropy and its gradient.

CuPy needs some twelve launches for each. Rows are computed, and summed, as `row_source` says. The mean of the
losses is summed likewise: each thread of one block adds every n-th loss, and the sums are combined in halves. If rows
are short and few, one block does everything in one launch, with a thread for each row. A label out of range makes its
row NaN, and so the mean (`interpreter.ops.nn.labels`).
"""

from __future__ import annotations

from typing import Final

from .loops import HEADERS, NAMES
from .row_source import COMMON, EACH, LOWEST, MAX_THREADS, SHIFTED

NOTHING: Final = {"float32": 'nanf("")', "float64": 'nan("")'}
ALL_ROWS: Final = "for (long long row = blockIdx.x; row < rows; row += gridDim.x)"

GRADIENT: Final = """extern "C" __global__ void gradient(const REAL* logits, const INTEGER* labels, REAL* out, const REAL factor, const long long rows, const long long width) {
    __shared__ T partials[THREADS];
    const T lowest = LOWEST;
    ALL_ROWS {
        const T* x = logits + row * width;
        T* r = out + row * width;
        const long long label = (long long)labels[row];
        const bool wrong = label < 0 || label >= width;
        SHIFTED
        EACH r[i] = wrong ? NOTHING : (exp(x[i] - most) / sum - (i == label ? (T)1 : (T)0)) * factor;
    }
}
"""  # noqa: E501 - a parameter list on one line, as tests read it
LOSSES: Final = """extern "C" __global__ void losses(const REAL* logits, const INTEGER* labels, REAL* each, const long long rows, const long long width) {
    __shared__ T partials[THREADS];
    const T lowest = LOWEST;
    ALL_ROWS {
        const T* x = logits + row * width;
        const long long label = (long long)labels[row];
        const bool wrong = label < 0 || label >= width;
        SHIFTED
        if (threadIdx.x == 0) each[row] = wrong ? NOTHING : log(sum) - (x[label] - most);
    }
}
extern "C" __global__ void mean(const REAL* each, REAL* out, const long long width, const long long count) {
    __shared__ T partials[THREADS];
    T sum = 0;
    EACH sum += each[i];
    sum = combined(sum, partials, plus<T>);
    if (threadIdx.x == 0) out[0] = sum / (T)count;
}
"""  # noqa: E501 - as above
SMALL_LOSS: Final = """extern "C" __global__ void loss(const REAL* logits, const INTEGER* labels, REAL* out, const long long rows, const long long width, const long long count) {
    __shared__ T partials[THREADS];
    const T lowest = LOWEST;
    T losses = 0;
    for (long long row = threadIdx.x; row < rows; row += blockDim.x) {
        const T* x = logits + row * width;
        const long long label = (long long)labels[row];
        T most = lowest;
        for (long long i = 0; i < width; i++) most = larger(most, x[i]);
        T sum = 0;
        for (long long i = 0; i < width; i++) sum += exp(x[i] - most);
        losses += label < 0 || label >= width ? NOTHING : log(larger(sum, (T)1)) - (x[label] - most);
    }
    losses = combined(losses, partials, plus<T>);
    if (threadIdx.x == 0) out[0] = losses / (T)count;
}
"""  # noqa: E501 - as above


def loss_source(kernels: str, dtype: str, labels: str) -> str:
    """One of the sources above, for logits and labels of these dtypes."""
    names = {"SHIFTED": SHIFTED, "EACH": EACH, "ALL_ROWS": ALL_ROWS, "THREADS": str(MAX_THREADS)}
    names |= {"REAL": NAMES[dtype], "INTEGER": NAMES[labels], "LOWEST": LOWEST[dtype], "NOTHING": NOTHING[dtype]}
    for name, text in names.items():
        kernels = kernels.replace(name, text)
    return f"{HEADERS}typedef {NAMES[dtype]} T;\n{COMMON}{kernels}"

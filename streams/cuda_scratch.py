"""What CuPy's kernels take for temporaries, where that is more than what NumPy's take, which `OpDef.scratch` declares.

`PER_ELEMENT`: bytes for each element of the largest tensor, so for elements of 8 bytes; `PER_COMPLEX`: the same where
one is complex, of 16 bytes. From CuPy's sources (`cupy_thrust.cu`, 14.0): several lines are sorted as pairs of line and
value, by merging, which takes the pairs again; NumPy sorts line by line. A median or quantile sorts, too. Ops that are
made of others there (`corrections.UfuncElsewhere`) have their steps. The others are measured (an H100, CuPy 14.2).
`WORK_AREAS`: bytes for a call, in which cuSOLVER factors blocks of a matrix. They were measured on small matrices, and
a figure per element made of them would refuse large ones that fit. `make gpu-check` measures every op and names those
whose figures are too low.

Reservation counts on these figures, and nothing breaks if one is too low: a kernel that finds no memory has what is
kept for reuse given up, tries once more, and fails with a DeviceMemoryError.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..interpreter.schema.opdef import OutputMetas
from ..interpreter.types.meta import Meta, OperandMeta

_SORT: Final = 8 + 16 + 8 + 8  # the line of each element, pairs to merge, a packed copy, the result before it is stored
_ARGSORT: Final = _SORT + 8 + 8  # the positions, and those to merge

PER_ELEMENT: Final[Mapping[str, int]] = {
    "sort": _SORT,
    "argsort": _ARGSORT,
    "median": _SORT,
    "percentile": _SORT,
    "quantile": _SORT,
    "unique_values": _SORT,
    "unique_counts": _SORT + 16,
    "unique_inverse": _ARGSORT + 24,
    "unique_all": _ARGSORT + 32,
    "isin": 2 * _ARGSORT,
    "remainder": 3 * 8 + 3,  # rests, once with the sign of the divisor, once with its zeros; masks
    "clip": 2 * 8,
    "floor_divide": 6 * 8 + 3,
    "advanced_setitem": 9 * 8,  # which of several values for one element is the last one
    "histogram": 2 * 8 + 2,  # weights, once without those of NaN; masks
    "logical_and": 2,
    "logical_or": 2,
    "logical_xor": 2,
    "logical_not": 1,
    "cholesky": 2 * 8 + 1,
    "conv2d": 5 * 8,
    "conv2d_grad": 10 * 8 + 1,
    "convolve": 7 * 8 + 1,
    "cross_entropy_grad": 5,
    "det": 8 + 1,
    "eigh": 3 * 8,
    "eigvalsh": 3 * 8,
    "fft": 4 * 8,
    "hfft": 4 * 8,
    "ihfft": 2 * 8 + 1,
    "inv": 2 * 8 + 1,
    "irfft": 4 * 8,
    "irfftn": 4 * 8,
    "matrix_rank": 8 + 5,
    "nextafter": 21,
    "normal": 8,
    "slogdet": 8 + 1,
    "solve": 2 * 8 + 1,
    "svdvals": 8 + 5,
    "take_along_axis": 2 * 8,
    "uniform": 8,
}
PER_COMPLEX: Final[Mapping[str, int]] = {
    "acosh": 2 * 16 + 3,
    "divide": 4 * 16 + 1,
    "expm1": 5 * 16 + 1,
    "log": 2 * 16 + 1,
    "log10": 3 * 16 + 1,
    "log1p": 4 * 16 + 2,
    "log2": 3 * 16 + 1,
    "pow": 4 * 16 + 3,
    "power": 4 * 16 + 3,
    "reciprocal": 4 * 16 + 1,
    "std": 3 * 16,
    "var": 3 * 16,
    "vector_norm": 24,
}
WORK_AREAS: Final[Mapping[str, int]] = {
    "eig": 1 << 20,
    "eigvals": 1 << 20,
    "lstsq": 8 << 20,
    "matrix_norm": 2 << 20,
    "qr": 8 << 20,
    "solve": 8 << 20,  # of a stack, whose matrices are repeated for each right-hand side
    "svd": 8 << 20,
}


def least_temporaries(op: str, metas: tuple[OperandMeta, ...], outputs: OutputMetas) -> int:
    """Bytes that a call takes at least."""
    per_element, per_complex, area = (table.get(op, 0) for table in (PER_ELEMENT, PER_COMPLEX, WORK_AREAS))
    if not (per_element or per_complex or area):
        return 0
    tensors = [m for m in (*metas, *outputs) if isinstance(m, Meta)]
    if per_complex and any(m.dtype.kind == "c" for m in tensors):
        per_element = max(per_element, per_complex)
    return area + per_element * max((m.size for m in tensors), default=0)

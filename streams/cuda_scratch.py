"""What CuPy's kernels take for temporaries, where that is more than what NumPy's take, which `OpDef.scratch` declares.

Bytes for each element of the largest tensor, so for elements of 8 bytes. From CuPy's sources (`cupy_thrust.cu`, 14.0):
several lines are sorted as pairs of line and value, by merging, which takes the pairs again; NumPy sorts line by line.
A median or quantile sorts, too. Ops that are made of others there (`corrections.UfuncElsewhere`) have their steps. `make gpu-check` measures every op and names those whose figures are too low.

Reservation counts on these figures, and nothing breaks if one is too low: a kernel that finds no memory has what is
kept for reuse given up, tries once more, and fails with a DeviceMemoryError.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

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
}

"""The temporaries of CuPy's kernels that exceed those of NumPy's, which `OpDef.scratch` declares.

Sorts are from CuPy's sources (`cupy_thrust.cu`, 14.2): one line is sorted by radix sort, or by merge sort, which needs
a second copy of the values. Several lines are merge-sorted as pairs of line and value, with a second copy of the pairs;
NumPy sorts line by line. A median or quantile sorts, too. The others were measured on an H100 with CuPy 14.2; those
marked "estimate" count the steps of kernels that have changed since. `make gpu-check` measures every op and reports
figures that are too low.

Reservations use these figures. A figure that is too low breaks nothing: if a kernel finds no memory, the pool's free
blocks are dropped, and a second failure is a DeviceMemoryError. A figure that is too high refuses calls that would fit,
so a figure depends only on sizes on which the temporaries depend.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ...interpreter.schema.opdef import OutputMetas
from ...interpreter.types.meta import Meta, OperandMeta


class Sort(NamedTuple):
    """Bytes for each sorted element."""

    values: int  # how many copies of the element
    rest: int  # positions, lines, masks
    pairs: int = 0  # how many copies in a pair with its line


class ScratchFigure(NamedTuple):
    """Bytes of temporaries, which add up."""

    each: int = 0  # for each element of the largest tensor, if it has 8 bytes
    floats: int = 0  # the same, if a tensor has floats
    complexes: int = 0  # the same, if a tensor has complex numbers of 16 bytes
    results: int = 0  # for each element of the largest result
    positions: int = 0  # for each element of the operands after the first two: the parts of an index
    values: int = 0  # for each byte of the second operand
    call: int = 0  # at most for a call: cuSOLVER's work areas, which stop growing with the matrix; a small table
    line: Sort | None = None  # for each element of the first operand, if it has one axis
    lines: Sort | None = None  # the same, if it has more


_RADIX: Final = 1  # bytes of a radix sort for each element: the most that was counted
_SORT: Final = ScratchFigure(
    line=Sort(2, _RADIX),  # the result before it is stored, and the target of the sort
    lines=Sort(2, 8, pairs=1),  # the result, the same with the axis last, the line of each element, pairs to merge
)
_ARGSORT: Final = ScratchFigure(
    line=Sort(2, 8 + 8 + _RADIX),  # a copy and its positions, twice
    lines=Sort(1, 8 + 8 + 8, pairs=1),  # a copy, the line of each element, its positions, pairs and positions to merge
)
_WORK_AREA: Final = 512  # bytes of a work area for each element of a small matrix: the most measured is 432


def _of_one_line(sort: Sort) -> ScratchFigure:
    """For an op that sorts all elements as one line, for any axes."""
    return ScratchFigure(line=sort, lines=sort)


FIGURES: Final[Mapping[str, ScratchFigure]] = {
    "acosh": ScratchFigure(complexes=2 * 16 + 3),
    "advanced_setitem": ScratchFigure(
        positions=11 * 8, values=1, call=4 << 20
    ),  # a table, or a sort; the values in order
    "argsort": _ARGSORT,
    "cholesky": ScratchFigure(2 * 8 + 1),
    "clip": ScratchFigure(8),  # estimate
    "conv2d": ScratchFigure(5 * 8),
    "conv2d_grad": ScratchFigure(10 * 8 + 1),
    "convolve": ScratchFigure(7 * 8 + 1),
    "cross_entropy_grad": ScratchFigure(5),
    "det": ScratchFigure(8 + 1),
    "divide": ScratchFigure(complexes=4 * 16 + 1),
    "eig": ScratchFigure(call=1 << 20),
    "eigh": ScratchFigure(3 * 8, call=1 << 20),
    "eigvals": ScratchFigure(call=1 << 20),
    "eigvalsh": ScratchFigure(3 * 8, call=1 << 20),
    "expm1": ScratchFigure(complexes=5 * 16 + 1),
    "fft": ScratchFigure(4 * 8),
    "floor_divide": ScratchFigure(floats=6 * 8 + 3),
    "hfft": ScratchFigure(4 * 8),
    "histogram": ScratchFigure(2 * 8 + 2),  # weights, once without those of NaN; masks
    "ihfft": ScratchFigure(2 * 8 + 1),
    "inv": ScratchFigure(2 * 8 + 1),
    "irfft": ScratchFigure(4 * 8),
    "irfftn": ScratchFigure(4 * 8),
    "log": ScratchFigure(complexes=2 * 16 + 1),
    "log10": ScratchFigure(complexes=3 * 16 + 1),
    "log1p": ScratchFigure(complexes=4 * 16 + 2),
    "log2": ScratchFigure(complexes=3 * 16 + 1),
    "logical_and": ScratchFigure(complexes=2),
    "logical_not": ScratchFigure(complexes=1),
    "logical_or": ScratchFigure(complexes=2),
    "logical_xor": ScratchFigure(complexes=2),
    "lstsq": ScratchFigure(call=8 << 20),
    "matrix_norm": ScratchFigure(complexes=24, call=2 << 20),
    "matrix_rank": ScratchFigure(8 + 5, call=1 << 20),
    "median": _SORT,
    "min": ScratchFigure(results=8),
    "nextafter": ScratchFigure(21),
    "normal": ScratchFigure(8),
    "percentile": _SORT._replace(results=6 * 8),  # estimate: the elements between which each one lies
    "pow": ScratchFigure(complexes=4 * 16 + 3),
    "power": ScratchFigure(complexes=4 * 16 + 3),
    "qr": ScratchFigure(call=8 << 20),
    "quantile": _SORT._replace(results=6 * 8),  # estimate
    "reciprocal": ScratchFigure(complexes=4 * 16 + 1),
    "remainder": ScratchFigure(floats=3 * 8 + 3),
    "sign": ScratchFigure(complexes=3 * 8 + 2),  # estimate
    "slogdet": ScratchFigure(8 + 1),
    "solve": ScratchFigure(2 * 8 + 1, call=8 << 20),  # a stack repeats its matrices for each right-hand side
    "sort": _SORT,
    "std": ScratchFigure(complexes=3 * 16),
    "stdtrit": ScratchFigure(23 * 8),  # estimate: the ops of which it is composed
    "svd": ScratchFigure(call=8 << 20),
    "svdvals": ScratchFigure(8 + 5, call=1 << 20),
    "take_along_axis": ScratchFigure(results=2 * 8),
    "tan": ScratchFigure(complexes=4 * 8),  # estimate
    "tanh": ScratchFigure(complexes=4 * 8),  # estimate
    "uniform": ScratchFigure(8),
    "unique_all": _of_one_line(Sort(3, 4 * 8 + 2)),
    "unique_counts": _of_one_line(Sort(2, 2 * 8 + 1)),
    "unique_inverse": _of_one_line(Sort(3, 3 * 8 + 2)),
    "unique_values": _of_one_line(Sort(2, 8 + 2)),
    "var": ScratchFigure(complexes=3 * 16),
    "vector_norm": ScratchFigure(complexes=24),
}


def least_temporaries(op: str, metas: tuple[OperandMeta, ...], outputs: OutputMetas) -> int:
    """The least bytes that a call takes."""
    figure = FIGURES.get(op)
    if figure is None:
        return 0
    tensors = [m for m in (*metas, *outputs) if isinstance(m, Meta)]
    kinds = {m.dtype.kind for m in tensors}
    per_element = figure.each + figure.floats * ("f" in kinds) + figure.complexes * ("c" in kinds)
    largest = _largest(tensors)
    nbytes = per_element * largest + min(figure.call, _WORK_AREA * largest)
    nbytes += _for_sort(figure, metas)
    nbytes += figure.results * _largest(outputs) + figure.positions * _largest(metas[2:])
    return nbytes + figure.values * sum(m.nbytes for m in metas[1:2] if isinstance(m, Meta))


def _for_sort(figure: ScratchFigure, metas: tuple[OperandMeta, ...]) -> int:
    """The bytes that a sort of the first operand takes. A number in a pair is aligned to its size, up to 8."""
    x = metas[0] if metas else None
    if not isinstance(x, Meta) or (sort := figure.line if x.ndim < 2 else figure.lines) is None:
        return 0
    size = x.dtype.itemsize
    return x.size * (sort.values * size + sort.rest + sort.pairs * (8 + max(size, 8)))


def _largest(metas: Iterable[OperandMeta | None]) -> int:
    """The elements of the largest tensor among them."""
    return max((m.size for m in metas if isinstance(m, Meta)), default=0)

"""Runs fusions on NumPy arrays, one piece after the other, so that intermediate values stay in the cache.

A fusion calls the same kernels as its single steps would, with the same numbers, on slices of the same arrays, so its
results have the same bits. NumPy's loops depend on strides, which makes some rules necessary:

- Slices have the strides of their arrays, and temporaries are packed, as they are in memory.
- NumPy treats an axis of one element as if it had no stride, so a piece has at least two elements along the cut axis.
- NumPy chooses the order of axes by strides, and decides by the length of the inner axes whether to copy operands into
  its buffers. So if arrays are neither packed nor broadcast, pieces are longer than these buffers; if one is not
  packed, pieces are cut along the outermost axis only; and if that one is an output, no temporary lies in it.

A piece is as long as the cache allows for everything that the fusion reads and writes. Pieces of packed arrays are
multiples of `GRAIN`, so each element is in the same lane of a vector register as in the whole array. One result may
differ where arrays broadcast or are not packed: the sign of the NaN that two NaNs give. NumPy's vector loops take it
from one operand, and its other loops from the other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np

from ...interpreter.programs.facts import metas_of
from ...interpreter.programs.fusion import Fusion
from ...interpreter.programs.program import Program, Step
from ...interpreter.programs.rows import RowShape
from ...interpreter.schema.opdef import UNCOUNTED_BYTES, find
from ...interpreter.types.meta import Shape
from .fused_layout import FusedExtent, FusedLayout, extent_of

PIECE_BYTES: Final = 1 << 19  # bytes that a piece reads and writes: a part of a core's own cache
MAX_SCRATCH_BYTES: Final = 4 * PIECE_BYTES  # bytes of scratch that may be kept
MAX_SCRATCH_BLOCKS: Final = 16  # blocks of scratch that may be kept: one for each thread, on most machines
GRAIN: Final = 1 << 10  # elements
_ALIGNED: Final = 64  # bytes

Index: TypeAlias = tuple[slice, ...]  # of the leading axes
# For each piece: its shape, and the positions and indices of the arguments that have a part in the piece.
Pieces: TypeAlias = list[tuple[Shape, list[tuple[int, Index | slice]]]]
Memory: TypeAlias = np.ndarray[tuple[int], np.dtype[np.uint8]]
SPARE_SCRATCH: Final[list[Memory]] = []  # unused scratch, shared by all kernels


class FusedKernel:
    """A fusion, called as `kernel(*inputs, *outputs)` with arrays, and with numbers as single ops would get them.

    An output lies in the memory of the input that it overwrites (`Fusion.over`), or in memory of its own. Any thread
    may call the kernel, several at a time: each call has `scratch` bytes of its own. The caller disables floating-point
    errors, as for any kernel. `length`: elements of a piece; by default as many as fit in the cache. `share`: (part,
    number of parts) that this kernel computes.
    """

    def __init__(
        self, program: Program, fusion: Fusion, length: int | None = None, share: tuple[int, int] = (0, 1)
    ) -> None:
        self._program, self._fusion, self._share = program, fusion, share
        self._lending = FusedLayout(program, fusion, lend=True)
        self._length = length_of_pieces(program, fusion, self._lending.width) if length is None else length
        inputs = [shape_of(program, n) for n in fusion.inputs]  # None for numbers
        self._shapes = [*inputs, *(shape_to_cut(fusion, shape_of(program, n)) for n in fusion.outputs)]
        self._tensors = [position for position, shape in enumerate(self._shapes) if shape is not None]
        self._longer = max(self._length, 2 * np.getbufsize())
        self._size = math.prod(fusion.shape)

    def split(self, parts: int) -> list[FusedKernel]:
        """That many kernels, to be called with the same arguments in any order or concurrently."""
        count = -(-self._size // (self._length * parts)) * parts
        length = min(self._length, -(-self._size // (count * GRAIN)) * GRAIN)
        return [FusedKernel(self._program, self._fusion, length, (number, parts)) for number in range(parts)]

    @cached_property
    def scratch(self) -> int:
        """The most bytes that a call needs besides its arguments."""
        most = max(temporaries_of(self._program, self._program.steps[position]) for position in self._fusion.steps)
        cuts = [cut for cut in (self._flat, self._rows, self._outer, self._apart) if cut is not None]
        return max(cut.offsets[-1] + counted_temporaries(most * cut.longest // max(self._size, 1)) for cut in cuts)

    def __call__(self, *given: Any) -> None:
        loose = [position for position in self._tensors if not given[position].flags.c_contiguous]
        if loose:
            cut = self._outer if loose[-1] < len(self._fusion.inputs) else self._apart
        elif self._flat is None:
            cut = self._rows
        else:
            cut = self._flat
            given = self._flattened(given)
        memory = take_scratch(cut.offsets[-1])
        run_pieces(cut, given, memory)
        return_scratch(memory)

    @cached_property
    def _rows(self) -> Cut:
        """The cut for packed arrays, some of which broadcast or are reduced by rows."""
        shape, last = self._fusion.shape, max(self._fusion.rows - 1, 0)
        return Cut(self._lending, self._pieces(shape, self._shapes, min(axis_to_cut(shape, self._longer), last)))

    @cached_property
    def _outer(self) -> Cut:
        """The cut for inputs of any layout."""
        return Cut(self._lending, self._pieces(self._fusion.shape, self._shapes, outermost(self._fusion.shape)))

    @cached_property
    def _apart(self) -> Cut:
        """The cut for inputs and outputs of any layout."""
        layout = FusedLayout(self._program, self._fusion, lend=False)
        return Cut(layout, self._pieces(self._fusion.shape, self._shapes, outermost(self._fusion.shape)))

    @cached_property
    def _flat(self) -> Cut | None:
        """The cut for packed arrays, treated as one-dimensional; None if some broadcast, or rows are reduced."""
        sizes = [None if shape is None else math.prod(shape) for shape in self._shapes]
        if self._fusion.rows < len(self._fusion.shape) or any(size not in (None, 1, self._size) for size in sizes):
            return None
        shapes = [(size,) if size == self._size else None for size in sizes]
        return Cut(self._lending, self._pieces((self._size,), shapes, 0, self._length))

    def _flattened(self, given: tuple[Any, ...]) -> tuple[Any, ...]:
        """Packed arrays with one axis, or with none if they broadcast; numbers are unchanged."""
        if len(self._fusion.shape) == 1:
            return given
        arrays = list(given)
        for position in self._tensors:
            arrays[position] = given[position].reshape(-1 if given[position].size == self._size else ())
        return tuple(arrays)

    def _pieces(self, shape: Shape, shapes: Sequence[Shape | None], axis: int, length: int = 0) -> Pieces:
        """This kernel's share of the pieces of that shape."""
        indices = list(indices_of(shape, axis, length or self._longer))
        number, parts = self._share
        mine = indices[number * len(indices) // parts : (number + 1) * len(indices) // parts]
        if len(indices) == len(mine) == 1:
            return [(shape, [])]
        return [(lengths(index, shape), list(parts_of(index, len(shape), shapes))) for index in mine]


class Cut:
    """A layout of a fusion's values, and its pieces.

    `longest`: elements of the longest piece. `offsets`: of the parts of the scratch, followed by its end.
    """

    def __init__(self, layout: FusedLayout, pieces: Pieces) -> None:
        self.layout, self.pieces = layout, pieces
        self.longest = max((math.prod(shape) for shape, _ in pieces), default=0)
        most = [max((part.extent.count(shape, layout.rows) for shape, _ in pieces), default=0) for part in layout.parts]
        sizes = (-(-part.width * count // _ALIGNED) * _ALIGNED for part, count in zip(layout.parts, most, strict=True))
        self.offsets = list(itertools.accumulate(sizes, initial=0))


def take_scratch(nbytes: int) -> Memory:
    """Scratch of at least `nbytes` bytes; preferably scratch that an earlier call has left in the cache."""
    try:
        memory = SPARE_SCRATCH.pop()
    except IndexError:
        return np.empty(max(nbytes, PIECE_BYTES), np.uint8)
    return memory if memory.size >= nbytes else np.empty(nbytes, np.uint8)


def return_scratch(memory: Memory) -> None:
    """Return scratch that a call no longer needs."""
    if memory.size <= MAX_SCRATCH_BYTES and len(SPARE_SCRATCH) < MAX_SCRATCH_BLOCKS:
        SPARE_SCRATCH.append(memory)


def run_pieces(cut: Cut, given: Sequence[Any], memory: Memory) -> None:
    """Compute the pieces, one after the other."""
    calls, lent, apart = cut.layout.calls, cut.layout.lent, cut.layout.apart
    numbers = [number_as_array(given[position], dtype) for position, dtype in cut.layout.numbers]
    operands = [*given, *numbers, *[None] * (len(lent) + len(apart))]
    shape = None
    for lengths, parts in cut.pieces:
        for position, index in parts:
            operands[position] = given[position][index]
        if lengths != shape:
            shape = lengths
            for position, number, dtype in apart:
                lying = cut.layout.parts[number].extent.lengths(shape, cut.layout.rows)
                operands[position] = np.ndarray(lying, dtype, memory, cut.offsets[number])
        for position, output, dtype in lent:
            operands[position] = operands[output].view(dtype)
        for kernel, _, _, arrays in calls:
            kernel(*arrays(operands))


def number_as_array(number: Any, dtype: Any) -> Any:
    """The number as an array without dimensions, so that calls need not convert it; the number itself if the dtype
    cannot hold it."""
    try:
        return np.array(number, dtype)
    except OverflowError:
        return number


def shape_of(program: Program, operand: int) -> Shape | None:
    """The shape of a value; None for a number."""
    meta = program.metas[operand] if operand >= 0 else None
    return None if meta is None else meta.shape


def shape_to_cut(fusion: Fusion, shape: Shape | None) -> Shape | None:
    """The shape of an output, with the fusion's number of axes. The axes of rows are not cut."""
    if shape is None or extent_of(fusion, shape) is FusedExtent.WHOLE:
        return shape
    return RowShape(fusion.shape, fusion.rows).thin


def length_of_pieces(program: Program, fusion: Fusion, width: int) -> int:
    """The elements of a piece: as many as fit in the cache, while temporaries of kernels are too small to count."""
    metas = [meta for n in (*fusion.inputs, *fusion.outputs) if n >= 0 and (meta := program.metas[n]) is not None]
    width += sum(meta.dtype.itemsize for meta in metas if meta.shape == fusion.shape)
    length = PIECE_BYTES // width
    for step in (program.steps[position] for position in fusion.steps):
        temporaries = temporaries_of(program, step)
        if temporaries:
            length = min(length, UNCOUNTED_BYTES * math.prod(fusion.shape) // temporaries)
    return max(length // GRAIN, 1) * GRAIN


def temporaries_of(program: Program, step: Step) -> int:
    """The bytes that the step's kernel needs besides its operands and its result."""
    scratch = find(step.op).scratch
    known = tuple([meta for meta in metas_of(program, step) if meta is not None])
    return 0 if scratch is None else scratch(known, step.results, dict(step.attributes))


def counted_temporaries(nbytes: int) -> int:
    """The bytes of temporaries that count; 0 if they are few."""
    return nbytes if nbytes > UNCOUNTED_BYTES else 0


def outermost(shape: Shape) -> int:
    """The first axis with several elements."""
    return next((axis for axis, n in enumerate(shape) if n > 1), 0)


def axis_to_cut(shape: Shape, length: int) -> int:
    """The outermost axis along which pieces of at least two elements are not longer than `length`; otherwise the last
    axis."""
    rest = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return next((axis for axis, size in enumerate(rest) if 2 * size <= length), max(len(shape) - 1, 0))


def indices_of(shape: Shape, axis: int, length: int) -> Iterator[Index]:
    """The indices of pieces cut along the axis."""
    if not shape:
        yield ()
        return
    rest = max(math.prod(shape[axis + 1 :]), 1)
    step, whole = max(length // rest, 2), GRAIN // math.gcd(rest, GRAIN)
    step -= step % whole if step > whole else 0
    outer = itertools.product(*([slice(n, n + 1) for n in range(size)] for size in shape[:axis]))
    inner = list(slices_of(shape[axis], step))
    for leading in outer:
        yield from ((*leading, each) for each in inner)


def slices_of(size: int, step: int) -> Iterator[slice]:
    """Slices of `step` elements. The last slice has one more if a single element would be left."""
    starts = list(range(0, max(size - 1, 1), step))
    for start, stop in itertools.pairwise((*starts, size)):
        yield slice(start, stop)


def lengths(index: Index, shape: Shape) -> Shape:
    """The shape of a piece."""
    return (*(each.stop - each.start for each in index), *shape[len(index) :])


def parts_of(index: Index, ndim: int, shapes: Sequence[Shape | None]) -> Iterator[tuple[int, Index | slice]]:
    """The position and index of each argument that has a part in a piece. Arguments broadcast to a shape of `ndim`
    axes."""
    for position, shape in enumerate(shapes):
        leading = () if shape is None else index[ndim - len(shape) :]
        found = tuple([each if n > 1 else slice(None) for each, n in zip(leading, shape or (), strict=False)])
        if any(each != slice(None) for each in found):
            yield position, found[0] if len(found) == 1 else found

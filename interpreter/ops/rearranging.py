"""Ops that rearrange elements: roll, repeat, tile, tril and triu, take.

Their kernels copy: `views` has the ops whose results strides can express. `take` and `repeat_each` read positions or
counts from a tensor, so their kernels check data, and raise on wrong ones. The shape of `repeat_each` depends on
data: its infer function returns None, and its kernel gets the attribute `room`, the most bytes that it may allocate.
"""

from __future__ import annotations

import itertools
import math
from functools import partial

import numpy as np

from ..errors import DeviceMemoryError
from ..schema.attributes import ONE_AXIS, axis_attribute, check_axes, check_axis, check_int, optional
from ..schema.opdef import Array, ArrayModule, Arrays, Attribute, Attributes, Kernel, OutputMetas, define
from ..schema.promotion import broadcast_shapes
from ..schema.scratch import total
from ..types.axes import normal_axis
from ..types.kinds import ANY, INTEGER
from ..types.meta import MAX_SIZE, Meta, Metas, Shape, tensor_meta, tensor_metas
from ..types.sizes import exact_size
from .matrices import matrices
from .positions import check_gather, from_either_end
from .rules.axes import along_other_axes
from .rules.combining import any_parts, any_parts_of, chained, linear
from .rules.reasons import DATA_DEPENDENT
from .rules.stacks import on_stacks
from .rules.views import repeat_rule, take_along_axis_rule, take_rule, tile_rule

# Overhead of copying one block of a roll, in element operations.
ROLL_BLOCK_COST = 10_000
# The most axes that are rolled at once, block by block: each axis doubles the number of blocks.
_MAX_AXES_AT_ONCE = 4
# Bytes of the temporaries of `repeat_each` for each position of its result, besides the elements.
_BYTES_PER_POSITION = 16


# --- roll


def infer_roll(metas: Metas, attributes: Attributes) -> OutputMetas:
    """The meta of x. There is one shift for all axes, or one for each axis; without axes, there is one."""
    x = tensor_meta(metas)
    if attributes["axis"] is not None:
        _shifts(x.shape, attributes)
    elif isinstance(attributes["shift"], tuple):
        raise ValueError(f"the shifts {attributes['shift']} need the same number of axes")
    return (x,)


def _shifts(shape: Shape, attributes: Attributes) -> dict[int, int]:
    """The distance that elements move along each axis. The shifts of an axis that is named twice are added."""
    shift, axis = attributes["shift"], attributes["axis"]
    axes = axis if isinstance(axis, tuple) else (axis,)
    shifts = shift if isinstance(shift, tuple) else (shift,) * len(axes)
    if len(shifts) != len(axes):
        raise ValueError(f"the numbers of shifts and axes differ: {len(shifts)} and {len(axes)}")
    total: dict[int, int] = {}
    for each, distance in zip(axes, shifts, strict=True):
        position = normal_axis(each, len(shape))
        total[position] = (total.get(position, 0) + distance) % max(shape[position], 1)
    return total


def roll_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """Copies x block by block.

    Along each axis there are two blocks: the elements that stay inside, and those that wrap around.
    """
    (x,), (out,) = inputs, outputs
    if attributes["axis"] is None:
        flat, shift = xp.reshape(x, (-1,)), attributes["shift"] % max(x.size, 1)
        cut = x.size - shift
        out[...] = xp.reshape(xp.concatenate((flat[cut:], flat[:cut])), x.shape)
        return
    shifts = {axis: distance for axis, distance in _shifts(x.shape, attributes).items() if distance}
    for axis in list(shifts)[:-_MAX_AXES_AT_ONCE]:  # one after the other, since n axes at once have 2**n blocks
        cut, axes_before = x.shape[axis] - shifts.pop(axis), (slice(None),) * axis
        x = xp.concatenate((x[(*axes_before, slice(cut, None))], x[(*axes_before, slice(cut))]), axis=axis)
    for blocks in itertools.product(*(_blocks(n, shifts.get(axis, 0)) for axis, n in enumerate(x.shape))):
        out[tuple(target for target, _ in blocks)] = x[tuple(source for _, source in blocks)]


def _blocks(size: int, shift: int) -> tuple[tuple[slice, slice], ...]:
    """Targets and sources of the blocks of an axis."""
    if shift == 0:
        return ((slice(None), slice(None)),)
    cut = size - shift
    return ((slice(shift, None), slice(None, cut)), (slice(None, shift), slice(cut, None)))


def roll_scratch(metas: Metas, _outputs: OutputMetas, attributes: Attributes) -> int:
    """Without an axis, the elements in C order and in their new order; with many axes, the results of the first
    rolls."""
    return 2 * total(metas) if attributes["axis"] is None or _rolled(metas, attributes) > _MAX_AXES_AT_ONCE else 0


def _rolled(metas: Metas, attributes: Attributes) -> int:
    """How many axes are rolled."""
    return sum(map(bool, _shifts(tensor_meta(metas).shape, attributes).values()))


def roll_work(metas: Metas, _outputs: OutputMetas, attributes: Attributes) -> int:
    """Each element is moved once, and once more for each axis beyond `_MAX_AXES_AT_ONCE`; each axis that is rolled at
    once doubles the number of blocks."""
    x = tensor_meta(metas)
    rolled = 1 if attributes["axis"] is None else _rolled(metas, attributes)
    before = max(rolled - _MAX_AXES_AT_ONCE, 0)
    return (x.size + ROLL_BLOCK_COST) * before + x.size + (ROLL_BLOCK_COST << (rolled - before))


# --- repeat and tile


def _check_counts(counts: Shape, what: str) -> None:
    if any(n < 0 for n in counts):
        raise ValueError(f"a negative number of {what}: {min(counts)}")


def infer_repeat(metas: Metas, attributes: Attributes) -> OutputMetas:
    """The axis gets `repeats` times as long; without an axis, the result is 1-d, in C order."""
    x, repeats = tensor_meta(metas), attributes["repeats"]
    _check_counts((repeats,), "repeats")
    if attributes["axis"] is None:
        return (Meta.of((x.size * repeats,), x.dtype),)
    axis = normal_axis(attributes["axis"], x.ndim)
    return (Meta.of((*x.shape[:axis], x.shape[axis] * repeats, *x.shape[axis + 1 :]), x.dtype),)


def repeat_kernel(_xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """Broadcasts x along a new axis for the repeats, after the repeated axis."""
    shape: Shape = inputs[0].shape
    new_axis = len(shape) if attributes["axis"] is None else normal_axis(attributes["axis"], len(shape)) + 1
    before, after = shape[:new_axis], shape[new_axis:]
    _spread(inputs[0], outputs[0], (*before, 1, *after), (*before, attributes["repeats"], *after))


def _padded(shape: Shape, attributes: Attributes) -> tuple[Shape, Shape]:
    """The shape and the repetitions, padded with ones at the front to the same length."""
    repetitions: Shape = attributes["repetitions"]
    ndim = max(len(shape), len(repetitions))
    return (1,) * (ndim - len(shape)) + shape, (1,) * (ndim - len(repetitions)) + repetitions


def infer_tile(metas: Metas, attributes: Attributes) -> OutputMetas:
    """Each axis gets as many times as long as it has repetitions; missing axes and repetitions count as one."""
    x = tensor_meta(metas)
    _check_counts(attributes["repetitions"], "repetitions")
    return (Meta.of(tuple(n * r for n, r in zip(*_padded(x.shape, attributes), strict=True)), x.dtype),)


def tile_kernel(_xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """Broadcasts x along a new axis for the repetitions, before each axis."""
    pairs = tuple(zip(*_padded(inputs[0].shape, attributes), strict=True))
    once = tuple(n for size, _ in pairs for n in (1, size))
    _spread(inputs[0], outputs[0], once, tuple(n for size, repetitions in pairs for n in (repetitions, size)))


def _spread(x: Array, out: Array, once: Shape, repeated: Shape) -> None:
    """Fill `out`, reshaped to `repeated`, with x, reshaped to `once`, which broadcasts to `repeated`.

    Both reshapes only split axes and add or drop axes of size one, so they are always views. Axes of size one are
    dropped, so that there are no more axes than an array may have.
    """
    axes = [axis for axis, n in enumerate(repeated) if n != 1]
    out.reshape([repeated[a] for a in axes])[...] = x.reshape([once[a] for a in axes])


def infer_repeat_each(metas: Metas, attributes: Attributes) -> OutputMetas:
    """One count for each element of the axis, or of x without an axis; or one count for all."""
    x, counts = tensor_metas(metas)
    axis = attributes["axis"]
    length = x.size if axis is None else x.shape[normal_axis(axis, x.ndim)]
    if counts.ndim > 1 or counts.size not in {1, length}:
        raise ValueError(f"counts of shape {counts.shape} do not broadcast to ({length},)")
    return (None,)


def _check_room(nbytes: int, room: int) -> None:
    """Raise DeviceMemoryError if the result does not fit.

    Called before anything is allocated, since counts are data, and may ask for any size.
    """
    if nbytes > room:
        raise DeviceMemoryError(
            f"making the result would take {exact_size(nbytes)}, but the device has {exact_size(room)}"
        )


def repeat_each_kernel(xp: ArrayModule, inputs: Arrays, _outputs: Arrays, attributes: Attributes) -> tuple[Array]:
    """Finds for each position of the result the number of elements whose repeats end at or before it: this is the
    position in x of the element that belongs there."""
    x, counts = inputs
    axis = attributes["axis"]
    if axis is None:
        x, axis = xp.reshape(x, (-1,)), 0
    axis = normal_axis(axis, x.ndim)
    ends = xp.cumsum(_checked_counts(xp, x, axis, counts))
    total = int(ends[-1]) if ends.size else 0
    _check_room((x.nbytes // max(x.shape[axis], 1) + _BYTES_PER_POSITION) * total, attributes["room"])
    elements = xp.cumsum(xp.bincount(ends, minlength=total))[:total]
    return (rows_at(xp, x, elements, axis),)


def _checked_counts(xp: ArrayModule, x: Array, axis: int, counts: Array) -> Array:
    """One count per element, as int64; ValueError if one is negative, or if no memory can hold the result."""
    counts = xp.broadcast_to(counts, x.shape[axis : axis + 1])
    if counts.size and int(xp.min(counts)) < 0:
        raise ValueError(f"a negative number of repeats: {int(xp.min(counts))}")
    row = max(x.size // max(x.shape[axis], 1), 1) * x.dtype.itemsize
    if float(xp.sum(counts, dtype=np.float64)) * max(row, 8) > MAX_SIZE // 2:  # a sum of floats cannot overflow
        raise ValueError("the result is larger than any memory")
    return counts.astype(np.int64)


# --- triangles


def _diagonal(xp: ArrayModule, shape: Shape, k: int) -> tuple[Array, Array]:
    """The columns of a matrix, and the column of its k-th diagonal in each row; both broadcast to a matrix."""
    rows, columns = shape[-2:]
    nearest = max(-rows, min(k, columns))  # all diagonals outside of the matrix are equivalent
    return xp.arange(columns), xp.arange(nearest, nearest + rows)[:, None]


def triangle_kernel(cleared: str) -> Kernel:
    """A kernel that copies x, then clears the elements to the right ("greater") or to the left ("less") of the
    diagonal."""

    def kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
        (x,), (out,) = inputs, outputs
        xp.copyto(out, x)
        xp.copyto(out, False, where=getattr(xp, cleared)(*_diagonal(xp, out.shape, attributes["k"])))

    return kernel


def triangle_scratch(metas: Metas, _outputs: OutputMetas, _attributes: Attributes) -> int:
    """The mask of one matrix."""
    x = tensor_meta(metas)
    return x.shape[-2] * x.shape[-1]


# --- elements by their positions


def infer_take(metas: Metas, attributes: Attributes) -> OutputMetas:
    """The shape of x, with the axis as long as the list of positions; the axis may be None if x has only one."""
    x, indices = tensor_metas(metas)
    axis = attributes["axis"]
    if axis is None and x.ndim != 1:
        raise ValueError(f"`axis` is required for shape {x.shape}, which has {x.ndim} axes")
    if indices.ndim != 1:
        raise ValueError(f"indices must have one dimension, but shape {indices.shape} has {indices.ndim}")
    axis = normal_axis(axis or 0, x.ndim)
    return (Meta.of((*x.shape[:axis], indices.size, *x.shape[axis + 1 :]), x.dtype),)


def take_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """Takes the elements; a negative position counts from the end."""
    (x, indices), axis = inputs, attributes["axis"] or 0
    positions = _positions(xp, indices, x.shape[axis])
    if outputs[0].size:
        outputs[0][...] = rows_at(xp, x, positions, axis)


def _positions(xp: ArrayModule, indices: Array, size: int) -> Array:
    """The indices as int64; IndexError if one is out of bounds."""
    return from_either_end(xp, indices, size).astype(np.int64, copy=False)


def rows_at(xp: ArrayModule, x: Array, positions: Array, axis: int) -> Array:
    """The rows at these positions, by the array module's `take`; by indexing if x is not contiguous, since `take`
    would copy all of x."""
    check_gather(xp, math.prod(x.shape[:axis]), positions.size, math.prod(x.shape[axis % x.ndim + 1 :]))
    if x.flags.c_contiguous:
        return xp.take(x, positions, axis=axis)
    return x[(*(slice(None),) * (axis % x.ndim), positions)]


def infer_take_along_axis(metas: Metas, attributes: Attributes) -> OutputMetas:
    """x and the indices must have the same number of dimensions, and broadcast except along the axis, whose size is
    that of the indices."""
    x, indices = tensor_metas(metas)
    if x.ndim != indices.ndim:
        raise ValueError(f"shapes {x.shape} and {indices.shape} must have the same number of dimensions")
    axis = normal_axis(attributes["axis"], x.ndim)
    rest = broadcast_shapes((*m.shape[:axis], *m.shape[axis + 1 :]) for m in (x, indices))
    return (Meta.of((*rest[:axis], indices.shape[axis], *rest[axis:]), x.dtype),)


def take_along_axis_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """The array module's own function, which broadcasts."""
    (x, indices), axis = inputs, attributes["axis"]
    positions = _positions(xp, indices, x.shape[axis])
    if outputs[0].size:
        outputs[0][...] = xp.take_along_axis(x, positions, axis=axis)


def gather_scratch(metas: Metas, outputs: OutputMetas, _attributes: Attributes) -> int:
    """The elements before they are stored, and the positions as int64."""
    return total(outputs) + 8 * sum(m.size for m in metas[1:] if isinstance(m, Meta) and m.dtype != np.int64)


def gather_work(metas: Metas, outputs: OutputMetas, _attributes: Attributes) -> int:
    """Two passes over the indices, and one scattered read for each element of the result; x may be much larger."""
    return 4 * sum(m.size for m in (*metas[1:], *outputs) if isinstance(m, Meta))


# --- the table

define(
    name="roll",
    inputs=1,
    infer=infer_roll,
    summary="The elements shifted by `shift` along `axis` (None: in C order), wrapping around at the ends.",
    attributes=(Attribute("shift", check_axis), Attribute("axis", optional(check_axis), None)),
    kernel=roll_kernel,
    scratch=roll_scratch,
    work=roll_work,
    layouts=chained(along_other_axes(), any_parts),
)
define(
    name="repeat",
    inputs=1,
    infer=infer_repeat,
    summary="Each element `repeats` times along `axis`; if it is None, the elements in C order, 1-d.",
    attributes=(Attribute("repeats", check_int), ONE_AXIS),
    kernel=repeat_kernel,
    layouts=chained(repeat_rule, any_parts),
)
define(
    name="repeat_each",
    inputs=2,
    operands=("x", "repeats"),
    dtypes=(ANY, INTEGER),
    infer=infer_repeat_each,
    summary="As repeat, with a tensor of counts: one per element along `axis`, or one for all.",
    attributes=(ONE_AXIS,),
    kernel=repeat_each_kernel,
    dynamic=True,
    bounded=False,
    needs=("bincount", "take"),
    layouts=DATA_DEPENDENT,
)
define(
    name="tile",
    inputs=1,
    infer=infer_tile,
    summary="x side by side with itself, `repetitions` times along each axis.",
    attributes=(Attribute("repetitions", check_axes),),
    kernel=tile_kernel,
    layouts=chained(tile_rule, any_parts),
)
for _name, _cleared, _side in (("tril", "greater", "above"), ("triu", "less", "below")):
    define(
        name=_name,
        inputs=1,
        infer=lambda metas, _attributes: (matrices(metas),),
        summary=f"The matrices of x with zeros {_side} the k-th diagonal.",
        attributes=(Attribute("k", check_int, 0),),
        kernel=triangle_kernel(_cleared),
        scratch=triangle_scratch,
        elementwise=True,
        layouts=chained(on_stacks((2,), (2,)), linear),
    )
_define_gather = partial(
    define,
    inputs=2,
    operands=("x", "indices"),
    dtypes=(ANY, INTEGER),
    scratch=gather_scratch,
    work=gather_work,
    checks_data=True,
    checks_late=True,
)
_define_gather(
    name="take",
    infer=infer_take,
    summary="The elements of x at the positions `indices` along `axis`, which may be None if x is 1-d.",
    attributes=(ONE_AXIS,),
    kernel=take_kernel,
    needs=("take",),
    layouts=chained(take_rule, any_parts_of(0)),
)
_define_gather(
    name="take_along_axis",
    infer=infer_take_along_axis,
    summary="For each position in `indices`, the element of x at that position along `axis`; the other axes broadcast.",
    attributes=(axis_attribute(-1),),
    kernel=take_along_axis_kernel,
    needs=("take_along_axis",),
    layouts=chained(take_along_axis_rule, any_parts_of(0)),
)

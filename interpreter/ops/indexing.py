"""Indexing by tensors of integers and by masks, and assigning through an index. (Basic indices make views: `views`.)

The attribute `index` holds the normal form of `schema.indexing`, in which "tensor" stands for each further operand.
Each integer selects one element, so the shape of the result is known; with a mask it depends on data. The rules for
shapes are those of NumPy's advanced indexing, which include the standard's integer arrays and masks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..schema.attributes import INDEX, SHAPE, TENSOR_INDEX, check_dtype
from ..schema.indexing import Entry, Index, native_index, select, selected_shape, selects_all
from ..schema.opdef import VARIADIC, Array, ArrayModule, Arrays, Attribute, Attributes, OutputMetas, define
from ..schema.promotion import accepts_promoted, broadcast_shapes, promote
from ..schema.scratch import scratch
from ..types import kinds
from ..types.meta import Meta, Metas, OperandMeta, Shape, tensor, tensors
from .positions import check_gather, check_scatter, from_either_end, last_of_equals, safe_positions, sorts
from .rules.combining import any_parts, chained
from .rules.indexing import gather_rule, scatter_rule
from .rules.reasons import DATA_DEPENDENT
from .rules.views import overwrite_rule, setitem_rule


def infer_setitem(metas: Metas, attributes: Attributes) -> OutputMetas:
    """The meta of x.

    The value must broadcast to the selection, and its dtype must cast to that of x within its kind.
    """
    x, value = tensor(metas), metas[1]
    check_fits(value, selected_shape(attributes["index"], x.shape))
    check_assignable(value, x)
    return (x,)


def infer_overwrite(metas: Metas, attributes: Attributes) -> OutputMetas:
    """The meta that the attributes give. The value must fit as in `infer_setitem`."""
    x = overwritten_meta(attributes)
    if not selects_all(attributes["index"], x.shape):
        raise ValueError(f"the index does not select all of a tensor of shape {x.shape}; use setitem for a part")
    check_fits(metas[0], selected_shape(attributes["index"], x.shape))
    check_assignable(metas[0], x)
    return (x,)


def overwritten_meta(attributes: Attributes) -> Meta:
    """The meta of the overwritten tensor."""
    return Meta.of(attributes["shape"], attributes["dtype"])


def check_fits(value: OperandMeta, selected: Shape) -> None:
    """Raise ValueError unless a value of that meta broadcasts to the selection."""
    shape = without_leading_ones(value.shape) if isinstance(value, Meta) else ()
    if broadcast_shapes((shape, selected)) != selected:
        raise ValueError(f"a value of shape {shape} does not broadcast to the selection {selected}")


def without_leading_ones(shape: Shape) -> Shape:
    """The shape without its leading axes of size one:

    NumPy allows a value to have more of them than the selection has axes.
    """
    leading = next((axis for axis, size in enumerate(shape) if size != 1), len(shape))
    return shape[leading:]


def assignable(value: Any) -> Any:
    """The value without leading axes of size one, which NumPy does not accept for single elements and masks."""
    shape = getattr(value, "shape", ())
    return value.reshape(without_leading_ones(shape)) if shape[:1] == (1,) else value


def check_assignable(value: OperandMeta, x: Meta) -> None:
    """Raise TypeError unless values of that meta may be assigned to elements of x."""
    # A scalar has a weak type, which casts to any dtype of its kind: 1 fits an int8 tensor, but 1.5 does not.
    fits = np.can_cast(value.dtype if isinstance(value, Meta) else promote((value,)), x.dtype, "same_kind")
    weak_int = value is int and x.dtype.kind == "u"
    if not fits and not weak_int:
        name = value.dtype.name if isinstance(value, Meta) else value.__name__
        raise TypeError(f"{name} values cannot be assigned to {x.dtype.name}")


def accepts_assigned(value: int, metas: Metas, attributes: Attributes) -> None:
    """Raise OverflowError unless the value fits x's dtype. The index tensors do not matter."""
    accepts_promoted(value, metas[:1], attributes)


def accepts_overwriting(value: int, _metas: Metas, attributes: Attributes) -> None:
    """As `accepts_assigned`, for `overwrite`."""
    accepts_promoted(value, (overwritten_meta(attributes),), attributes)


def overwrite_kernel(_xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """Write each element of the output, which is not read."""
    outputs[0][native_index(attributes["index"])] = assignable(inputs[0])


def setitem_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """Copy x to the output unless they are the same memory, then assign the value."""
    (x, value), (out,) = inputs, outputs
    if not same_memory(x, out):
        xp.copyto(out, x)
    out[native_index(attributes["index"])] = assignable(value)


def same_memory(x: Array, out: Array) -> bool:
    """Whether the output is the memory of x."""
    return x is out or (_address(x) == _address(out) and x.strides == out.strides)


def _address(x: Array) -> int:
    interface = getattr(x, "__cuda_array_interface__", None) or x.__array_interface__
    address: int = interface["data"][0]
    return address


def infer_advanced_getitem(metas: Metas, attributes: Attributes) -> OutputMetas:
    """The meta of a selection by tensors of integers, whose shape is known."""
    x, selectors = tensor(metas), _selectors(metas[1:], attributes["index"])
    return (Meta.of(advanced_shape(attributes["index"], x.shape, selectors), x.dtype),)


def infer_dynamic_getitem(metas: Metas, attributes: Attributes) -> OutputMetas:
    """None for a selection by masks, or by tensors that may be masks. The known parts are checked."""
    x, selectors = tensor(metas), _selectors(metas[1:], attributes["index"])
    advanced_shape(attributes["index"], x.shape, selectors)
    return (None,)


def infer_advanced_setitem(metas: Metas, attributes: Attributes) -> OutputMetas:
    """The meta of x.

    Only the kernel can count the elements that a mask selects, and so check whether the values fit.
    """
    x, value, selectors = tensor(metas), metas[1], _selectors(metas[2:], attributes["index"])
    selected = advanced_shape(attributes["index"], x.shape, selectors)
    if not any(m.dtype.kind == "b" for m in selectors):
        check_fits(value, selected)
    elif isinstance(value, Meta) and len(without_leading_ones(value.shape)) > len(selected):
        raise ValueError(f"a value of shape {value.shape} does not broadcast to the {len(selected)} selected axes")
    check_assignable(value, x)
    return (x,)


def _selectors(metas: Metas, index: Index) -> tuple[Meta, ...]:
    if index.count("tensor") != len(metas):
        raise ValueError(f"the index names {index.count('tensor')} tensors, but {len(metas)} are given")
    for m in metas:
        if not isinstance(m, Meta) or m.dtype.kind not in "biu":
            raise IndexError(f"{m!r} is not an index: indices are tensors of integers, and masks")
    return metas  # type: ignore[return-value]


def advanced_shape(index: Index, shape: Shape, selectors: Sequence[Meta]) -> Shape:
    """The shape of the selection, as if every mask were all true.

    IndexError if the index does not fit the shape. The axes that tensors and ints index are replaced by the axes of
    their common shape: at the position of the first tensor or int, or at the front if other entries separate them.
    """
    parts: list[Shape] = []
    chosen: list[Shape] = []
    first = 0
    for entry, axes, meta in _consumed(index, shape, selectors):
        if _chooses(entry):
            first = first if chosen else len(parts)
            chosen.append(() if meta is None else (meta.size,) if meta.dtype.kind == "b" else meta.shape)
            _check_selects(entry, axes, meta)
        parts.append(() if meta is not None else select((entry,), axes, (0, (0,) * len(axes)))[0])
    try:
        common = broadcast_shapes(_only_certain(chosen, selectors))
    except ValueError as error:
        raise IndexError(f"the index tensors do not broadcast: {error}") from None
    parts.insert(first if _together(index) else 0, common)
    return tuple(n for part in parts for n in part)


def _metas_of(selectors: Arrays) -> list[Meta]:
    return [Meta.of(s.shape, s.dtype) for s in selectors]


def _together(index: Index) -> bool:
    """Whether the tensors and ints are adjacent. In NumPy, "..." separates them even if it stands for no axis."""
    places = [place for place, entry in enumerate(index) if _chooses(entry)]
    return places[-1] - places[0] == len(places) - 1


def _chooses(entry: Entry) -> bool:
    """Whether the entry is a tensor or an int, which pick positions of an axis."""
    return entry == "tensor" or isinstance(entry, int)


def _consumed(index: Index, shape: Shape, selectors: Sequence[Meta]) -> Iterator[tuple[Entry, Shape, Meta | None]]:
    """Each entry, with the sizes of the axes that it indexes, and its tensor or None.

    "..." is replaced by full slices.
    """
    named = sum(entry is not None and entry not in {"...", "tensor"} for entry in index)
    named += sum(m.ndim if m.dtype.kind == "b" else 1 for m in selectors)
    if named > len(shape):
        raise IndexError(f"too many indices: {named} for {len(shape)} axes")
    missing, rest, axis = len(shape) - named, iter(selectors), 0
    spelled = index if "..." in index else (*index, "...")
    for entry in spelled:
        meta = next(rest) if entry == "tensor" else None
        if entry == "...":
            for _ in range(missing):
                yield ("slice", None, None, None), shape[axis : axis + 1], None
                axis += 1
            continue
        width = 0 if entry is None else meta.ndim if meta is not None and meta.dtype.kind == "b" else 1
        yield entry, shape[axis : axis + width], meta
        axis += width


def _check_selects(entry: Entry, axes: Shape, meta: Meta | None) -> None:
    if meta is None:
        select((entry,), axes, (0, (0,)))  # raises unless the int is within its bounds
    elif meta.dtype.kind == "b" and not mask_fits(meta.shape, axes):
        raise IndexError(f"the mask's shape {meta.shape} does not match the axes {axes} that it indexes")


def mask_fits(mask: Shape, axes: Shape) -> bool:
    """Whether each size of a mask is that of the axis, or zero, which selects nothing."""
    return all(n in {size, 0} for n, size in zip(mask, axes, strict=True))


def _only_certain(chosen: list[Shape], selectors: Sequence[Meta]) -> list[Shape]:
    """The shapes to broadcast.

    With masks, their common shape is an upper bound, since the number of selected elements is not known yet.
    """
    if not any(m.dtype.kind == "b" for m in selectors):
        return chosen
    axes = max(map(len, chosen))
    return [(1,) * axes, max(chosen, key=math.prod)]


def _safe_selectors(xp: ArrayModule, x: Array, index: Index, selectors: Arrays, *, write: bool = False) -> Arrays:
    """The index tensors, checked and cast so that a device may read from x with them, or `write` to it."""
    if xp is np:
        return selectors
    _check_counts(xp, index, x.shape, selectors, write=write)
    return _checked(xp, index, x.shape, [safe_positions(s) for s in selectors])


def _native(xp: ArrayModule, x: Array, index: Index, selectors: Arrays) -> tuple[Array, tuple[Any, ...]]:
    """x and the index in a form that the array module treats as NumPy does."""
    if xp is not np and not _together(index):
        x, index = _chosen_first(x, index, selectors)
    rest = iter(selectors)
    return x, tuple(next(rest) if entry == "tensor" else native_index((entry,))[0] for entry in index)


def _chosen_first(x: Array, index: Index, selectors: Arrays) -> tuple[Array, Index]:
    """A view of x whose first axes are those that tensors and ints index, as in the result, and the index for that
    view. Other array modules do not follow NumPy's rule for tensors and ints that are not adjacent.
    """
    entries: dict[bool, list[Entry]] = {True: [], False: []}
    axes: dict[bool, list[int]] = {True: [], False: []}
    axis = 0
    for entry, sizes, _ in _consumed(index, x.shape, _metas_of(selectors)):
        chooses = _chooses(entry)
        entries[chooses].append(entry)
        axes[chooses].extend(range(axis, axis + len(sizes)))
        axis += len(sizes)
    return x.transpose(axes[True] + axes[False]), (*entries[True], *entries[False])


def _checked(xp: ArrayModule, index: Index, shape: Shape, selectors: Arrays) -> list[Array]:
    """The index tensors, after a check that their positions are in bounds:

    CuPy would wrap around where NumPy raises.
    """
    rest, metas = iter(selectors), _metas_of(selectors)
    made = []
    for _, axes, meta in _consumed(index, shape, metas):
        if meta is not None:
            selector = next(rest)
            made.append(selector if meta.dtype.kind == "b" else from_either_end(xp, selector, axes[0]))
    return made


def _check_counts(xp: ArrayModule, index: Index, shape: Shape, selectors: Arrays, *, write: bool) -> None:
    """Raise ValueError if the index selects more elements than a device can count.

    A single mask may select any number.
    """
    metas = _metas_of(selectors)
    if [m.dtype.kind for m in metas] == ["b"]:
        return
    consumed, selected = list(_consumed(index, shape, metas)), advanced_shape(index, shape, metas)
    first = next(n for n, (entry, *_) in enumerate(consumed) if _chooses(entry)) if _together(index) else 0
    behind = len(selected) - _axes_behind(index, shape, metas)
    before, count, after = (math.prod(part) for part in (selected[:first], selected[first:behind], selected[behind:]))
    if write:
        check_scatter(xp, _room(index, shape, metas), count, after)
    else:
        check_gather(xp, before, count, after)


def advanced_getitem_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """Copy the selection to the output."""
    x, *selectors = inputs
    whole, native = _native(xp, x, attributes["index"], _safe_selectors(xp, x, attributes["index"], selectors))
    outputs[0][...] = whole[native]


def dynamic_getitem_kernel(xp: ArrayModule, inputs: Arrays, _outputs: Arrays, attributes: Attributes) -> tuple[Array]:
    """The selection, as a new array, since its shape is not known before."""
    x, *selectors = inputs
    whole, native = _native(xp, x, attributes["index"], _safe_selectors(xp, x, attributes["index"], selectors))
    return (xp.array(whole[native]),)


def advanced_setitem_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """Copy x to the output unless they are the same memory, then assign.

    Of several values for one element, the last one counts.
    """
    x, value, *selectors = inputs
    (out,) = outputs
    if not same_memory(x, out):
        xp.copyto(out, x)
    value = assignable(value)
    safe = _safe_selectors(xp, out, attributes["index"], selectors, write=True)
    whole, native = _native(xp, out, attributes["index"], safe)
    if xp is not np:
        _check_selected(xp, out.shape, attributes["index"], safe, value)
        value = _last_written(xp, out.shape, attributes["index"], safe, value)
    whole[native] = value


def _check_selected(xp: ArrayModule, shape: Shape, index: Index, selectors: Arrays, value: Any) -> None:
    """Raise ValueError if a single mask selects nothing and the value does not broadcast to an empty selection,
    which CuPy does not check. Waits for the device."""
    if len(selectors) != 1 or selectors[0].dtype.kind != "b" or getattr(value, "ndim", 0) == 0:
        return
    if not bool(xp.any(selectors[0])):
        whole = advanced_shape(index, shape, _metas_of(selectors))
        of_mask = len(whole) - _axes_behind(index, shape, _metas_of(selectors)) - 1
        check_fits(Meta.of(value.shape, value.dtype), (*whole[:of_mask], 0, *whole[of_mask + 1 :]))


def _last_written(xp: ArrayModule, shape: Shape, index: Index, selectors: Arrays, value: Any) -> Any:
    """The value, changed so that all its entries for one element of x are equal to the last of them.

    NumPy keeps the last value that is assigned to an element; CuPy writes in any order. Only positions are compared.
    """
    metas = _metas_of(selectors)
    behind = _axes_behind(index, shape, metas)
    if not _needs_order(getattr(value, "ndim", 0), getattr(value, "size", 1), behind, metas):
        return value
    places = _places(xp, index, shape, selectors)
    if places.size < 2:
        return value
    flat = places.reshape(-1)
    last = last_of_equals(xp, flat, _room(index, shape, metas))
    before = value.shape[: max(value.ndim - places.ndim - behind, 0)]
    after = value.shape[value.ndim - behind :]
    spread = xp.broadcast_to(value, (*before, *places.shape, *after))
    sizes = math.prod(before), flat.size, math.prod(after)
    return spread.reshape(sizes)[:, last].reshape(spread.shape)


def _needs_order(axes: int, size: int, behind: int, selectors: Sequence[Meta]) -> bool:
    """Whether there may be several different values for one element.

    Masks select no element twice, and a single value is the same for all.
    """
    return axes > behind and size > 1 and any(m.dtype.kind != "b" for m in selectors)


def _room(index: Index, shape: Shape, selectors: Sequence[Meta]) -> int:
    """The number of positions along all axes that tensors index."""
    return math.prod(n for _, axes, meta in _consumed(index, shape, selectors) if meta is not None for n in axes)


def _axes_behind(index: Index, shape: Shape, selectors: Sequence[Meta]) -> int:
    """The number of axes of the selection that follow the axes of the tensors and ints."""
    entries = [entry for entry, *_ in _consumed(index, shape, selectors)]
    first = next(place for place, entry in enumerate(entries) if _chooses(entry)) if _together(index) else 0
    return sum(not _chooses(entry) for entry in entries[first:])


def _places(xp: ArrayModule, index: Index, shape: Shape, selectors: Arrays) -> Array:
    """The position of each selected element along the axes that tensors index, as one number."""
    places: Any = 0
    rest = iter(selectors)
    for _, axes, meta in _consumed(index, shape, _metas_of(selectors)):
        if meta is None:
            continue
        selector, size = next(rest), math.prod(axes)
        at = xp.flatnonzero(selector) if meta.dtype.kind == "b" else selector.astype(np.int64)
        places = places * size + xp.where(at < 0, at + size, at)
    return places


def _most_bytes(metas: Metas) -> int:
    """The most bytes of the selection, as if every mask were all true.

    Only tensors of integers make the result larger than x.
    """
    x, *selectors = tensors(metas)
    sizes = (m.size for m in selectors if m.dtype.kind != "b")
    return x.nbytes * max([1, *sizes])


def mask_scratch(metas: Metas, _outputs: OutputMetas, attributes: Attributes) -> int:
    """The positions that masks select; a mask of all axes needs none."""
    x, *selectors = (m for m in metas if isinstance(m, Meta))
    masks = [m for m in selectors if m.dtype.kind == "b"]
    if attributes["index"] == ("tensor",) and [m.ndim for m in masks] == [x.ndim]:
        return 0
    return sum(8 * m.size * m.ndim for m in masks)


def selection_scratch(metas: Metas, outputs: OutputMetas, attributes: Attributes) -> int:
    """As `mask_scratch`, and the selected elements before they are packed."""
    return _most_bytes(metas) + mask_scratch(metas, outputs, attributes)


def writes_without_a_look(metas: tuple[OperandMeta | None, ...], attributes: Attributes) -> bool:
    """Whether the kernel writes without waiting for the device.

    It waits to count the elements of masks, and to sort positions.
    """
    x, value, *selectors = metas
    index, known = attributes["index"], [meta for meta in selectors if isinstance(meta, Meta)]
    if not isinstance(x, Meta) or len(known) < len(selectors) or any(meta.dtype.kind == "b" for meta in known):
        return False
    count = math.prod(broadcast_shapes([meta.shape for meta in known]))
    if not sorts(_room(index, x.shape, known), count):
        return True
    behind = _axes_behind(index, x.shape, known)
    return not (isinstance(value, Meta) and _needs_order(value.ndim, value.size, behind, known))


def _gather_work(metas: Metas, outputs: OutputMetas, _attributes: Attributes) -> int:
    known = (m.size for m in (*metas[1:], *outputs) if isinstance(m, Meta))
    return 4 * max(known, default=0)


define(
    name="advanced_getitem",
    inputs=VARIADIC,
    least=2,
    infer=infer_advanced_getitem,
    summary="x[index], where tensors of integers select: they are the further operands.",
    operands=("x", "tensor"),
    dtypes=(kinds.ANY, kinds.INTEGER),
    attributes=(TENSOR_INDEX,),
    kernel=advanced_getitem_kernel,
    scratch=scratch(results=1),
    judges=True,
    clamps=True,
    work=_gather_work,
    layouts=gather_rule,
)
define(
    name="dynamic_getitem",
    inputs=VARIADIC,
    least=2,
    infer=infer_dynamic_getitem,
    summary="x[index], where masks and tensors of integers select: they are the further operands.",
    operands=("x", "tensor"),
    dtypes=(kinds.ANY, kinds.INTEGER_OR_BOOLEAN),
    attributes=(TENSOR_INDEX,),
    kernel=dynamic_getitem_kernel,
    scratch=selection_scratch,
    dynamic=True,
    most=_most_bytes,
    work=_gather_work,
    layouts=DATA_DEPENDENT,
)
define(
    name="advanced_setitem",
    inputs=VARIADIC,
    least=3,
    infer=infer_advanced_setitem,
    summary="x with x[index] = value, where masks and tensors of integers select: they are the further operands.",
    operands=("x", "value", "tensor"),
    dtypes=(kinds.ANY, kinds.ANY, kinds.INTEGER_OR_BOOLEAN),
    attributes=(TENSOR_INDEX,),
    kernel=advanced_setitem_kernel,
    scratch=mask_scratch,
    judges=True,
    clamps=writes_without_a_look,
    partial=True,
    scalars=accepts_assigned,
    work=_gather_work,
    layouts=scatter_rule,
)
define(
    name="setitem",
    inputs=2,
    operands=("x", "value"),
    infer=infer_setitem,
    summary="x with x[index] = value, the index being basic.",
    attributes=(INDEX,),
    kernel=setitem_kernel,
    partial=True,
    layouts=chained(setitem_rule, any_parts),
)
define(
    name="overwrite",
    inputs=1,
    operands=("value",),
    infer=infer_overwrite,
    summary="x with x[index] = value, the index being basic and selecting all of x, which is not read.",
    attributes=(INDEX, SHAPE, Attribute("dtype", check_dtype)),
    kernel=overwrite_kernel,
    scalars=accepts_overwriting,
    layouts=overwrite_rule,
)

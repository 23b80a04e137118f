"""Indexing by tensors of integers and by masks, and assigning through an index. (Basic indices make views: `views`.)

The attribute `index` holds the normal form of `schema.indexing`, in which "tensor" stands for each further operand.
Each integer selects one element, so the shape of the result is known; with a mask it depends on data. The rules for
shapes are those of NumPy's advanced indexing, which include the standard's integer arrays and masks.
"""

from __future__ import annotations

import math

import numpy as np

from ..schema.attributes import INDEX, SHAPE, TENSOR_INDEX, check_dtype
from ..schema.indexing import Index, native_index, selected_shape, selects_all
from ..schema.opdef import VARIADIC, Array, ArrayModule, Arrays, Attribute, Attributes, OutputMetas, define
from ..schema.promotion import accepts_promoted, broadcast_shapes
from ..schema.scratch import scratch
from ..types import kinds
from ..types.meta import Meta, Metas, OperandMeta, tensor_meta, tensor_metas
from .assignment import (
    accepts_assigned,
    assignable,
    check_assignable,
    check_fits,
    check_selected,
    last_written,
    needs_order,
    without_leading_ones,
)
from .positions import sorts
from .rules.combining import any_parts, chained
from .rules.indexing import gather_rule, scatter_rule
from .rules.reasons import DATA_DEPENDENT
from .rules.views import overwrite_rule, setitem_rule
from .selection import advanced_shape, axes_behind, native_form, room_of, safe_selectors


def infer_setitem(metas: Metas, attributes: Attributes) -> OutputMetas:
    """The meta of x.

    The value must broadcast to the selection, and its dtype must cast to that of x within its kind.
    """
    x, value = tensor_meta(metas), metas[1]
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
    x, selectors = tensor_meta(metas), _selectors(metas[1:], attributes["index"])
    return (Meta.of(advanced_shape(attributes["index"], x.shape, selectors), x.dtype),)


def infer_dynamic_getitem(metas: Metas, attributes: Attributes) -> OutputMetas:
    """None for a selection by masks, or by tensors that may be masks. The known parts are checked."""
    x, selectors = tensor_meta(metas), _selectors(metas[1:], attributes["index"])
    advanced_shape(attributes["index"], x.shape, selectors)
    return (None,)


def infer_advanced_setitem(metas: Metas, attributes: Attributes) -> OutputMetas:
    """The meta of x.

    Only the kernel can count the elements that a mask selects, and so check whether the values fit.
    """
    x, value, selectors = tensor_meta(metas), metas[1], _selectors(metas[2:], attributes["index"])
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


def advanced_getitem_kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> None:
    """Copy the selection to the output."""
    x, *selectors = inputs
    whole, native = native_form(xp, x, attributes["index"], safe_selectors(xp, x, attributes["index"], selectors))
    outputs[0][...] = whole[native]


def dynamic_getitem_kernel(xp: ArrayModule, inputs: Arrays, _outputs: Arrays, attributes: Attributes) -> tuple[Array]:
    """The selection, as a new array, since its shape is not known before."""
    x, *selectors = inputs
    whole, native = native_form(xp, x, attributes["index"], safe_selectors(xp, x, attributes["index"], selectors))
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
    safe = safe_selectors(xp, out, attributes["index"], selectors, write=True)
    whole, native = native_form(xp, out, attributes["index"], safe)
    if xp is not np:
        check_selected(xp, out.shape, attributes["index"], safe, value)
        value = last_written(xp, out.shape, attributes["index"], safe, value)
    whole[native] = value


def max_selected_bytes(metas: Metas) -> int:
    """The most bytes of the selection, as if every mask were all true.

    Only tensors of integers make the result larger than x.
    """
    x, *selectors = tensor_metas(metas)
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
    return max_selected_bytes(metas) + mask_scratch(metas, outputs, attributes)


def writes_without_waiting(metas: tuple[OperandMeta | None, ...], attributes: Attributes) -> bool:
    """Whether the kernel writes without waiting for the device.

    It waits to count the elements of masks, and to sort positions.
    """
    x, value, *selectors = metas
    index, known = attributes["index"], [meta for meta in selectors if isinstance(meta, Meta)]
    if not isinstance(x, Meta) or len(known) < len(selectors) or any(meta.dtype.kind == "b" for meta in known):
        return False
    count = math.prod(broadcast_shapes([meta.shape for meta in known]))
    if not sorts(room_of(index, x.shape, known), count):
        return True
    behind = axes_behind(index, x.shape, known)
    return not (isinstance(value, Meta) and needs_order(value.ndim, value.size, behind, known))


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
    checks_data=True,
    checks_late=True,
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
    max_bytes=max_selected_bytes,
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
    checks_data=True,
    checks_late=writes_without_waiting,
    writes_part=True,
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
    writes_part=True,
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

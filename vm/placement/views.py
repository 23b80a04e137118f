"""Views take effect at admission: a tensor on the same storage, no instruction, no copy."""

from __future__ import annotations

from ...interpreter.errors import metadata_error
from ...interpreter.schema.opdef import Layout
from ...interpreter.types.meta import Meta
from ..model.device_state import DeviceState
from ..model.plan import Plan
from ..model.session import VmSession
from ..model.tensor import Moved, Tensor

LAYOUTS = 64


def view_of(plan: Plan, base: Tensor) -> Tensor | None:
    """The result of a view op as a tensor on the base's storage; None if strides cannot express it.

    A plan sees the same few layouts again and again, so it caches their results.
    """
    meta, output = base.meta, plan.outputs[0]
    if meta is None or output is None:
        return None
    key = (base.offset, base.strides)
    layouts = plan.layouts
    layout = layouts.get(key, layouts)
    if layout is layouts:
        if len(layouts) >= LAYOUTS:
            layouts.clear()
        layout = layouts[key] = lay_out(plan, meta, output, base)
    return None if layout is None else share(base, output, layout[0], layout[1], plan.device)


def known_view_of(plan: Plan, base: Tensor) -> Tensor | None:
    """`view_of`, if the plan has seen such a base before, and a view can express the result; else None."""
    layout = plan.layouts.get((base.offset, base.strides))
    return None if layout is None else share(base, plan.output, layout[0], layout[1], plan.device)


def lay_out(plan: Plan, meta: Meta, output: Meta, base: Tensor) -> Layout | None:
    """Offset and strides of the view; None if strides cannot express it. MetadataError if a copy is forbidden then."""
    if plan.op.view is None:
        return None
    strides = meta.strides if base.strides is None else base.strides
    try:
        return plan.op.view(meta, (base.offset, strides), output, dict(plan.attributes))
    except ValueError as error:
        raise metadata_error(error, f"{plan.label}: {error}", plan.label) from None


def alias(base: Tensor, home: DeviceState) -> Tensor:
    """Another tensor with the present value of the base and its own home; writes to one do not affect the other."""
    return alike(Tensor(base.meta, base.storage, home), base)


def moved(base: Tensor, home: DeviceState, mover: VmSession, location: int) -> Moved:
    """An alias that its session moves to another home."""
    tensor = Moved(base.meta, base.storage, home, mover, location)
    alike(tensor, base)
    base.storage.place(home)
    return tensor


def alike(tensor: Tensor, base: Tensor) -> Tensor:
    """Lay a new tensor over the base's storage as the base is, and let it have the base's meta."""
    tensor.offset, tensor.strides = base.offset, base.strides
    base.storage.sharers += 1
    tensor.follow(base)
    return tensor


def part_of_move(base: Moved, meta: Meta) -> Moved:
    """A view of a moved tensor is moved with it, or alone if the tensor is released before anybody needs it."""
    mover = base.mover
    view = Moved(meta, base.storage, base.home, mover, base.location)
    if mover is not None:
        mover.moves[view] = None
    return view


def share(base: Tensor, meta: Meta, offset: int, strides: tuple[int, ...], home: DeviceState) -> Tensor:
    """Another tensor on the base's storage, at home where the op runs."""
    storage = base.storage
    tensor = part_of_move(base, meta) if type(base) is Moved and base.home is home else Tensor(meta, storage, home)
    storage.sharers += 1
    if offset or meta.nbytes != storage.nbytes or strides != meta.strides:
        tensor.offset, tensor.strides = offset, strides
    return tensor

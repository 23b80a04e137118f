"""Views, aliases and moved tensors: tensors that share another tensor's storage, made without instruction and copy.

Each of them counts as a sharer of the storage. Their values are independent all the same: a write to one of them gives
it a storage of its own (`Residency.target`).
"""

from __future__ import annotations

from ...interpreter.errors import metadata_error
from ...interpreter.schema.opdef import Layout
from ...interpreter.types.meta import Meta
from ..model.device_state import DeviceState
from ..model.plan import Plan
from ..model.session import VmSession
from ..model.tensor import Moved, VmTensor

LAYOUTS = 64


def view_of(plan: Plan, base: VmTensor) -> VmTensor | None:
    """The result of a view op as a tensor on the base's storage; None if strides cannot express it.

    The plan caches the results for the layouts of bases, since calls repeat the same few layouts.
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


def known_view_of(plan: Plan, base: VmTensor) -> VmTensor | None:
    """`view_of` for a base whose layout the plan has cached; None if it has not, or strides cannot express the view."""
    layout = plan.layouts.get((base.offset, base.strides))
    return None if layout is None else share(base, plan.output, layout[0], layout[1], plan.device)


def lay_out(plan: Plan, meta: Meta, output: Meta, base: VmTensor) -> Layout | None:
    """Offset and strides of a view; None if strides cannot express it, or MetadataError if the op forbids a copy."""
    if plan.op.view is None:
        return None
    strides = meta.strides if base.strides is None else base.strides
    try:
        return plan.op.view(meta, (base.offset, strides), output, dict(plan.attributes))
    except ValueError as error:
        raise metadata_error(error, f"{plan.label}: {error}", plan.label) from None


def alias(base: VmTensor, home: DeviceState) -> VmTensor:
    """A tensor with the present value of the base, and a home of its own; writes to one do not affect the other."""
    return alike(VmTensor(base.meta, base.storage, home), base)


def moved(base: VmTensor, home: DeviceState, mover: VmSession, location: int) -> Moved:
    """An alias with another home, to which the session will move the value."""
    tensor = Moved(base.meta, base.storage, home, mover, location)
    alike(tensor, base)
    base.storage.place(home)
    return tensor


def alike(tensor: VmTensor, base: VmTensor) -> VmTensor:
    """Give a new tensor the base's layout on the base's storage, and the base's meta once it is known."""
    tensor.offset, tensor.strides = base.offset, base.strides
    base.storage.sharers += 1
    tensor.follow(base)
    return tensor


def part_of_move(base: Moved, meta: Meta) -> Moved:
    """A view of a moved tensor, which is moved as well, even if the base is released before its move begins."""
    mover = base.mover
    view = Moved(meta, base.storage, base.home, mover, base.location)
    if mover is not None:
        mover.moves[view] = None
    return view


def share(base: VmTensor, meta: Meta, offset: int, strides: tuple[int, ...], home: DeviceState) -> VmTensor:
    """A tensor with this layout on the base's storage; `home`: the device of the op."""
    storage = base.storage
    tensor = part_of_move(base, meta) if type(base) is Moved and base.home is home else VmTensor(meta, storage, home)
    storage.sharers += 1
    if offset or meta.nbytes != storage.nbytes or strides != meta.strides:
        tensor.offset, tensor.strides = offset, strides
    return tensor

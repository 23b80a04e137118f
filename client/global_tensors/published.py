"""Global tensors from parts of a routine's run, or of a published name.

A label (`interpreter/layouts/text`) says how the parts lie; the devices are the parts' own.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...interpreter.errors import MetadataError, ProtocolError
from ...interpreter.layouts.layout import BROADCAST, Layout, Partial, Split, layout_of
from ...interpreter.layouts.placement import Placement, kind_of, placement
from ...interpreter.layouts.text import layout_text, parse_layout_text
from ...interpreter.types.meta import Meta
from ..tensor.tensor import Tensor
from .boxing.blocks import blocks
from .boxing.pieces import put_together, reduced
from .form import Form, grid_coordinates, groups
from .tensor import GlobalTensor


def label_of(form: Form) -> str:
    """The label of a form: how the parts lie."""
    return layout_text(form.placement.grid, form.layout)


def of_published(label: str, parts: Sequence[Tensor]) -> GlobalTensor:
    """The global tensor of these parts; ProtocolError if the label does not describe them."""
    homes = [part._home for part in parts]
    if len(set(homes)) < len(homes) or len(set(map(kind_of, homes))) > 1:
        return brought_together(label, parts)
    return in_form(label, parts, homes)


def brought_together(label: str, parts: Sequence[Tensor]) -> GlobalTensor:
    """The value on the first part's device, if the parts' own devices are missing here and the parts were moved."""
    before = in_form(label, parts, [f"part:{n}" for n in range(len(parts))])._form
    home = parts[0]._home
    after = Form.of(before.meta, Placement((home,), (1,)), (BROADCAST,))
    moved = [part.to_device(home) for part in parts]
    for dim, atom in enumerate(before.layout):
        if isinstance(atom, Partial):
            for group in groups(before.placement.grid, dim):
                moved[group[0]] = reduced([moved[n] for n in group], atom.reduction, home)
            before = before.at(dim, BROADCAST)
    (block,) = blocks(before, after)
    return GlobalTensor(after, [put_together(moved, block, home)] if block.pieces else moved[:1])


def in_form(label: str, parts: Sequence[Tensor], names: Sequence[str]) -> GlobalTensor:
    """The global tensor of parts on devices of these names."""
    try:
        grid, layout = parse_layout_text(label)
        rows = names if len(grid) == 1 else [names[n * grid[1] : (n + 1) * grid[1]] for n in range(grid[0])]
        where = placement(rows)
        metas = [part._known_meta() for part in parts]
        meta = Meta.of(whole_shape(metas, grid, layout), metas[0].dtype)
        form = Form.of(meta, where, layout_of(layout, len(grid), meta))
    except (MetadataError, ValueError) as error:
        raise ProtocolError(f"the parts of a global tensor do not fit each other: {error}") from None
    if tuple(metas) != form.metas:
        raise ProtocolError(f"the parts of a global tensor, {metas}, do not match {form}")
    return GlobalTensor(form, parts)


def whole_shape(metas: Sequence[Meta], grid: tuple[int, ...], layout: Layout) -> tuple[int, ...]:
    """The shape of the value with these parts, as far as they fit each other."""
    shape = list(metas[0].shape)
    for axis in {atom.axis for atom in layout if isinstance(atom, Split) and atom.axis < len(shape)}:
        dims = [dim for dim, atom in enumerate(layout) if atom == Split(axis)]
        line = [
            meta.shape[axis] if len(meta.shape) == len(shape) else 0
            for meta, coordinates in zip(metas, grid_coordinates(grid), strict=True)
            if not any(at for dim, at in enumerate(coordinates) if dim not in dims)
        ]
        shape[axis] = sum(line)
    return tuple(shape)

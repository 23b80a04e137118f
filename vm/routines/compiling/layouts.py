"""Layouts of the views in a segment: offset and strides in the memory of the *root*, the value below all views.

A view that strides cannot express is a copy: it has memory of its own, and no layout here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ....interpreter.programs.program import Program
from ....interpreter.types.meta import Meta
from ...model.plan import Plan
from .segments import Piece, is_view


class ViewLayout(NamedTuple):
    """Offset and strides of a view in the memory of its root, in bytes."""

    root: int
    offset: int
    strides: tuple[int, ...]


class LeavingView(NamedTuple):
    """A view that is used beyond its segment: its variable, the variable of its root, and its layout there."""

    variable: int
    base: int
    offset: int
    strides: tuple[int, ...]
    meta: Meta


def layouts_of(program: Program, steps: Piece, plans: Sequence[Plan]) -> dict[int, ViewLayout]:
    """The layout of each value that is a view. A value that strides cannot express is a copy, and is not included."""
    layouts: dict[int, ViewLayout] = {}
    for position, plan in zip(steps, plans, strict=True):
        if is_view(program, position):
            step = program.steps[position]
            layout = layout_of(program, layouts, step.operands[0], step.first, plan)
            if layout is not None:
                layouts[step.first] = layout
    return layouts


def layout_of(program: Program, layouts: dict[int, ViewLayout], base: int, value: int, plan: Plan) -> ViewLayout | None:
    """The layout of a view of `base`; None if the value has to be a copy."""
    under, meta, view = program.metas[base], program.metas[value], plan.op.view
    if under is None or meta is None or view is None:
        return None
    root, offset, strides = layouts.get(base) or ViewLayout(base, 0, under.strides)
    try:
        layout = view(under, (offset, strides), meta, dict(plan.attributes))
    except ValueError:  # the op forbids a copy
        return None
    return None if layout is None else ViewLayout(root, *layout)


def leaving_views(program: Program, steps: Piece, layouts: dict[int, ViewLayout]) -> list[LeavingView]:
    """The views that are used beyond the segment."""
    leaving = []
    for value, (root, offset, strides) in layouts.items():
        meta = program.metas[value]
        if program.last_use[value] >= steps.stop and meta is not None:
            variables = program.variables
            leaving.append(LeavingView(variables[value], variables[root], offset, strides, meta))
    return leaving

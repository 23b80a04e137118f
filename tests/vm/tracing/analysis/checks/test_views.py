"""The positions of views, compared with NumPy."""

from __future__ import annotations

from typing import Any

from tensord.interpreter.programs.builder import Builder
from tensord.interpreter.types.meta import Meta
from tensord.vm.tracing.analysis.checks.views import layout_of_view

from .....each_case import each_case


@each_case(
    ("shape", "op", "attributes", "offset", "strides"),
    [
        ((3,), "flip", {}, 16, (-8,)),
        ((), "flip", {}, 0, ()),
        ((3,), "getitem", {"index": (1,)}, 8, ()),
        ((), "reshape", {"shape": (1,)}, 0, (8,)),
        ((2, 3), "transpose", {}, 0, (8, 24)),
    ],
)
def test_a_view_lies_where_numpy_has_it(
    shape: tuple[int, ...], op: str, attributes: dict[str, Any], offset: int, strides: tuple[int, ...]
) -> None:
    builder = Builder()
    meta = Meta.of(shape, "float64")
    (value,) = builder.op(op, [builder.parameter(meta)], attributes)
    program = builder.finish([value])
    made = program.metas[value]
    assert made is not None
    assert layout_of_view(meta, program.steps, made) == (offset, strides)

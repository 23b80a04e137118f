"""The steps of a program that are fused, and those that are not."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import pytest

from tensord.interpreter.programs.fusion import MAX_DISTANCE, MAX_STEPS, MIN_BYTES, Fusion, find_fusions
from tensord.interpreter.programs.program import Program
from tensord.interpreter.types.meta import Meta

from ...each_case import each_case
from .passes.conftest import Writer


@pytest.fixture
def builder() -> Writer:
    return Writer()


def fusions(program: Program) -> list[Fusion]:
    return find_fusions(program, least=1)


def fused_steps(program: Program) -> list[tuple[int, ...]]:
    return [fusion.steps for fusion in fusions(program)]


def test_a_chain_is_one_fusion_whose_inner_values_are_virtual(builder: Writer) -> None:
    number = builder.constant(2)
    product = builder.call("multiply", builder.call("add", builder.call("multiply", 0, number), 1), 0)
    assert fusions(builder.finish([product])) == [
        Fusion((0, 1, 2), 0, (4, 4), 2, inputs=(0, number, 1), outputs=(product,), virtual=(3, 4), over=(-1,))
    ]


def test_comparisons_choices_casts_and_broadcasting_belong(builder: Writer) -> None:
    row = builder.captured(Meta.of((4,), "float32"))
    number = builder.captured(Meta.of((), "float32"))
    mask = builder.call("less", builder.call("add", 0, row), number)
    chosen = builder.call("where", mask, 1, builder.constant(0.0))
    program = builder.finish([builder.call("astype", chosen, dtype="float16")])
    assert fused_steps(program) == [(0, 1, 2, 3)]


def test_what_somebody_else_needs_is_an_output(builder: Writer) -> None:
    total = builder.call("add", 0, 1)
    root, power = builder.call("sqrt", total), builder.call("square", total)
    builder.print([None], [root])
    (fusion,) = fusions(builder.finish([power]))
    assert (fusion.outputs, fusion.virtual) == ((root, power), (total,))


def test_one_op_is_no_fusion(builder: Writer) -> None:
    builder.call("sum", builder.call("add", 0, 1))
    assert not fusions(builder.finish([builder.call("matmul", 0, 1)]))


@pytest.mark.parametrize("between", ["sum", "transpose", "inv", "print", "move"])
def test_what_reads_a_value_in_between_closes_the_fusion(builder: Writer, between: str) -> None:
    value = builder.call("exp", builder.call("add", 0, 1))
    if between == "print":
        builder.print([None], [value])
    elif between == "move":
        builder.move(value, 1)
    else:
        builder.call(between, value)
    program = builder.finish([builder.call("sqrt", builder.call("exp", value))])
    assert fused_steps(program) == [(0, 1), (3, 4)]


def test_what_touches_nothing_in_between_does_not(builder: Writer) -> None:
    value = builder.call("add", 0, 1)
    builder.call("inv", 0)
    builder.print([None], [1])
    builder.call("exp", 2)
    assert fused_steps(builder.finish([builder.call("sqrt", value)])) == [(0, 4)]


def test_a_write_of_what_a_fusion_reads_closes_it(builder: Writer) -> None:
    value = builder.call("add", 0, 1)
    builder.call("matmul", 1, 1, into=0)
    assert not fusions(builder.finish([builder.call("sqrt", value)]))


def test_ops_that_may_fail_or_have_another_shape_or_device_do_not_belong(builder: Writer) -> None:
    small = builder.captured(Meta.of((4,), "float32"))
    builder.call("power", builder.call("add", 2, 2), 2)
    builder.call("add", builder.call("exp", small), 0)
    builder.call("add", builder.call("exp", 0, device=1), 0, device=0)
    builder.call("sqrt", builder.call("astype", 0, dtype="int8"))
    assert not fusions(builder.finish([]))


def test_ops_on_the_same_operand_belong_together(builder: Writer) -> None:
    first, second = builder.call("sqrt", 0), builder.call("exp", 0)
    other = builder.call("abs", 1)
    assert fused_steps(builder.finish([first, second, other])) == [(0, 1)]


def test_two_fusions_become_one_where_they_meet(builder: Writer) -> None:
    left, right = builder.call("sqrt", builder.call("abs", 0)), builder.call("exp", builder.call("negative", 1))
    assert fused_steps(builder.finish([builder.call("add", left, right)])) == [(0, 1, 2, 3, 4)]


def test_a_write_in_place_is_over_the_input(builder: Writer) -> None:
    newer = builder.call("subtract", 0, builder.call("multiply", 1, builder.constant(0.1)), into=0)
    (fusion,) = fusions(builder.finish([]))
    assert (fusion.outputs, fusion.over, fusion.inputs[fusion.over[0]]) == ((newer,), (2,), 0)


def test_a_write_over_what_lies_in_the_same_memory_is_not_in_the_fusion(builder: Writer) -> None:
    view = builder.call("flip", 0, axis=None)
    builder.call("add", builder.call("exp", view), 1, into=0)
    assert not fusions(builder.finish([]))


def test_a_value_that_is_overwritten_inside_is_virtual(builder: Writer) -> None:
    builder.call("sqrt", builder.call("exp", 1, into=0), into=3)
    (fusion,) = fusions(builder.finish([]))
    assert (fusion.outputs, fusion.virtual, fusion.over) == ((4,), (3,), (-1,))


def test_small_tensors_have_no_fusions(builder: Writer) -> None:
    small, large = (builder.captured(Meta.of((size,), "float32")) for size in (MIN_BYTES // 8 - 1, MIN_BYTES // 8))
    results = [builder.call("exp", builder.call("sqrt", value)) for value in (0, small, large)]
    program = builder.finish(results)
    assert [fusion.shape for fusion in find_fusions(program)] == [(MIN_BYTES // 8,)]


def test_a_step_waits_for_others_of_its_fusion_a_while_only(builder: Writer) -> None:
    value = builder.call("sqrt", 0)
    for _ in range(MAX_DISTANCE + 1):
        builder.call("sum", 1)
    assert not fusions(builder.finish([builder.call("exp", value)]))


def test_a_long_chain_is_cut_and_found_in_time(builder: Writer) -> None:
    value = 0
    for _ in range(2000):
        value = builder.call("exp", value)
    program = builder.finish([value])
    before = perf_counter()
    found = fusions(program)
    assert perf_counter() - before < 20  # not quadratic
    assert {len(fusion.steps) for fusion in found[:-1]} == {MAX_STEPS}
    assert sum(len(fusion.steps) for fusion in found) == 2000


def tall(builder: Writer, dtype: str = "float32") -> int:
    return builder.captured(Meta.of((6, 5), dtype))


def test_what_is_computed_of_each_row_belongs_with_the_row(builder: Writer) -> None:
    x = tall(builder)
    exp = builder.call("exp", builder.call("subtract", x, builder.call("max", x, axis=-1, keepdims=True)))
    scale = builder.call("add", builder.call("sum", exp, axis=-1, keepdims=True), builder.constant(1.0))
    (fusion,) = fusions(builder.finish([builder.call("divide", exp, scale)]))
    assert (fusion.steps, fusion.shape, fusion.rows) == ((0, 1, 2, 3, 4, 5), (6, 5), 1)


@pytest.mark.parametrize(
    ("op", "attributes", "dtype"),
    [
        ("sum", {"axis": 0}, "float32"),
        ("sum", {"axis": None}, "float32"),
        ("sum", {"axis": -1, "dtype": "float64"}, "float32"),
        ("mean", {"axis": -1}, "float16"),
        ("cumulative_sum", {"axis": -1}, "float32"),
    ],
)
def test_reductions_whose_order_depends_on_more_than_the_row_stay_outside(
    builder: Writer, op: str, attributes: dict[str, Any], dtype: str
) -> None:
    root = builder.call("sqrt", builder.call("square", tall(builder, dtype)))
    assert fused_steps(builder.finish([builder.call(op, root, **attributes)])) == [(0, 1)]


def test_a_reduction_into_a_tensor_stays_outside(builder: Writer) -> None:
    x, target = tall(builder), builder.captured(Meta.of((6, 1), "float32"))
    root = builder.call("sqrt", builder.call("square", x))
    builder.op("sum", [root], {"axis": -1, "keepdims": True}, into=[target])
    assert fused_steps(builder.finish([])) == [(0, 1)]


def test_what_drops_the_axes_of_rows_is_read_by_no_step_of_the_fusion(builder: Writer) -> None:
    """Along these axes the value would broadcast differently."""
    x = builder.call("square", 0)
    sums = builder.call("sum", x, axis=-1)
    program = builder.finish([builder.call("sqrt", builder.call("add", x, sums))])
    assert fused_steps(program) == [(0, 1), (2, 3)]


def test_reductions_along_different_axes_are_in_different_fusions(builder: Writer) -> None:
    x = builder.call("square", builder.captured(Meta.of((3, 4, 5), "float32")))
    one = builder.call("max", x, axis=-1)
    assert fused_steps(builder.finish([x, one, builder.call("max", x, axis=[1, 2])])) == [(0, 1)]


@each_case("shape", [(2, (1 << 16) + 1), (1, 5), (5, 1)])
def test_rows_are_several_and_no_longer_than_the_cache(builder: Writer, shape: tuple[int, int]) -> None:
    x = builder.call("square", builder.captured(Meta.of(shape, "float32")))
    assert not fused_steps(builder.finish([x, builder.call("sum", x, axis=-1)]))


def test_small_tensors_are_looked_at_where_they_have_an_element_for_each_row_of_a_large_one(builder: Writer) -> None:
    x = builder.captured(Meta.of((1024, 1024), "float32"))
    mean = builder.call("divide", builder.call("sum", x, axis=-1, keepdims=True), builder.constant(1024.0))
    other = builder.call("sqrt", builder.call("square", builder.captured(Meta.of((1024, 2), "float32"))))
    program = builder.finish([builder.call("subtract", x, mean), other])
    assert [fusion.steps for fusion in find_fusions(program)] == [(0, 1, 4)]

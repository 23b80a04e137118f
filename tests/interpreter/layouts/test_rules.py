"""Signatures: those of a rule, with the one that always holds; of calls on parts already; and of ops without a rule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tensord.interpreter.layouts.layout import BROADCAST, Partial, Split
from tensord.interpreter.layouts.matching import matching, partial_signatures
from tensord.interpreter.layouts.rules import LayoutSignature, OpCall, Rule, divided, signatures, whole
from tensord.interpreter.types.meta import Meta

ROWS, COLUMNS = "rows", "columns"


class Op(NamedTuple):
    layouts: Rule | str


def call(*shapes: tuple[int, ...], out: tuple[int, ...] | None = None, **attributes: object) -> OpCall:
    outputs = (None if out is None else Meta.of(out, "float64"),)
    return OpCall(tuple(Meta.of(shape, "float64") for shape in shapes), attributes, outputs)


def operands(calls: list[OpCall]) -> list[tuple[int, ...]]:
    """The shapes of their first operands."""
    return [one.metas[0].shape for one in calls if isinstance(one.metas[0], Meta)]


def results(calls: list[OpCall]) -> list[tuple[int, ...]]:
    """The shapes of their first results."""
    return [one.outputs[0].shape for one in calls if one.outputs[0] is not None]


def sums_of_rows(one: OpCall, _parts: int) -> Iterator[LayoutSignature]:
    return matching(one, [[ROWS, COLUMNS]], [[ROWS]], reduction="sum", exact=lambda label: label == ROWS)


def test_an_op_without_a_rule_is_computed_everywhere():
    given = call((4, 6), out=(4,))
    assert signatures(Op("it has none"), [given], 2) == (whole(given),)


def test_a_result_whose_shape_data_decide_is_computed_everywhere():
    given = call((4, 6))
    assert signatures(Op(sums_of_rows), [given], 2) == (whole(given),)


def test_a_rules_signatures_come_first_and_the_whole_last():
    given = call((4, 6), out=(4,))
    assert signatures(Op(sums_of_rows), [given], 2) == (
        LayoutSignature((Split(0),), (Split(0),)),
        LayoutSignature((Split(1),), (Partial("sum"),), exact=False),
        whole(given),
    )


def test_a_rule_may_say_itself_that_all_is_broadcast():
    given = call((4,), out=(4,))
    assert signatures(Op(lambda one, _: [whole(one)._replace(exact=False)]), [given], 2) == (
        whole(given)._replace(exact=False),
    )


def test_a_scalar_has_no_layout():
    given = OpCall((Meta.of((4,), "float64"), float), {}, (Meta.of((4,), "float64"),))
    assert whole(given).inputs == (BROADCAST, None)
    (found,) = matching(given, [["i"], []], [["i"]])
    assert found.inputs == (Split(0), None)


def test_shares_are_uneven_and_may_be_empty():
    given = call((4, 2), out=(4,))
    rows, columns, _ = signatures(Op(sums_of_rows), [given], 3)
    assert operands(divided([given], rows, 3)) == [(2, 2), (1, 2), (1, 2)]
    assert results(divided([given], rows, 3)) == [(2,), (1,), (1,)]
    assert operands(divided([given], columns, 3)) == [(4, 1), (4, 1), (4, 0)]
    assert results(divided([given], columns, 3)) == [(4,)] * 3


def test_a_second_dimension_divides_the_calls_of_the_first():
    given = call((5, 6), out=(5,))
    rows, *_ = signatures(Op(sums_of_rows), [given], 2)
    of_rows = divided([given], rows, 2)
    rows_again, columns, _ = signatures(Op(sums_of_rows), of_rows, 2)
    assert operands(divided(of_rows, rows_again, 2)) == [(2, 6), (1, 6), (1, 6), (1, 6)]
    assert operands(divided(of_rows, columns, 2)) == [(3, 3), (3, 3), (2, 3), (2, 3)]


def test_only_what_holds_on_all_shares_holds_on_a_divided_call():
    def even(one: OpCall, parts: int) -> Iterator[LayoutSignature]:
        if operands([one])[0][0] % parts == 0:
            yield from matching(one, [["i"]], [["i"]])

    odd, given = call((3,), out=(3,)), call((6,), out=(6,))
    assert len(signatures(Op(even), [given], 2)) == 2
    assert signatures(Op(even), [given, odd], 2) == signatures(Op(even), [odd, given], 2) == (whole(given),)


def test_what_is_inexact_on_one_share_is_inexact():
    given, other = call((4,), out=(4,)), call((2,), out=(2,))

    def rule(one: OpCall, _parts: int) -> Iterator[LayoutSignature]:
        return matching(one, [["i"]], [["i"]], exact=operands([one])[0][0] > 3)

    assert [one.exact for one in signatures(Op(rule), [given, other], 2)] == [False, True]


def test_attributes_are_made_those_of_the_share():
    def rule(one: OpCall, _parts: int) -> Iterator[LayoutSignature]:
        return matching(one, [["i"]], [["i"]], localise=lambda _, piece, _part: {"shape": results([piece])[0]})

    given = call((5,), out=(5,), shape=(5,))
    assert [one.attributes for one in divided([given], signatures(Op(rule), [given], 2)[0], 2)] == [
        {"shape": (3,)},
        {"shape": (2,)},
    ]


def test_what_is_of_size_one_along_a_label_stays_whole():
    given = call((4, 6), (1, 6), (6,), out=(4, 6))
    found = list(matching(given, [["i", "j"], ["i", "j"], ["j"]], [["i", "j"]]))
    assert [one.inputs for one in found] == [(Split(0), BROADCAST, BROADCAST), (Split(1), Split(1), Split(0))]


def test_an_axis_that_an_operand_has_twice_or_without_a_label_is_not_split():
    given = call((4, 4, 3), out=(4, 3))
    assert list(matching(given, [["i", "i", None]], [["i", None]])) == []


def test_partial_operands_pass_through_what_keeps_their_dtype():
    given = call((4,), (4,), out=(4,))
    both, first = next(partial_signatures(given, "sum")), next(partial_signatures(given, "sum", of=[0]))
    assert (both.inputs, both.outputs) == ((Partial("sum"),) * 2, (Partial("sum"),))
    assert first.inputs == (Partial("sum"), BROADCAST)
    cast = given._replace(outputs=(Meta.of((4,), "float32"),))
    assert list(partial_signatures(cast, "sum")) == []
    assert [one.exact for one in partial_signatures(given, "sum", "max")] == [False, False]


def test_bools_pass_no_sum_and_complex_numbers_no_maximum():
    bools, numbers = Meta.of((4,), "bool"), Meta.of((4,), "complex64")
    assert [one.outputs for one in partial_signatures(OpCall((bools,), {}, (bools,)), "sum", "max")] == [
        (Partial("max"),)
    ]
    assert [one.outputs for one in partial_signatures(OpCall((numbers,), {}, (numbers,)), "sum", "max")] == [
        (Partial("sum"),)
    ]

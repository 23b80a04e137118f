"""Collectives as steps of programs: the builder's refusals, and that text and records read back."""

from __future__ import annotations

from typing import Any

import pytest

from tensord.interpreter.errors import MetadataError, ProtocolError
from tensord.interpreter.programs.builder import Builder
from tensord.interpreter.programs.passes.table import apply
from tensord.interpreter.programs.program import Program
from tensord.interpreter.programs.records import step_in
from tensord.interpreter.types.meta import Meta

META = Meta.of((4, 2), "float32")


def built(homes: tuple[int, ...] = (0, 1)) -> tuple[Builder, list[int]]:
    builder = Builder()
    return builder, [builder.parameter(META, home) for home in homes]


def program_of(kind: str, **given: Any) -> Program:
    builder, values = built()
    return builder.finish(list(builder.collective(kind, values, given)))


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
def test_results_are_at_home_where_the_values_are_and_the_text_reads_back(kind: str) -> None:
    program = program_of(kind, axis=1, timeout=2.0)
    assert program.homes == (0, 1, 0, 1)
    assert Program.parse(str(program)) == program
    assert program.devices == 2


def test_equal_requests_have_one_digest() -> None:
    assert program_of("all_reduce") == program_of("all_reduce", reduction="sum", merge="copy")
    assert program_of("all_reduce") != program_of("all_reduce", reduction="max")


def test_no_pass_leaves_one_out_or_shares_it() -> None:
    """A collective may fail, and each has results of its own."""
    builder, values = built()
    for _ in range(2):
        made = builder.collective("all_reduce", values)
    program = builder.finish([made[0]])
    assert [step.op for step in apply(program, ("all",)).steps] == ["all_reduce"] * 2


def test_what_does_not_fit_is_refused() -> None:
    for text, homes, kind, given in (
        ("device of its own", (0, 0), "all_reduce", {}),
        ("unknown collective 'broadcast'", (0, 1), "broadcast", {}),
        ("unknown reduction 'mean'", (0, 1), "all_reduce", {"reduction": "mean"}),
        ("out of bounds", (0, 1), "all_gather", {"axis": 2}),
        ("only the attributes", (0, 1), "all_reduce", {"colour": 1}),
        ("0 tensors", (), "all_reduce", {}),
    ):
        builder, values = built(homes)
        with pytest.raises((MetadataError, ProtocolError), match=text):
            builder.collective(kind, values, given)


@pytest.mark.parametrize(
    "fields",
    [
        ((0, 1), (), -1, None, 0),
        ((0, 1), (("axis", 0),), -1, None, 0),
        ((0, 1), tuple((name, 0) for name in ("axis", "concat_axis", "merge", "reduction", "timeout")), 0, None, 0),
        ((0, 1), tuple((name, 0) for name in ("axis", "concat_axis", "merge", "reduction", "timeout")), -1, (0,), 0),
    ],
)
def test_a_record_has_all_attributes_no_device_and_writes_nothing(fields: Any) -> None:
    with pytest.raises(ProtocolError, match="all_reduce has the attributes"):
        step_in("all_reduce", fields)


def test_hostile_attributes_of_a_record_are_refused() -> None:
    usual: dict[str, Any] = {"axis": 0, "concat_axis": 0, "library": "", "merge": "copy", "reduction": "sum"}
    usual["timeout"] = 0.0
    for name, value in (("axis", 2**70), ("merge", [[]]), ("reduction", {}), ("timeout", float("nan")), ("axis", True)):
        given = tuple((each, value if each == name else usual[each]) for each in usual)
        builder, values = built()
        with pytest.raises(MetadataError, match=f"{name} of a collective"):
            builder.add(step_in("all_reduce", (tuple(values), given, -1, None, 0)))

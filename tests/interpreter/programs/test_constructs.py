"""Steps of control flow: their operands, the required metas, and their text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tensord.interpreter.errors import MetadataError, MetadataTypeError, ProtocolError, QuotaError
from tensord.interpreter.programs.builder import Builder
from tensord.interpreter.programs.constructs import MAX_BLOCK_DEPTH, layout
from tensord.interpreter.programs.parse import parse
from tensord.interpreter.programs.passes.rebuilding import rebuilt
from tensord.interpreter.programs.program import Program
from tensord.interpreter.programs.records import RecordsReader, wire_records
from tensord.interpreter.types.meta import Meta

from ...each_case import each_case

TRUTH, INDEX, VECTOR, OTHER = (
    Meta.of(*given) for given in (((), "bool"), ((), "int64"), ((3,), "float32"), ((4,), "int8"))
)
Body = Callable[[Builder], Sequence[int]]


def block(builder: Builder, body: Body, *metas: Meta) -> Program:
    """A block with these parameters."""
    nested = builder.block()
    for meta in metas:
        nested.parameter(meta)
    return nested.finish(body(nested))


def program_with(*metas: Meta) -> Builder:
    builder = Builder()
    for meta in metas:
        builder.parameter(meta)
    return builder


def negated(builder: Builder) -> Sequence[int]:
    return builder.op("negative", [0])


def any_of_it(builder: Builder) -> Sequence[int]:
    return builder.op("any", [0])


def writes(builder: Builder) -> Sequence[int]:
    """Writes to its argument first, then captures another tensor and writes to that."""
    captured = builder.captured(VECTOR)
    builder.op("negative", [captured], into=[captured])
    (value,) = builder.op("exp", [0], into=[0])
    return builder.op("exp", [value])


def test_operands_are_the_head_the_arguments_and_what_each_block_captures():
    builder = program_with(TRUTH, VECTOR, VECTOR)
    factor = builder.number("float", "parameter")

    def scaled(nested: Builder) -> Sequence[int]:
        return nested.op("multiply", [0, ~nested.number("float", "parameter")])

    first, second = block(builder, scaled, VECTOR), block(builder, writes, VECTOR)
    values = builder.construct("cond", [0, 1, ~factor, 2], [first, second])
    (step,) = builder.finish([values[0]]).steps
    head, arguments, given = layout(step)
    assert (head, arguments) == (0, (1,))
    assert given == (((1,), (~factor,)), ((1, 2), ()))
    assert step.into == (1, 2)  # in the order of the block's parameters and captured tensors
    assert [builder.variables[value] for value in values] == [3, 1, 2]


def test_a_loop_writes_its_own_state_and_what_it_captures_of_others():
    builder = program_with(VECTOR, VECTOR)
    test, body = block(builder, any_of_it, VECTOR), block(builder, writes, VECTOR)
    builder.construct("while_loop", [0, 1], [test, body], {"max_iterations": 3})
    builder.construct("repeat_loop", [~builder.number("int", "parameter"), 0, builder.newest[1]], [body])
    program = builder.finish([])
    assert [step.into for step in program.steps] == [(1,), (3,)]
    assert program.written == (1,)


CASES: list[tuple[str, str, list[int], list[tuple[Body, tuple[Meta, ...]]], dict[str, Any], str]] = [
    ("decides by a shape", "cond", [2, 2], [(negated, (VECTOR,))] * 2, {}, "cond decides by a truth value"),
    ("decides by a bool", "case", [0, 2], [(negated, (VECTOR,))], {}, "case decides by an index.* is bool"),
    ("results differ", "cond", [0, 2], [(negated, (VECTOR,)), (any_of_it, (VECTOR,))], {}, "block 1: bool"),
    ("arguments differ", "cond", [0, 2], [(negated, (VECTOR,)), (negated, (OTHER,))], {}, "for int8"),
    ("another operand", "cond", [0, 3], [(negated, (VECTOR,))] * 2, {}, r"gives %3, int8\[4\] on d0, for float32\[3\]"),
    ("state changes", "repeat_loop", [1, 2], [(any_of_it, (VECTOR,))], {}, "the state that the body takes"),
    ("no test", "while_loop", [2], [(negated, (VECTOR,))] * 2, {"max_iterations": None}, "the test of a while_loop"),
    (
        "no bound",
        "while_loop",
        [2],
        [(any_of_it, (VECTOR,)), (negated, (VECTOR,))],
        {"max_iterations": -1},
        "max_iterations must be an int",
    ),
]


@each_case(
    ("op", "operands", "blocks", "attributes", "match"), [each[1:] for each in CASES], ids=[each[0] for each in CASES]
)
def test_what_does_not_fit_is_refused(op, operands, blocks, attributes, match):
    builder = program_with(TRUTH, INDEX, VECTOR, OTHER)
    programs = [block(builder, body, *metas) for body, metas in blocks]
    with pytest.raises(MetadataError, match=match):
        builder.construct(op, operands, programs, attributes)
    assert builder.steps == []
    assert len(builder.metas) == 4


def test_a_number_of_another_type_is_refused():
    builder = program_with(VECTOR)

    def scaled(nested: Builder) -> Sequence[int]:
        return nested.op("multiply", [0, ~nested.number("float", "parameter")])

    body, count, other = (
        block(builder, scaled, VECTOR),
        builder.number("int", "parameter"),
        builder.number("int", "draw"),
    )
    with pytest.raises(MetadataTypeError, match="for a number, which is float"):
        builder.construct("repeat_loop", [~count, 0, ~other], [body])
    with pytest.raises(MetadataTypeError, match="for a number"):
        builder.construct("repeat_loop", [~count, 0, 0], [body])


@each_case(("op", "count", "operands"), [("cond", 1, 2), ("cond", 3, 2), ("case", 0, 1), ("exp", 1, 2), ("cond", 2, 3)])
def test_the_number_of_blocks_and_operands_fits(op, count, operands):
    builder = program_with(TRUTH, VECTOR)
    blocks = [block(builder, negated, VECTOR) for _ in range(count)]
    with pytest.raises(ProtocolError):
        builder.construct(op, [0, 1, 1][:operands], blocks)


@pytest.mark.parametrize("op", ["seed", "neg"])
def test_arithmetic_is_done_outside_of_blocks(op):
    nested = Builder().block()
    nested.number("int", "parameter")
    with pytest.raises(ProtocolError, match="numbers of a block"):
        nested.number("int", op, [0] if op == "neg" else [])


def test_blocks_nest_some_levels_deep():
    builder = Builder()
    for _ in range(MAX_BLOCK_DEPTH):
        builder = builder.block()
    with pytest.raises(QuotaError, match="nested"):
        builder.block()


def test_a_program_is_no_larger_for_having_blocks():
    builder = Builder(limit=5)
    builder.parameter(VECTOR)
    nested = builder.block()
    nested.parameter(VECTOR)
    for _ in range(4):
        nested.op("negative", [0])
    for one in (nested, builder):
        with pytest.raises(QuotaError, match="at most 5 steps"):
            one.op("negative", [0])
        with pytest.raises(QuotaError, match="at most 5 steps and blocks"):
            one.block()
    assert builder.weight() == 5


def test_blocks_without_a_step_are_bounded():
    """The reader keeps each block until a step takes it: a client may not send them without end."""
    reader = RecordsReader(limit=20)
    for _ in range(20):
        reader.add(("block",))
        reader.add(("return", ()))
    with pytest.raises(QuotaError, match="at most 20 steps and blocks"):
        reader.add(("block",))
    assert reader.weight() == 20


def test_blocks_that_only_begin_are_bounded():
    reader = RecordsReader()
    for _ in range(MAX_BLOCK_DEPTH):
        reader.add(("block",))
    with pytest.raises(QuotaError, match="nested at most 16 levels"):
        reader.add(("block",))
    assert reader.weight() == MAX_BLOCK_DEPTH


def test_a_program_counts_for_what_its_records_have_counted_for():
    reader, program = RecordsReader(), parse(LOOP)
    for record in wire_records(program):
        found = reader.add(record)
    assert found == program
    assert reader.weight() == found.weight


LOOP = """\
tensord program 1
parameter %0 x: float32[3] on d1
%1: float32[3] = while_loop %0
block
    parameter %0: float32[3] on d1
    print "at", %0 {chain: 2}
    %1: bool[] = any %0 on d0
    return %1
block
    parameter %0: float32[3] on d1
    effect %0 {callback: 3}
    %1: float32[3] = negative %0 on d1
    return %1
end
print "end"
return %1"""


def test_a_program_counts_what_is_in_its_blocks():
    program = parse(LOOP)
    assert str(program) == LOOP
    assert (program.effects, program.chains, program.callbacks, program.devices) == ((0, 2, 3), 3, 4, 2)
    assert (program.depth, program.weight, program.is_data_dependent) == (2, 8, True)


@each_case(
    ("line", "text", "match"),
    [
        (3, LOOP.replace("%1: float32[3] = while", "%1: float32[4] = while"), "in the text, but while_loop makes"),
        (3, LOOP.replace("while_loop %0", "while_loop %0 into %0"), "writes in place what its blocks write: nothing"),
        (3, LOOP.replace("while_loop %0", "while_loop %0 {max_iterations: -2}"), "max_iterations"),
        (4, LOOP.replace("while_loop %0\nblock", "while_loop %0\nblo"), "after a while_loop come its blocks"),
        (14, LOOP.replace("end\nprint", "print"), "after a while_loop come its blocks"),
        (14, LOOP.replace("end\nprint", "block"), "the string|a value|expected"),
        (8, LOOP.replace("    return %1\nblock", "end\nblock"), "no step with blocks to end"),
        (3, LOOP.replace("%1: float32[3] = while_loop %0\n", ""), "a block comes after a step"),
    ],
)
def test_an_error_names_the_line(line, text, match):
    with pytest.raises((ProtocolError, MetadataError), match=rf"^line {line}: .*({match})"):
        parse(text)


def test_a_text_that_ends_within_a_block_is_no_program():
    with pytest.raises(ProtocolError, match="ends with a return"):
        parse(LOOP[: LOOP.index("end")])


def built(records: Sequence[Any]) -> Program | None:
    reader = RecordsReader()
    return next((found for record in records if (found := reader.add(record))), None)


def test_records_of_blocks_come_before_their_step():
    records = list(wire_records(parse(LOOP)))
    assert built(records) == parse(LOOP)
    (begins,) = [n for n, record in enumerate(records) if record[0] == "while_loop"]
    assert [n for n, record in enumerate(records) if record == ("block",)] == [1, 6]
    for damaged in (
        [*records[:begins], ("print", (), (("chain", 0), ("parts", ()), ("sep", " ")), -1, None, None)],
        [*records[:begins], ("return", ())],
        [*records[:1], ("block", 3)],
        [*records[:1], ("while_loop", (0,), (("max_iterations", None),), -1, None, None)],
        [*records[:begins], ("while_loop", (0,), (("max_iterations", None),), 0, None, None)],
        [*records[:begins], ("while_loop", (0,), (("max_iterations", None),), -1, (0,), None)],
        [*records[:begins], ("while_loop", (0,), (), -1, None, None)],
    ):
        with pytest.raises((ProtocolError, MetadataError)):
            built(damaged)


def test_what_differs_in_a_block_differs_in_the_digest():
    assert parse(LOOP) != parse(LOOP.replace("negative", "positive"))
    assert parse(LOOP) == parse(re.sub("any %0 on d0", "any %0 on d0  # here", LOOP))


def test_passes_keep_blocks():
    program = parse(LOOP)
    assert rebuilt(program, program.steps) == program

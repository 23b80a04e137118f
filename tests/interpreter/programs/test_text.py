"""The text of a program: readable, and sufficient for the parser to make the same program."""

from __future__ import annotations

import math
import struct
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from tensord.interpreter import ops as _ops  # noqa: F401 - fills the registry
from tensord.interpreter.programs.builder import Builder
from tensord.interpreter.programs.program import Program
from tensord.interpreter.programs.text import attribute_text, defaults, quoted
from tensord.interpreter.programs.tokens import TokenLine
from tensord.interpreter.schema.opdef import REGISTRY, REQUIRED
from tensord.interpreter.types.meta import Meta

from ...each_case import each_case
from .programs import PROGRAMS

TRAINING = """\
tensord program 1
number $0 rate: float
number $1: float = neg $0
number $2: int = 3
number $3: int = seed
number $4: int = draw
parameter %0 x: float32[128, 64] on d0
captured %1 "params['w']": float32[64, 256] on d0
%2: float32[128, 256] = matmul %0, %1 on d0                     # train.py:31 in step
%3: float32[1, 32768] = reshape %2 {shape: [1, -1]} on d0
%4: float32[64, 256] = multiply %1, $1 on d0
%5: float32[64, 256] = add %1, %4 into %1 on d0                 # train.py:33 in step < train.py:50 in main
%6: float32[64, 256] = to_device %5 on d1
%7: float32[128, 128], %8: float32[64], %9: float32[64, 64] = svd %0 on d0
%10: ? = nonzero %8 on d0
%11: float64[3] = uniform $3, $4 {shape: [3], high: 2.5} on d0
%12: float32[5] = getitem %2 {index: [0, 250:255]} on d0
print "loss", %12 {chain: 1, sep: "\\t"}
effect %6, %10 {callback: 0}
%13: float32[2], %14: int64[] = host_call %6, %10 {callback: 1, metas: [[[2], "float32"], [[], "int64"]]} on d1
return %3, %10"""


def numbers(*values: Any) -> list[str]:
    """The texts of constants."""
    builder = Builder()
    for value in values:
        builder.number(type(value).__name__, "constant", value=value)
    return [line.partition(" = ")[2] for line in str(builder.finish([])).splitlines()[1:-1]]


def returned(text: str) -> Any:
    """The value read from the text of a constant or an attribute."""
    line = TokenLine(text)
    value = line.attribute()
    assert line.finish() is None
    return value


def bits(value: float) -> bytes:
    return struct.pack("<d", value)


# -- the form of the text ----------------------------------------------------------------------------------------------


def test_a_text_shows_everything():
    assert str(Program.parse(TRAINING)) == TRAINING


@given(PROGRAMS)
def test_a_text_is_read_back_as_the_same_program(program):
    again = Program.parse(str(program))
    assert again == program
    assert str(again) == str(program)
    assert [step._replace(location=None) for step in again.steps] == [
        step._replace(location=None) for step in program.steps
    ]
    for field in ("parameters", "captured", "results", "metas", "homes", "variables", "devices", "chains", "callbacks"):
        assert getattr(again, field) == getattr(program, field)


def count_of_lines(program):
    own = len(program.numbers) + program.inputs + len(program.steps) + 1
    return own + sum(
        bool(step.blocks) + sum(1 + count_of_lines(block) for block in step.blocks) for step in program.steps
    )


@given(PROGRAMS)
def test_a_text_has_a_printable_line_for_each_part(program):
    lines = str(program).split("\n")
    assert all(line.isprintable() for line in lines)
    assert len(lines) == 1 + count_of_lines(program)


def test_the_program_of_nothing_has_a_text():
    assert str(Builder().finish([])) == "tensord program 1\nreturn"


# -- attributes and constants ------------------------------------------------------------------------------------------

FLOATS = (0.0, 0.1, 1.0, -1.5, 1e16, 1e-5, 5e-324, 1.7976931348623157e308, 2.0**70)
INTEGERS = (0, 1, -1, 3, 127, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63))
STRINGS = (
    "",
    "a",
    "linear",
    "tanh",
    "none",
    "reduced",
    "ortho",
    "left",
    "same",
    "nuc",
    "inf",
    "-inf",
    "2**64",
    "...",
    "ij,jk->ik",
)
TUPLES = ((), (1,), (0, 1), (-1, 2), (1, 2, 3), ((0,), (1,)), ((), ()), (0.0, 1.5), (1e300, 2.0), (None, 0, "..."))
SLICES = tuple((slice(*parts),) for parts in [(None,), (1, None), (1, 5), (None, None, -1), (0, 2**62, 2)])
CANDIDATES = (
    *(None, True, False, 1j, complex(-1.5, 0.1), "float32", "int64", "tensor", ("tensor", 0, "tensor")),
    *(*FLOATS, math.inf, -math.inf, *INTEGERS, *STRINGS, *TUPLES, *SLICES),
)
ATTRIBUTES = [(op.name, attribute) for op in REGISTRY.values() for attribute in op.attributes]


@each_case(("op", "attribute"), ATTRIBUTES, ids=lambda part: getattr(part, "name", part))
def test_each_attribute_comes_back_in_its_normal_form(op, attribute):
    """Bit for bit, and type for type: `repr` shows both."""
    taken = 0
    for candidate in CANDIDATES:
        try:
            normal = attribute.check(candidate)
        except (TypeError, ValueError, OverflowError, IndexError):
            continue
        taken += 1
        assert repr(attribute.check(returned(attribute_text(normal)))) == repr(normal), op
    assert taken


@each_case(("op", "attribute"), ATTRIBUTES, ids=lambda part: getattr(part, "name", part))
def test_a_default_is_left_out_if_it_is_exactly_that(op, attribute):
    if attribute.default is REQUIRED:
        assert attribute.name not in defaults(op)
    else:
        assert defaults(op)[attribute.name] == repr(attribute.check(attribute.default))


def test_numbers_of_different_types_are_told_apart():
    text = "tensord program 1\n%0: {}[3] = arange {{start: {}, stop: 3}} on d0\nreturn %0"
    assert Program.parse(text.format("int64", 0)) != Program.parse(text.format("float64", 0.0))
    assert str(Program.parse(text.format("float64", 0.0))) == text.format("float64", 0.0)


@given(st.floats())
def test_floats_come_back_bit_for_bit(value):
    (text,) = numbers(value)
    assert bits(returned(text)) == bits(value)


@each_case("pattern", [0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000000000001, 0xFFFFFFFFFFFFFFFF])
def test_each_nan_comes_back_bit_for_bit(pattern):
    (value,) = struct.unpack("<d", struct.pack("<Q", pattern))
    (text,) = numbers(value)
    assert bits(returned(text)) == bits(value)
    assert (text == "nan") == (pattern == 0x7FF8000000000000)


@given(st.complex_numbers())
@example(complex(math.inf, -math.inf))
@example(complex(math.nan, -0.0))
def test_complex_numbers_come_back_bit_for_bit(value):
    (text,) = numbers(value)
    found = returned(text)
    assert type(found) is complex
    assert (bits(found.real), bits(found.imag)) == (bits(value.real), bits(value.imag))


@given(st.integers(-(2**63), 2**64 - 1))
def test_integers_come_back(value):
    assert [type(returned(text)) for text in numbers(value)] == [int]
    assert [returned(text) for text in numbers(value)] == [value]


def test_constants_look_as_in_python():
    assert numbers(True, -7, 0.5, math.inf, -math.inf, math.nan, 1 - 2j) == [
        "True",
        "-7",
        "0.5",
        "inf",
        "-inf",
        "nan",
        "complex(1.0, -2.0)",
    ]


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_strings_come_back(text):
    assert quoted(text).isprintable()
    assert returned(quoted(text)) == text


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text('ab"\\]\n'),
        lambda inner: st.lists(inner, max_size=4).map(tuple),
        max_leaves=12,
    )
)
def test_tuples_of_anything_come_back(value):
    assert repr(returned(attribute_text(value))) == repr(value)


@each_case(
    ("value", "text"),
    [
        (("slice", None, None, None), ":"),
        (("slice", 1, None, None), "1:"),
        (("slice", None, -1, None), ":-1"),
        (("slice", None, None, -1), "::-1"),
        (("slice", 0, 2, 2), "0:2:2"),
        (("slice", True, 2, 2), '["slice", True, 2, 2]'),
        (("slice", 0, 2), '["slice", 0, 2]'),
        ((1,), "[1]"),
        (("float", 0.5), "0.5"),
        (("float", 1), '["float", 1]'),
        (("complex", 0.5, -1.0), "complex(0.5, -1.0)"),
    ],
)
def test_tuples_that_stand_for_something_look_like_it(value, text):
    assert attribute_text(value) == text


# -- names and locations -----------------------------------------------------------------------------------------------


@given(st.text(st.characters(exclude_categories=["Cs", "Cc", "Cf", "Zl", "Zp", "Zs", "Cn", "Co"]), max_size=20))
def test_names_come_back(name):
    builder = Builder()
    builder.number("int", "parameter", name=name)
    builder.parameter(Meta.of((), "bool"), name=name)
    again = Program.parse(str(builder.finish([])))
    assert again.numbers[0].name == again.parameters[0].name == name


def one_step(location: Any) -> Program:
    builder = Builder()
    builder.op("zeros", [], {"shape": ()}, location=location)
    return builder.finish([])


@each_case(
    "location",
    [
        "train.py:31 in step",
        "a # b",
        "# a",
        "  spaces  ",
        '"quoted" in "x',
        "C:\\new\\x41",
        "%0: ? = no {op}",
        "é😀",
        " ",
    ],
)
def test_locations_come_back(location):
    again = Program.parse(str(one_step(location)))
    assert again.steps[0].location == location
    assert str(again) == str(one_step(location))


@each_case("location", [None, 7, "", ("a",), b"x"])
def test_a_location_that_is_no_text_is_left_out(location):
    assert "#" not in str(one_step(location))


@each_case("location", ["a\nreturn", "\0", "\u2028", "\r", "\ud800", "x" * 5000, "\n" * 5000])
def test_a_location_stays_in_its_line(location):
    text = str(one_step(location))
    assert len(text.splitlines()) == 3
    assert len(text) < 2000
    assert str(Program.parse(text)) == text

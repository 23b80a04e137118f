"""Parsing programs: the refused texts, the line in each error, and the time."""

from __future__ import annotations

import pytest
from hypothesis import given

import tensord as td
from tensord.interpreter.errors import (
    MetadataError,
    MetadataOverflowError,
    MetadataTypeError,
    ProtocolError,
    QuotaError,
    TensordError,
)
from tensord.interpreter.programs import parse as parse_module
from tensord.interpreter.programs.builder import MAX_NAME_LENGTH, MAX_PARTS, MAX_TEXT_LENGTH, Builder
from tensord.interpreter.programs.parse import MAX_LINE_LENGTH, MAX_LINES, MAX_PROGRAM_LENGTH, parse
from tensord.interpreter.schema.infer import MAX_OPERANDS
from tensord.interpreter.types.meta import Meta

from ...each_case import each_case
from .mangling import check_text, mangled_text
from .programs import SOURCES, random_program

HEAD = """\
tensord program 1
number $0: int
number $1: int = 300
parameter %0 x: float32[3] on d0
parameter %1 i: int8[3] on d0
captured %2 w: float32[4, 3] on d1
"""


def refused(text: str, error: type[TensordError], match: str) -> TensordError:
    with pytest.raises(error, match=match) as caught:
        parse(text)
    assert len(str(caught.value)) < 500
    assert str(caught.value).replace("\n", "").isprintable()
    return caught.value


def step(line: str) -> str:
    """A program of that step, or of that other line."""
    return f"{HEAD}{line}\nreturn"


# -- accepted texts ----------------------------------------------------------------------------------------------------


def test_a_text_is_a_program():
    program = parse(step("%3: float32[4, 3] = add %2, %0 on d1"))
    assert program == td.Program.parse(str(program))
    assert [source.name for source in (*program.parameters, *program.captured)] == ["x", "i", "w"]
    assert (program.steps[0].op, program.steps[0].operands, program.steps[0].device) == ("add", (2, 0), 1)


def test_blank_lines_comments_and_spaces_do_not_count():
    text = "tensord program 1\nparameter %0 x: float32[3] on d0\n%1: float32[3] = add %0, %0 on d0\nreturn %1"
    loose = (
        "\n# a program\n  # of mine\ntensord  program 1 # begins\r\n\n  parameter %0 x:float32 [ 3 ] on d0 # x\r\n"
        "%1:float32[3]=add %0,%0 on d0\n\nreturn %1# that is all\n\n# the end\n"
    )
    assert str(parse(loose)) == text


def test_attributes_may_be_in_any_order_and_say_defaults():
    short = parse(step("%3: float32[3] = sum %2 {axis: 0} on d0"))
    assert short == parse(step("%3: float32[3] = sum %2 {keepdims: False, dtype: None, axis: 0} on d0"))
    assert short != parse(step("%3: float32[3] = sum %2 {axis: [0]} on d0"))


def test_numbers_may_be_named_where_they_are_needed():
    text = step("number $2: int = add $0, $1\n%3: int8[3] = add %1, $2 on d0")
    assert len(parse(text).numbers) == 3


def test_escapes_are_those_of_python():
    (made,) = parse(step(r'print "\n\r\t\\\"\x41\u00e9\U0001f600\x00"')).steps
    assert dict(made.attributes)["parts"] == ('\n\r\t\\"Aé😀\0',)


# -- refusals, with their lines ----------------------------------------------------------------------------------------


@each_case(
    ("line", "error", "match"),
    [
        # grammar
        ("%3", ProtocolError, "expected ':', not the end of the line"),
        ("%3: float32[3]", ProtocolError, "expected '=', not the end"),
        ("%3: float32[3] =", ProtocolError, "expected an op, not the end"),
        ("%3: float32[3] = exp", ProtocolError, "expected 'on', not the end"),
        ("%3: float32[3] = exp %0", ProtocolError, "expected 'on', not the end"),
        ("%3: float32[3] = exp %0 on", ProtocolError, "expected a device such as d0, not the end"),
        ("%3: float32[3] = exp %0 on 0", ProtocolError, "expected a device such as d0, not '0'"),
        ("%3: float32[3] = exp %0 on cpu", ProtocolError, "'cpu' is not a device"),
        ("%3: float32[3] = exp %0 on d0 d1", ProtocolError, "expected the end of the line, not 'd1'"),
        ("%3: float32[3] = exp %0 %1 on d0", ProtocolError, "expected 'on', not '%1'"),
        ("%3: float32[3] = exp %0, on d0", ProtocolError, "expected a value such as %0, not 'on'"),
        ("%3: float32[3] = exp 3 on d0", ProtocolError, "expected 'on', not '3'"),
        ("%3: float32[3] = exp %0 into on d0", ProtocolError, "expected a value such as %0, not 'on'"),
        ("%3: float32[3 = exp %0 on d0", ProtocolError, "expected ']', not '='"),
        ("%3: float32[3.0] = exp %0 on d0", ProtocolError, "expected an integer, not '3.0'"),
        ("%3: float32 = exp %0 on d0", ProtocolError, r"expected '\[', not '='"),
        ("%3: float32[3] = %0 on d0", ProtocolError, "expected an op, not '%0'"),
        ("%3: = exp %0 on d0", ProtocolError, "expected a dtype or"),
        ("%3: float32[3] = sum %2 {axis} on d0", ProtocolError, "expected ':', not '}'"),
        ("%3: float32[3] = sum %2 {axis: } on d0", ProtocolError, "expected a value, not '}'"),
        ("%3: float32[3] = sum %2 {axis: 0 on d0", ProtocolError, "expected '}', not 'on'"),
        ("%3: float32[3] = sum %2 {} on d0", ProtocolError, "expected the name of an attribute"),
        ("%3: float32[3] = sum %2 {axis: zero} on d0", ProtocolError, "unknown value 'zero'; strings are in quotes"),
        ("%3: float32[3] = sum %2 {axis: 0, axis: 1} on d0", ProtocolError, "'axis' occurs twice"),
        ("%3: float32[3] = sum %2 {axis: (0)} on d0", ProtocolError, r"expected a value, not '\('"),
        ("$3 = exp", ProtocolError, "expected an op"),
        ("exp !", ProtocolError, "unexpected '!'"),
        ("%3: float32[3] = exp %-1 on d0", ProtocolError, "unexpected '%-1 on d0'"),
        # strings
        ('print "loss', ProtocolError, 'without its closing "'),
        ('print "loss\\"', ProtocolError, 'without its closing "'),
        (r'print "\q"', ProtocolError, r"unknown escape \\q"),
        (r'print "\x4"', ProtocolError, r"unknown escape \\x"),
        (r'print "\ud800"', ProtocolError, r"unknown character \\ud800"),
        (r'print "\U00110000"', ProtocolError, r"unknown character \\U00110000"),
        ('print "\t"', ProtocolError, "which is not printable"),
        ("print loss", ProtocolError, "expected the end of the line, not 'loss'"),
        ('print "loss", 3', ProtocolError, "expected a string, not '3'"),
        ('print "x" {end: ""}', ProtocolError, "print has the attributes sep and chain"),
        ('print "x" {chain: 64}', ProtocolError, "not a chain"),
        ('print "x" {sep: 1}', ProtocolError, "has texts"),
        ('print "x" on d0', ProtocolError, "expected the end of the line, not 'on'"),
        ("effect %0", ProtocolError, "effect has the attributes callback and chain"),
        ("effect %0 {callback: -1}", ProtocolError, "not a callback"),
        ("effect $0 {callback: 0}", ProtocolError, "expected the end of the line"),
        # control characters
        ("\0", ProtocolError, "holds '.x00', which is not printable"),
        ("%3:\tfloat32[3] = exp %0 on d0", ProtocolError, "which is not printable"),
        ("# \x1b[31m", ProtocolError, "which is not printable"),
        ("# \u202e", ProtocolError, "which is not printable"),
        ("%3: float32[3] = exp %0 on d0 # \u2028", ProtocolError, "which is not printable"),
        ("\ufeff", ProtocolError, "which is not printable"),
        ("\ud800", ProtocolError, "which is not printable"),
        ("a\rb", ProtocolError, "which is not printable"),
        # order
        ("%4: float32[3] = exp %0 on d0", ProtocolError, "%4 is named where %3 comes next"),
        ("%0: float32[3] = exp %0 on d0", ProtocolError, "%0 is named where %3 comes next"),
        ("%3: float32[3] = exp %3 on d0", ProtocolError, "there is no value %3 yet"),
        ("%3: float32[3] = add %0, $2 on d0", ProtocolError, r"there is no number \$2 yet"),
        ("number $3: int = 1", ProtocolError, r"\$3 is named where \$2 comes next"),
        ("number $2: int = neg $2", ProtocolError, "takes 1 earlier number"),
        ("parameter %3: float32[3] on d0", ProtocolError, "parameters come before"),
        ("captured %4: float32[3] on d0", ProtocolError, "%4 is named where %3 comes next"),
        ("print\ncaptured %3: float32[3] on d0", ProtocolError, "captured tensors come before steps"),
        ("return\nprint", ProtocolError, "the return is the last line"),
        ("return %0", ProtocolError, "tensor from outside"),
        ("return 0", ProtocolError, "expected the end of the line, not '0'"),
        ("return %3", ProtocolError, "there is no value %3"),
        # numbers
        ("number $2: str = 1", ProtocolError, "not a type of a number"),
        ("number $2: int = 1.0", ProtocolError, "a constant of int cannot have the value 1.0"),
        ("number $2: float = 1", ProtocolError, "a constant of float cannot have the value 1"),
        ('number $2: int = "1"', ProtocolError, "cannot have the value '1'"),
        ("number $2: int = [1]", ProtocolError, "cannot have the value"),
        ("number $2: int = 1:2", ProtocolError, "cannot have the value"),
        ("number $2: int = None", ProtocolError, "cannot have the value"),
        ("number $2: int = 18446744073709551616", MetadataError, "more than 64 bits"),
        ("number $2: float = 1e999", MetadataError, "too large; infinity is inf"),
        ("number $2: float = 1.", ProtocolError, "unexpected '.'"),
        ('number $2: float = nan("7ff0000000000000")', ProtocolError, "not the bits of a NaN"),
        ('number $2: float = nan("x")', ProtocolError, "not the bits of a NaN"),
        ("number $2: complex = complex(1, 2)", ProtocolError, "expected a float such as 1.0, not '1'"),
        ("number $2: complex = complex(1.0)", ProtocolError, "expected ',', not"),
        ("number $2: float = sqrt $0", ProtocolError, "unknown arithmetic 'sqrt'"),
        ("number $2: int = add $0", ProtocolError, "takes 2 earlier numbers"),
        ("number $2: int = add $0 $1", ProtocolError, "expected the end of the line"),
        ("number $2: int = truediv $0, $1", MetadataTypeError, "is float, not int"),
        ("number $2: float = seed", ProtocolError, "a seed is an int"),
        # metas
        ("parameter %3: ? on d0", MetadataError, "a tensor from outside has a shape"),
        ("%3: float33[3] = exp %0 on d0", MetadataTypeError, "unknown dtype 'float33'; did you mean float32"),
        ("%3: x[3] = exp %0 on d0", MetadataTypeError, "unknown dtype 'x'; use one of bool, int8"),
        ("%3: float32[-1] = exp %0 on d0", MetadataError, "negative dimension"),
        ("%3: float32[9223372036854775807, 2] = exp %0 on d0", MetadataError, "too large for any memory"),
        ("%3: float32[4] = exp %0 on d0", MetadataError, r"%3 is float32\[4\] in the text, but exp makes float32\[3\]"),
        ("%3: float64[3] = exp %0 on d0", MetadataError, r"%3 is float64\[3\] in the text, but exp makes float32\[3\]"),
        ("%3: ? = exp %0 on d0", MetadataError, r"%3 is \? in the text, but exp makes float32\[3\]"),
        ("%3: int64[2] = nonzero %0 on d0", MetadataError, r"int64\[2\] in the text, but nonzero makes \?"),
        ("exp %0 on d0", MetadataError, "exp makes 1 result, and the text names 0"),
        ("%3: float32[3], %4: float32[3] = exp %0 on d0", MetadataError, "makes 1 result, and the text names 2"),
        ("%3: float32[3] = print %0", MetadataError, "print makes 0 results, and the text names 1"),
        # ops
        ("%3: float32[3] = expp %0 on d0", MetadataError, "unknown op 'expp'; did you mean exp"),
        ("%3: float32[3] = exp %0, %0 on d0", MetadataTypeError, "takes 1 operand, not 2"),
        ("%3: float32[3] = add %0, %1 on d0", MetadataTypeError, "do not mix"),
        ("%3: int8[3] = add %1, $1 on d0", MetadataOverflowError, "does not fit int8"),
        ("%3: float32[3] = sum %2 {axes: 0} on d0", MetadataError, "unknown attribute 'axes'"),
        ("%3: float32[3] = sum %2 {axis: 2} on d0", MetadataError, "axis"),
        ("%3: float32[3] = exp %0 into %2 on d0", MetadataError, "does not fit out="),
        ("%3: float32[3] = exp %0 into %3 on d0", ProtocolError, "there is no value %3"),
        ("%3: float32[3] = exp %0 on d64", ProtocolError, "64 is not a device"),
        ("%3: float32[3] = to_device %0", ProtocolError, "expected 'on'"),
        ("%3: float32[3] = to_device %0, %0 on d1", ProtocolError, "expected 'on', not ','"),
        ("%3: float32[3] = to_device %0 into %0 on d1", ProtocolError, "expected 'on', not 'into'"),
        ("%3: float32[3] = to_device %0 on d64", ProtocolError, "64 is not a device"),
    ],
)
def test_a_line_that_is_wrong_is_refused_and_named(line, error, match):
    found = refused(step(line), error, match)
    number = 7 + line.count("\n")
    assert str(found).startswith(f"line {number}: ")


def test_an_error_shows_its_line_and_its_op():
    found = refused(step("%3: float32[3] = exp %2 on d0  # a.py:1 in f"), MetadataError, "the text")
    assert found.op == "exp"
    assert str(found).endswith("\n    %3: float32[3] = exp %2 on d0  # a.py:1 in f")


@each_case("text", ["", "\n\n", "# tensord program 1", "program 1", "tensord", "tensord programs 1", "\0"])
def test_a_text_says_what_it_is(text):
    refused(text, ProtocolError, "begins with 'tensord program 1'|not printable|expected")


@each_case("version", ["0", "2", "-1", "99999999999999999999"])
def test_a_text_of_another_version_is_refused(version):
    refused(f"tensord program {version}\nreturn", ProtocolError, f"is of version {version}; .* reads version 1")


@each_case("version", ["one", "", "1.0", "1 2"])
def test_a_version_is_a_number(version):
    refused(f"tensord program {version}\nreturn", ProtocolError, "line 1: expected")


def test_a_text_ends_with_its_return():
    refused(HEAD, ProtocolError, "ends with a return")
    refused("tensord program 1\nreturn %0", ProtocolError, "line 2: there is no value %0")


@each_case("text", [b"tensord program 1\nreturn", None, 1, ["tensord program 1", "return"]])
def test_a_text_is_a_string(text):
    with pytest.raises(MetadataTypeError, match="is a str, not"):
        parse(text)


@each_case(
    ("line", "match"),
    [
        ("%3: float32[3] = zeros {shape: [[[[[[[[[1]]]]]]]]]} on d0", "nested at most 8 levels deep"),
        ("%3: float32[3] = zeros {shape: " + "[" * 1000, "nested at most 8 levels deep"),
        ("%3: float32[3] = exp %9999999999 on d0", "beyond what a program may have"),
        ("number $9999999999: int", "beyond what a program may have"),
        ("%3: float32[3] = exp %0 on d9999999999", "beyond what a program may have"),
    ],
)
def test_nothing_is_deep_or_far(line, match):
    refused(step(line), ProtocolError, match)


# -- size and time -----------------------------------------------------------------------------------------------------


def long_line(begin: str, repeated: str, end: str = "") -> str:
    """A line so long that parsing in more than linear time would take minutes."""
    return step(begin + repeated * (LONG_LINE // len(repeated)) + end)


LONG_LINE = 1 << 18


LONG = {
    "digits": long_line("number $2: int = ", "9"),
    "decimals": long_line("number $2: float = 0.", "9"),
    "exponents": long_line("number $2: float = 1e", "9"),
    "slots": long_line("number $2: int = neg $", "9"),
    "values": long_line("return %", "9"),
    "a version": long_line("return\ntensord program ", "9"),
    "brackets": long_line("%3: float32[3] = zeros {shape: ", "["),
    "elements": long_line("%3: float32[3] = zeros {shape: [", "1,"),
    "attributes": long_line("%3: float32[3] = zeros {", "a:1,"),
    "operands": long_line("%3: float32[3] = concat ", "%0,"),
    "results": long_line("", "%3: float32[3],"),
    "dimensions": long_line("parameter %3: float32[", "1,"),
    "texts": long_line("print ", '"",'),
    "a text": long_line('print "', "a", '"'),
    "a text of escapes": long_line('print "', "\\n", '"'),
    "a text without end": long_line('print "', "a"),
    "escapes without end": long_line('print "', '\\"'),
    "a word": long_line("", "a"),
    "a name": long_line("parameter %3 ", "a", ": float32[3] on d0"),
    "a dtype": long_line("parameter %3: ", "a"),
    "an op": long_line("%3: float32[3] = ", "a", " %0 on d0"),
    "an attribute": long_line("%3: float32[3] = zeros {", "a", ": 1} on d0"),
    "spaces": long_line("print ", " ", "!"),
    "minus signs": long_line("number $2: int = ", "-"),
    "dots": long_line("number $2: float = 1", ".1"),
}


@each_case("text", LONG.values(), ids=LONG.keys())
def test_a_long_line_is_refused_at_once(text):
    refused(text, TensordError, "line 7|line 8")


def test_the_longest_line_that_a_builder_makes_is_read():
    builder = Builder()
    builder.parameter(Meta.of((1,), "int8"), name='"' * MAX_NAME_LENGTH)
    builder.print([None] * (MAX_PARTS - 1) + ["\U000e0001" * (MAX_TEXT_LENGTH - 1)], [0] * (MAX_PARTS - 1))
    builder.effect(0, [0] * MAX_PARTS)
    builder.op("concat", [0] * MAX_OPERANDS, {"axis": 0}, location="\0" * MAX_LINE_LENGTH)
    builder.op("getitem", [0], {"index": (slice(-(2**63), -(2**63), -(2**63)), *[None] * 63)})
    program = builder.finish([])
    assert parse(str(program)) == program


def test_a_text_and_its_lines_have_limits():
    refused(
        "#" * (MAX_LINE_LENGTH + 1) + "\n" + HEAD + "return",
        QuotaError,
        f"line 1: a line has at most {MAX_LINE_LENGTH} characters",
    )
    refused("\n" * MAX_LINES + HEAD + "return", QuotaError, f"and {MAX_LINES} lines")
    refused(
        HEAD + "return\n" + ("#" * (MAX_LINE_LENGTH // 2) + "\n") * (2 * MAX_PROGRAM_LENGTH // MAX_LINE_LENGTH),
        QuotaError,
        f"{MAX_PROGRAM_LENGTH} characters",
    )


def test_there_are_as_many_steps_as_a_builder_takes(monkeypatch):
    monkeypatch.setattr(parse_module, "Builder", lambda: Builder(limit=3))
    found = refused(HEAD + "print\n" * 4 + "return", QuotaError, "at most 3 steps")
    assert str(found).startswith("line 10: ")


# -- arbitrary texts ---------------------------------------------------------------------------------------------------


@given(SOURCES)
def test_a_mangled_text_is_a_program_or_refused(rnd):
    text = str(random_program(rnd, 8))
    for _ in range(4):
        check_text(mangled_text(text, rnd))

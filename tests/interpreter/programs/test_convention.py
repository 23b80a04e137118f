"""Calling conventions: the records of nested arguments and results, and refusals."""

from __future__ import annotations

from typing import Any

import pytest

from tensord.interpreter.errors import MetadataTypeError, ProtocolError
from tensord.interpreter.programs.builder import Builder
from tensord.interpreter.programs.convention import (
    MAX_DEPTH,
    MAX_NODES,
    MAX_TEXT_LENGTH,
    ArgumentSlot,
    CallingConvention,
    Fixed,
    Nested,
    decode,
    encode,
    weight_of,
)
from tensord.interpreter.programs.numbers import PARAMETER
from tensord.interpreter.programs.program import Program
from tensord.interpreter.types.meta import Meta
from tensord.interpreter.wire.codec import Encoder
from tensord.interpreter.wire.codec import decode as decode_header

from ...each_case import each_case

ONE = Meta.of((1,), "float64")


def program() -> Program:
    """(x, y, n; captured w): x + n, y * w."""
    builder = Builder()
    x, y, n = builder.parameter(ONE), builder.parameter(ONE), builder.number("float", PARAMETER)
    w = builder.captured(ONE)
    return builder.finish([*builder.op("add", [x, ~n]), *builder.op("multiply", [y, w])])


X, Y, N = ArgumentSlot("parameter", 0), ArgumentSlot("parameter", 1), ArgumentSlot("number", 0, 0.5)
BOTH = Nested("dict", "", ("x", 3, None), (X, Y, Fixed("text")))
RESULT = Nested(
    "named",
    "Sums",
    ("total", "rest"),
    (
        ArgumentSlot("result", 1),
        Nested(
            "list",
            "",
            (),
            (ArgumentSlot("captured", 0), ArgumentSlot("number", 0), ArgumentSlot("parameter", 1), Fixed(2 + 1j)),
        ),
    ),
)
WHOLE = CallingConvention(
    "f", (("p", BOTH),), (("rate", N), ("at", Nested("slice", "", (), (Fixed(None),) * 3))), RESULT
)


def test_a_convention_survives_the_wire() -> None:
    packed = Encoder().encode((1, encode(WHOLE)))
    assert decode(decode_header(packed, 1 << 16)[1], program()) == WHOLE


ARGUMENTS = (("x", "y", "n"), (("parameter", 0, None), ("parameter", 1, None), ("number", 0, None)), (), ())


def of(*result: Any) -> Any:
    """A convention with that result."""
    return ("f", *ARGUMENTS, result)


def deep(levels: int) -> Any:
    node: Any = ("fixed", None, None)
    for _ in range(levels):
        node = ("list", "", (), (node,))
    return node


@each_case(
    "wire",
    [
        (),
        {},
        None,
        {"f": 1},
        of(),
        of("fixed", None),
        of("fixed", [1], None),
        of("fixed", b"bytes", None),
        of("nothing", 0, None),
        of(["fixed"], 0, None),
        of("result", 2, None),
        of("result", -1, None),
        of("result", True, None),
        of("result", 0, 1),
        of("number", 0, "x"),
        of("number", 1, None),
        of("captured", 1, None),
        of("tuple", "", ("a",), (("fixed", 1, None),)),
        of("tuple", "", (), 5),
        of("slice", "", (), ()),
        of("dict", "", (1,), ()),
        of("dict", "", ([],), (("fixed", 1, None),)),
        of("dict", "", (1, 1), (("fixed", 1, None), ("fixed", 1, None))),
        of("named", "S", ("_make",), (("fixed", 1, None),)),
        of("named", "S", ("class",), (("fixed", 1, None),)),
        of("named", "S)", ("a",), (("fixed", 1, None),)),
        of("fields", "S", ("__class__",), (("fixed", 1, None),)),
        of("fields", "S", (), (("fixed", 1, None),)),
        of("fixed", "x" * (MAX_TEXT_LENGTH + 1), None),
        of("list", "", (), (("fixed", 1, None),) * (MAX_NODES + 1)),
        of(*deep(MAX_DEPTH + 1)),
        of(*deep(5000)),
        (5, *ARGUMENTS, ("fixed", None, None)),
        ("f", ("x", "x"), (("parameter", 0, None), ("parameter", 1, None)), (), (), ("fixed", None, None)),
        ("f", ("x",), (("parameter", 0, None),), (), (), ("fixed", None, None)),
        ("f", *ARGUMENTS[:2], ("r",), (("result", 0, None),), ("fixed", None, None)),
    ],
)
def test_what_is_no_convention_for_the_program_is_refused(wire: Any) -> None:
    with pytest.raises(ProtocolError, match="convention is damaged") as caught:
        decode(wire, program())
    assert len(caught.value.message) < 300


@each_case(
    ("node", "said"),
    [
        (Fixed(object()), "the result is a object, which has no meaning"),
        (Fixed(2**70), "the result is a int"),
        (Nested("dict", "", ("a", (1, 2)), (X, X)), "the result has the key tuple"),
        (Nested("list", "", (), (Fixed(b""),)), r"the result\.0 is a bytes"),
        (Fixed("x" * (MAX_TEXT_LENGTH + 1)), "longer than 65536 characters"),
        (Fixed("\ud800"), "no Unicode"),
        (Nested("list", "", (), (X,) * MAX_NODES), "more than 4096 parts"),
    ],
)
def test_what_cannot_travel_says_where_it_is(node: Any, said: str) -> None:
    with pytest.raises(MetadataTypeError, match=said):
        encode(WHOLE._replace(result=node))


def test_a_large_one_weighs_as_many_steps() -> None:
    assert weight_of(of("fixed", "x" * 2560, None)) >= 10
    assert weight_of(of("list", "", (), (("fixed", 1, None),) * 1600)) >= 100

"""Programs as records: every program arrives unchanged, and no record does harm."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensord.interpreter.errors import MetadataError, ProtocolError, QuotaError, TensordError
from tensord.interpreter.programs.records import RecordsReader, wire_records
from tensord.interpreter.wire.codec import Encoder, decode

from ...each_case import each_case
from .mangling import built, check_records, mangled_records
from .programs import INFER, PROGRAMS, SOURCES, random_program

BEGIN = [
    ("number", "int", "parameter", (), None, ""),
    ("number", "int", "constant", (), 300, ""),
    ("parameter", ((3,), "float32"), 0, "x"),
    ("captured", ((4, 3), "float32"), 0, "w"),
]
PRINT = (("chain", 0), ("parts", ("x", None)), ("sep", " "))
EFFECT = (("callback", 0), ("chain", 0))


def travelled(value: Any) -> Any:
    """A header's field after encoding and decoding."""
    return decode(Encoder().encode([0, value]), 1 << 24)[1]


def refused(record: Any, error: type[TensordError] = ProtocolError, match: str = ".") -> None:
    with pytest.raises(error, match=match) as caught:
        built([*BEGIN, record])
    assert len(str(caught.value)) < 500


@given(PROGRAMS)
def test_a_program_arrives_as_it_was(program):
    records = travelled(list(wire_records(program)))
    again = built(records)
    assert again is not None
    assert again == program
    assert again.steps == program.steps
    assert (again.metas, again.homes, again.variables) == (program.metas, program.homes, program.variables)


def test_lists_do_as_well_as_tuples():
    for record in (["parameter", [[3], "float32"], 0, "x"], ["exp", [0], [], 0, None, None], ["return", [2]]):
        assert isinstance(record, list)
    assert built([*BEGIN, ["exp", [0], [], 0, None, None], ["return", [2]]]) == built(
        [*BEGIN, ("exp", (0,), (), 0, None, None), ("return", (2,))]
    )


def test_nothing_is_a_program_before_its_return():
    assert built(BEGIN) is None
    assert built([*BEGIN, ("return", ())]) is not None


@each_case("record", [None, 0, True, "return", b"return", {}, {"return": ()}, (), [], (0,), (b"return", ()), ((),)])
def test_a_record_is_an_array_that_begins_with_a_word(record):
    refused(record, match="is not a record of a program")


@each_case(
    "record",
    [
        ("number",),
        ("number", "int", "parameter", (), None),
        ("number", "int", "parameter", (), None, "", ""),
        ("number", 1, "parameter", (), None, ""),
        ("number", "int", 1, (), None, ""),
        ("number", "int", "neg", 0, None, ""),
        ("number", "int", "neg", ("0",), None, ""),
        ("number", "int", "neg", (True,), None, ""),
        ("number", "int", "neg", (2,), None, ""),
        ("number", "int", "neg", (-1,), None, ""),
        ("number", "int", "neg", {"0": 0}, None, ""),
        ("number", "int", "constant", (), (1, 2), ""),
        ("number", "int", "parameter", (), None, 1),
        ("captured", ((3,), "float32"), 0),
        ("captured", None, 0, ""),
        ("captured", "float", 0, ""),
        ("captured", "nonsense", 0, ""),
        ("captured", ((3,), "float33"), 0, ""),
        ("captured", ((3,), ("float32",)), 0, ""),
        ("captured", ((-3,), "float32"), 0, ""),
        ("captured", ((2**62, 2**62), "float32"), 0, ""),
        ("captured", ((1,) * 65, "float32"), 0, ""),
        ("captured", (("3",), "float32"), 0, ""),
        ("captured", (("3" * 5000,), "float32"), 0, ""),
        ("captured", ((True,), "float32"), 0, ""),
        ("captured", (3, "float32"), 0, ""),
        ("captured", {"shape": (), "dtype": ""}, 0, ""),
        ("captured", ((3,), "float32"), -1, ""),
        ("captured", ((3,), "float32"), 0.0, ""),
        ("captured", ((3,), "float32"), 0, "\n"),
        ("parameter", ((3,), "float32"), 0, "late"),
        ("exp",),
        ("exp", (0,), (), 0, None),
        ("exp", 0, (), 0, None, None),
        ("exp", (0.0,), (), 0, None, None),
        ("exp", b"\0", (), 0, None, None),
        ("exp", "0", (), 0, None, None),
        ("exp", (1,), (), 0, b"\1", None),
        ("return", b""),
        ("number", "int", "neg", b"\0", None, ""),
        ("print", (), (("chain", 0), ("parts", "x"), ("sep", " ")), -1, None, None),
        ("exp", (2,), (), 0, None, None),
        ("exp", (-3,), (), 0, None, None),
        ("exp", (0,), 0, 0, None, None),
        ("exp", (0,), (0,), 0, None, None),
        ("exp", (0,), ((),), 0, None, None),
        ("exp", (0,), "ab", 0, None, None),
        ("exp", (0,), (("a", 0, 0),), 0, None, None),
        ("exp", (0,), (({}, 0),), 0, None, None),
        ("exp", (0,), ((0, 0),), 0, None, None),
        ("exp", (0,), (), -1, None, None),
        ("exp", (0,), (), None, None, None),
        ("exp", (0,), (), 0, 0, None),
        ("exp", (0,), (), 0, (), None),
        ("exp", (0,), (), 0, (2,), None),
        ("exp", (0,), (), 0, ("x",), None),
        ("exp", (0,), (), 0, None, ()),
        ("exp", (0,), (), 0, None, 1.5),
        ("exp", (0,), (), 0, None, b"train.py"),
        ("sum", (0,), (("axis", ((((((((((0,),),),),),),),),),)),), 0, None, None),
        ("sum", (0,), {"axis": {"axis": 0}}, 0, None, None),
        ("to_device", (), (), 0, None, None),
        ("to_device", (0, 0), (), 0, None, None),
        ("to_device", (-1,), (), 0, None, None),
        ("to_device", (0,), (("chain", 0),), 0, None, None),
        ("to_device", (0,), (), 0, (0,), None),
        ("to_device", (0,), (), -1, None, None),
        ("print", (0,), PRINT, 0, None, None),
        ("print", (0,), PRINT, -1, (0,), None),
        ("print", (0,), PRINT[:2], -1, None, None),
        ("print", (0,), (*PRINT, ("end", "")), -1, None, None),
        ("print", (), PRINT, -1, None, None),
        ("print", (0,), (("chain", 0), ("parts", "x"), ("sep", " ")), -1, None, None),
        ("print", (0,), (("chain", 0), ("parts", (0, None)), ("sep", " ")), -1, None, None),
        ("print", (0,), (("chain", 64), ("parts", (None,)), ("sep", " ")), -1, None, None),
        ("effect", (0,), EFFECT, 0, None, None),
        ("effect", (0,), EFFECT[1:], -1, None, None),
        ("effect", (0,), (("callback", "f"), ("chain", 0)), -1, None, None),
        ("effect", (-1,), EFFECT, -1, None, None),
        ("return",),
        ("return", 0),
        ("return", (0,)),
        ("return", (2,)),
        ("return", ("0",)),
        ("return", (), ()),
        ("no such op", (0,), (), 0, None, None),
    ],
    ids=lambda record: repr(record)[:80],
)
def test_a_damaged_record_is_refused(record):
    refused(record, TensordError)
    refused(travelled(record), TensordError)


def test_what_an_op_does_not_take_is_refused_as_at_a_call():
    refused(("sum", (0,), (("axes", 0),), 0, None, None), MetadataError, "unknown attribute")
    refused(("exp", (0,), (), 0, (1,), None), MetadataError, "does not fit out=")


def test_attributes_are_nested_a_few_levels_deep():
    deep: Any = 0
    for _ in range(900):
        deep = (deep,)
    refused(("sum", (0,), (("axis", deep),), 0, None, None), match="nested more than 8 levels")
    refused(("print", (), (("chain", 0), ("parts", deep), ("sep", " ")), -1, None, None), match="nested more than 8")


def test_what_is_too_large_is_refused():
    reader = RecordsReader(INFER, limit=2)
    reader.add(BEGIN[0])
    reader.add(BEGIN[0])
    with pytest.raises(QuotaError):
        reader.add(BEGIN[0])


@each_case("location", [None, "train.py:3 in f", "", 0, 2**40])
def test_locations_travel_and_count_for_nothing(location):
    program = built([*BEGIN, ("exp", (0,), (), 0, None, location), ("return", ())])
    assert program is not None
    assert program.steps[0].location == location
    assert program == built([*BEGIN, ("exp", (0,), (), 0, None, 3), ("return", ())])


def test_the_order_of_attributes_counts_for_nothing_and_defaults_may_be_left_out():
    full = ("sum", (1,), (("keepdims", False), ("dtype", None), ("axis", 0)), 0, None, None)
    short = ("sum", (1,), {"axis": 0}, 0, None, None)
    assert built([*BEGIN, full, ("return", (2,))]) == built([*BEGIN, short, ("return", (2,))])


# -- arbitrary records -------------------------------------------------------------------------------------------------

CARRIED = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)
WORDS = st.sampled_from(
    ["number", "parameter", "captured", "return", "to_device", "print", "effect", "add", "sum", "setitem"]
)


@given(
    st.lists(
        st.tuples(WORDS) | st.builds(lambda word, rest: (word, *rest), WORDS, st.lists(CARRIED, max_size=6)), max_size=4
    )
)
def test_whatever_msgpack_carries_is_a_program_or_refused(records):
    check_records([*BEGIN, *msgpack.unpackb(msgpack.packb(records), use_list=False)])


@given(SOURCES)
def test_mangled_records_are_a_program_or_refused(rnd):
    check_records(mangled_records(list(wire_records(random_program(rnd, 8))), rnd))

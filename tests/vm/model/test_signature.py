"""Attributes as text: only those given, within the size limit of a record."""

from __future__ import annotations

from tensord.interpreter import ops as _ops  # noqa: F401 - fills the registry
from tensord.interpreter.schema.opdef import find
from tensord.interpreter.types.meta import Meta
from tensord.vm.model.signature import attributes_of, brief, plain

from ...each_case import each_case


def test_attributes_with_their_defaults_are_left_out():
    op = find("sum")
    assert attributes_of(op, op.freeze({})) == ""
    assert attributes_of(op, op.freeze({"axis": (0,), "keepdims": True})) == "axis=(0,), keepdims=True"


@each_case(
    ("value", "text"),
    [
        ((), "()"),
        ((1,), "(1,)"),
        (tuple(range(9)), "(0, 1, 2, 3, 4, 5, 6, 7, ...)"),
        ((((((1,),),),),), "((((...),),),)"),
        ("x" * 99, repr("x" * 40) + "..."),
        (b"x" * 99, repr(b"x" * 40) + "..."),
        (None, "None"),
        (float("nan"), "nan"),
    ],
)
def test_values_are_cut(value, text):
    assert brief(value) == text


def test_the_text_of_all_attributes_is_cut():
    op = find("reshape")
    assert len(attributes_of(op, (("shape", tuple(10**15 + n for n in range(99))), ("copy", "y" * 40)))) <= 200


def test_plain_metas():
    assert plain(Meta.of((2, 3), "int8")) == ((2, 3), "int8")
    assert plain(int) == (None, "int")
    assert plain(None) == (None, "")

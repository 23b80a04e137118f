"""Small calls made from the definitions of ops: valid ones of every op, or the attributes that it requires."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensord.interpreter import ops as _ops  # noqa: F401 - fills the registry
from tensord.interpreter.errors import MetadataError
from tensord.interpreter.schema.opdef import REGISTRY, REQUIRED, OpDef
from tensord.interpreter.schema.sample_calls import Wish, check_callable, ops_of, samples, values_of, wish_of
from tensord.interpreter.types.meta import Meta

from ...each_case import each_case


def needs_attributes(op: OpDef) -> bool:
    return any(attribute.default is REQUIRED for attribute in op.attributes)


@each_case("op", list(REGISTRY.values()))
def test_every_op_has_valid_calls_or_the_attributes_that_it_needs_are_named(op: OpDef) -> None:
    if needs_attributes(op):
        with pytest.raises(MetadataError, match=f"^{op.name} requires "):
            samples(op, Wish(op.name))
        return
    found = samples(op, Wish(op.name))
    assert len(set(map(str, found))) == len(found) > 0
    assert {len(one.operands) for one in found} == {op.least_operands()}


def shown(entry: object) -> list[str]:
    wish = wish_of(entry)
    return [str(sample) for op in ops_of(wish) for sample in samples(op, wish)]


def test_an_elementwise_op_is_called_with_numbers_too() -> None:
    assert shown("add:float32,int8") == [
        "add(int8[8, 8], int8[8, 8])",
        "add(int8[8, 8], 2)",
        "add(float32[8, 8], float32[8, 8])",
        "add(float32[8, 8], 2)",
        "add(float32[8, 8], 2.5)",
    ]


def test_a_dtype_is_given_to_the_operands_that_may_have_it() -> None:
    assert shown("where:float32") == ["where(bool[8, 8], float32[8, 8], float32[8, 8])"]
    assert shown("take:float64") == ["take(float64[8], int64[8])"]


def test_shapes_and_attributes_can_be_given() -> None:
    table = {"op": "sum", "dtypes": ["float32"], "shapes": [[4, 6]], "attributes": {"axis": 1}}
    assert shown(table) == ["sum(float32[4, 6])"]
    assert shown({"op": "zeros", "attributes": {"shape": [3]}}) == ["zeros()"]
    assert shown({"op": "matmul", "dtypes": ["float32"], "shapes": [[4, 6], [6, 2]]}) == [
        "matmul(float32[4, 6], float32[6, 2])"
    ]


def test_a_pattern_fits_several_ops_also_such_as_cannot_be_called_without_more() -> None:
    assert [op.name for op in ops_of(wish_of("zeros*"))] == ["zeros", "zeros_like"]
    check_callable(wish_of("zeros*"))
    assert len(ops_of(wish_of("*"))) == len(REGISTRY)


@each_case(
    ("entry", "told"),
    [
        ("mulitply", "unknown op 'mulitply'; did you mean multiply?"),
        ("nothing*", "unknown op 'nothing*'"),
        ("add:flot32", "unknown dtype 'flot32'; did you mean float32"),
        ("invert_nothing", "unknown op"),
        ("bitwise_and:float32", "bitwise_and does not take float32 (it takes bool, int8"),
        (3, "must be"),
        ({"dtypes": []}, "must be"),
        ({"op": "add", "shaps": []}, "has no key 'shaps' (known: op, dtypes, shapes, attributes, device)"),
        ({"op": "add", "dtypes": "float32"}, "dtypes must be a list"),
        ({"op": "add", "shapes": [4]}, "shapes must be a list of lists"),
        ({"op": "add", "shapes": [[-4]]}, "shapes must be a list of lists"),
        ({"op": "add", "device": 0}, "the device a name"),
    ],
)
def test_a_mistake_in_an_entry_is_named(entry: Any, told: str) -> None:
    with pytest.raises(MetadataError) as raised:
        wish_of(entry)
    assert told in raised.value.message


@each_case(
    ("entry", "told"),
    [
        ("zeros", "zeros requires shape"),
        ({"op": "sum", "shapes": [[4, 4]], "attributes": {"axis": 5}}, "axis 5 is out of bounds"),
        ({"op": "solve", "shapes": [[3, 4]]}, "must be square"),
        ({"op": "add", "attributes": {"axis": 1}}, "unknown attribute 'axis'"),
    ],
)
def test_an_op_that_cannot_be_called_so_says_why(entry: Any, told: str) -> None:
    with pytest.raises(MetadataError) as raised:
        check_callable(wish_of(entry))
    assert told in raised.value.message


def test_values_have_an_inverse_and_are_positions_within_anything() -> None:
    assert (values_of(Meta.of((8, 8), np.dtype(np.float64))) == np.eye(8)).all()
    assert set(values_of(Meta.of((2, 8, 8), np.dtype(np.int64))).ravel()) == {0, 1}
    assert values_of(Meta.of((3,), np.dtype(bool))).all()

"""Descriptions of ops: complete, of JSON's types, from the definition alone."""

from __future__ import annotations

import json

import tensord.interpreter.ops  # noqa: F401 - fills the registry
from tensord.interpreter.schema.attributes import AXIS, SHAPE
from tensord.interpreter.schema.op_table import by_family, operands_by_dtypes, shown
from tensord.interpreter.schema.opdef import REGISTRY, VARIADIC, OpDef
from tensord.interpreter.schema.opdoc import SCALAR, description_of
from tensord.interpreter.types import kinds
from tensord.interpreter.types.meta import DTYPES

from ...each_case import each_case


def an_op(**options):
    def infer(metas, _attributes):
        return metas[:1]

    return OpDef(**{"name": "made", "inputs": 2, "infer": infer, "summary": "Made up.", **options})


@each_case("name", sorted(REGISTRY))
def test_every_op_can_be_described(name):
    op = REGISTRY[name]
    found = description_of(op)
    assert json.loads(json.dumps(found))["name"] == name
    assert found["summary"] == op.summary
    assert len(found["operands"]) >= op.inputs
    assert [a["name"] for a in found["attributes"]] == [a.name for a in op.attributes]
    for operand in found["operands"]:
        assert set(operand["dtypes"]) <= set(DTYPES)
        assert operand["takes"]


def test_a_definition_is_told_in_full():
    op = an_op(
        operands=("x", "n"),
        dtypes=(kinds.REAL, kinds.BOOLEAN),
        attributes=(SHAPE, AXIS),
        outputs=2,
        dynamic=True,
        needs=("linalg.eig",),
    )
    found = description_of(op)
    assert found["operands"] == [
        {"name": "x", "use": "required", "takes": "real-valued", "dtypes": [n for n in DTYPES if n in kinds.REAL]},
        {"name": "n", "use": "required", "takes": "boolean", "dtypes": ["bool"]},
    ]
    assert found["attributes"] == [
        {"name": "shape", "required": True, "default": None},
        {"name": "axis", "required": False, "default": None},
    ]
    rest = {name: found[name] for name in ("family", "results", "dynamic", "view", "composite", "needs")}
    assert rest == {
        "family": "Test opdoc",
        "results": 2,
        "dynamic": True,
        "view": False,
        "composite": False,
        "needs": ["linalg.eig"],
    }


@each_case(
    ("inputs", "operands", "expected"),
    [
        (0, (), ()),
        (1, (), ("x",)),
        (2, (), ("x1", "x2")),
        (3, (), ("x1", "x2", "x3")),
        (VARIADIC, (), ("inputs",)),
        (VARIADIC, ("x", "sorter"), ("x", "sorter")),
        (2, ("dy", "y"), ("dy", "y")),
    ],
)
def test_operands_without_a_name_get_the_usual_one(inputs, operands, expected):
    op = an_op(inputs=inputs, operands=operands)
    assert op.operand_names() == expected


@each_case(
    ("least", "operands", "uses", "counts"),
    [
        (1, ("x", "weight", "bias"), ["x", "[weight]", "[bias]"], (1, 3)),
        (2, ("x", "tensor"), ["x", "tensor..."], (2, None)),
        (1, (), ["inputs..."], (1, None)),
    ],
)
def test_which_operands_may_be_left_out_and_which_repeat(least, operands, uses, counts):
    op = an_op(inputs=VARIADIC, least=least, operands=operands)
    assert [shown(operand) for operand in description_of(op)["operands"]] == uses
    assert (op.least_operands(), op.most_operands()) == counts


@each_case(
    ("dtypes", "takes"),
    [
        (kinds.ANY, "all"),
        (kinds.INTEGER_OR_BOOLEAN, "integer or boolean"),
        (kinds.REAL | kinds.BOOLEAN, "real-valued or boolean"),
        (kinds.REAL_FLOATING | kinds.BOOLEAN, "real floating-point or boolean"),
        (frozenset({"int8", "bool"}), "bool, int8"),
        (frozenset(), SCALAR),
    ],
)
def test_dtypes_are_called_by_their_kind(dtypes, takes):
    (first, _) = description_of(an_op(dtypes=(dtypes,)))["operands"]
    assert first["takes"] == takes


def test_neighbours_that_take_the_same_stand_together():
    op = an_op(inputs=4, operands=("a", "b", "c", "d"), dtypes=(kinds.REAL, kinds.REAL, kinds.BOOLEAN))
    assert [(names, first["takes"]) for names, first in operands_by_dtypes(description_of(op))] == [
        (["a", "b"], "real-valued"),
        (["c", "d"], "boolean"),
    ]


def test_families_hold_every_op_once():
    families = by_family(map(description_of, REGISTRY.values()))
    names = [op["name"] for members in families.values() for op in members]
    assert sorted(names) == sorted(REGISTRY)
    assert len(families) < len(names) / 5
    assert {"relu", "cross_entropy", "softmax"} <= {op["name"] for op in families["Neural networks"]}

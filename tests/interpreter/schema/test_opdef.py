"""OpDef: freezing attributes, binding kernels, the registry."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.errors import MetadataError
from tensord.interpreter.schema.opdef import OpDef, find, lacking, register
from tensord.interpreter.types.meta import Meta
from tensord.vm.engine import INLINE_WORK

from ...each_case import each_case


def test_attributes_are_frozen_in_schema_order_with_defaults():
    assert find("sum").freeze({"keepdims": True, "axis": [0, 1]}) == (
        ("axis", (0, 1)),
        ("dtype", None),
        ("keepdims", True),
    )
    assert find("add").freeze(None) == ()


def test_frozen_attributes_freeze_to_themselves():
    calls: list[tuple[str, dict[str, Any]]] = [
        ("getitem", {"index": (0, slice(1, None), ...)}),
        ("arange", {"start": 1.5}),
    ]
    for name, attributes in calls:
        frozen = find(name).freeze(attributes)
        assert find(name).freeze(dict(frozen)) == frozen


@each_case(
    ("name", "given", "message"),
    [
        ("sum", {"axes": 0}, r"unknown attribute 'axes' \(known: axis, dtype, keepdims\)"),
        ("add", {"alpha": 1}, r"unknown attribute 'alpha' \(known: none\)"),
        ("add", {1: 1, "alpha": 1}, "unknown attribute 1"),
        ("reshape", {}, "attribute 'shape' is required"),
        ("sum", {"axis": "x"}, "attribute 'axis': expected an int, got str"),
        ("zeros", {"shape": 1, "dtype": "float128"}, "attribute 'dtype': .*not supported"),
    ],
)
def test_a_wrong_attribute_is_named(name, given, message):
    with pytest.raises(MetadataError, match=message) as caught:
        find(name).freeze(given)
    assert caught.value.op == name


def test_an_unknown_op_is_answered_with_near_ones():
    with pytest.raises(MetadataError, match="unknown op 'mulitply'; did you mean multiply"):
        find("mulitply")


def test_a_name_is_defined_once():
    with pytest.raises(ValueError, match="defined twice"):
        register(find("add"))


def test_a_ufunc_is_bound_as_it_is():
    assert find("add").bind(np, 2, {}) is np.add


def test_an_op_without_kernel_does_not_bind():
    op = OpDef(name="hollow", inputs=1, infer=lambda _metas, _: (None,), summary="")
    with pytest.raises(MetadataError, match="hollow has no kernel"):
        op.bind(np, 1, {})


def test_an_aliased_output_is_stored_last():
    x = np.arange(9.0).reshape(3, 3)
    expected = x @ x
    find("matmul").bind(np, 2, {}, aliased=True)(x, x, x)
    np.testing.assert_array_equal(x, expected)


def test_work_is_the_largest_operand_unless_the_op_knows_better():
    x = Meta.of((100, 100), "float32")
    assert find("add").estimate((x, int), (x,), {}) == 10_000
    assert find("exp").estimate((x,), (x,), {}) == 80_000
    assert find("matmul").estimate((x, x), (x,), {}) == 125_000
    assert find("matmul").estimate((x, x), (None,), {}) > 0
    assert find("sum").estimate((x,), (Meta.of((), "float32"),), {}) == 10_000
    assert find("unique_values").estimate((x,), (None,), {}) > 100_000
    assert find("getitem").estimate((x,), (Meta.of((2,), "float32"),), {}) == 2
    assert find("cross_entropy").estimate((x, Meta.of((100,), "int64")), (Meta.of((), "float32"),), {}) == 80_000


def test_work_counts_what_no_vector_unit_computes_with_as_more():
    def estimate(name, dtype, *, count=1):
        x = Meta.of((1000,), dtype)
        return find(name).estimate((x,) * count, (x,), {})

    assert estimate("sqrt", "complex64") == 8 * estimate("sqrt", "float64")
    assert estimate("multiply", "float16", count=2) == 16 * estimate("multiply", "float64", count=2)
    assert estimate("exp", "float16") == 16 * estimate("exp", "float32")
    assert estimate("remainder", "int64", count=2) == estimate("exp", "float64")
    wide, half = Meta.of((1000,), "float64"), Meta.of((1000,), "float16")
    assert find("astype").estimate((wide,), (half,), {}) == 16_000


@pytest.mark.parametrize("name", ["remainder", "floor_divide"])
def test_a_division_of_floats_that_takes_a_microsecond_for_each_element_is_work(name):
    x = Meta.of((10_000,), "float64")
    assert find(name).estimate((x, x), (x,), {}) > INLINE_WORK


def test_a_device_lacks_what_its_array_module_lacks():
    names = {name: getattr(np, name) for name in dir(np) if name not in {"linalg", "arctan2", "__version__"}}
    partial = SimpleNamespace(**names, linalg=SimpleNamespace(qr=np.linalg.qr))
    missing = lacking(partial)
    assert {"eigh", "atan2", "svd"} <= missing
    assert missing.isdisjoint({"qr", "add", "sum", "getitem"})
    assert find("eigh").lacks(partial) == "linalg.eigh"
    assert lacking(np) == frozenset()


def test_only_close_names_are_proposed():
    with pytest.raises(MetadataError, match=r"unknown op 'matmull'; did you mean matmul\?$"):
        find("matmull")

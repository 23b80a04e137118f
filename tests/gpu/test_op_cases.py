"""The cases of the ops come from their definitions, so that a new op is proven, too."""

from __future__ import annotations

import numpy as np
import pytest

from tensord.interpreter.schema.attributes import check_int
from tensord.interpreter.schema.opdef import Attribute, OpDef, find

from ..each_case import each_case
from .op_cases import SAMPLES, all_ops, cases, dtypes_of, far_apart, is_valid, special_values


def like_first(metas, _attributes):
    return (metas[0],)


def whats(op: str, dtype: str) -> set[str]:
    return {case.what for case in cases(find(op), dtype)}


@each_case("op", all_ops(), ids=lambda op: op.name)
def test_every_op_has_cases_with_each_dtype(op):
    """Otherwise `SAMPLES` in tests/gpu/op_cases.py lacks a value for an attribute, or one that fits a dtype."""
    for dtype in dtypes_of(op):
        found = cases(op, dtype, most=1)
        assert found, dtype
        assert is_valid(op, found[0])


@pytest.mark.parametrize(("op", "dtype"), [("add", "float16"), ("multiply", "int8"), ("where", "bool")])
def test_an_elementwise_op_is_called_with_every_arrangement(op, dtype):
    assert {"plain", "0-d", "empty", "broadcast", "strided"} <= whats(op, dtype)
    assert any(what.startswith("a scalar") for what in whats(op, dtype))


def test_a_reduction_of_a_rare_dtype_is_compiled_for_few_lengths():
    assert {"long", "images"} <= whats("sum", "float64")
    assert "long" not in whats("sum", "int16")
    assert "images" in whats("conv2d", "float16")


def test_special_functions_have_operands_at_which_a_loop_might_not_end():
    (case,) = far_apart(find("betaincinv"), "float64")
    a, b, p = case.operands
    assert ((a < 1e-308) & (b < 1e-308) & (p > 0) & (p < 1)).any()
    assert is_valid(find("betaincinv"), case)
    assert not [*far_apart(find("betaincinv"), "float32"), *far_apart(find("add"), "float64")]


def test_every_attribute_has_another_value_than_its_default_in_some_case():
    seen = {name for case in cases(find("sum"), "float32") for name in case.attributes}
    assert seen == {"axis", "keepdims", "dtype"}


def test_an_op_that_nobody_has_thought_of_has_cases():
    op = OpDef(
        "new", 1, like_first, "New.", attributes=(Attribute("k", check_int),), kernel=lambda *_: None, elementwise=True
    )
    found = cases(op, "int32")
    assert {case.attributes["k"] for case in found} == set(SAMPLES["k"])
    assert "special values" in {case.what for case in found}


@each_case("dtype", ["float16", "float32", "float64", "complex64"])
def test_special_values_of_floats(dtype):
    values = special_values(dtype)
    assert values.dtype == dtype
    real = values.real
    assert np.isnan(real).any()
    assert np.isinf(real).any()
    assert (np.signbit(real) & (real == 0)).any()
    if dtype != "complex64":
        assert np.finfo(dtype).smallest_subnormal in values
        on_gpu = special_values(dtype, subnormal=False)
        assert (np.finfo(dtype).smallest_subnormal in on_gpu) == (dtype == "float16")
        assert np.finfo(dtype).max in values


@pytest.mark.parametrize("dtype", ["int8", "uint64"])
def test_special_values_of_integers_are_its_limits(dtype):
    values = special_values(dtype)
    assert values.dtype == dtype
    assert {np.iinfo(dtype).min, np.iinfo(dtype).max} <= set(values.tolist())

"""The tests' notion of equality, on a host and on a GPU."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from . import special_values as policy
from .equality import assert_equal, is_all_open, is_on_gpu, least, may_give_a_value, why_unequal
from .stand_in import VARIABLE

ROOT = Path(__file__).parent.parent

NEAR = np.nextafter(np.float32(1), np.float32(2))


@pytest.fixture
def on_gpu(monkeypatch):
    monkeypatch.setenv(VARIABLE, "sim=cuda:0")


def test_a_gpu_is_one_or_stands_in_for_something(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert [is_on_gpu(name) for name in ("cpu:0", "sim:0", "cuda:0")] == [False, False, True]
    monkeypatch.setenv(VARIABLE, "sim=cuda:0")
    assert [is_on_gpu(name) for name in ("cpu:0", "sim:0")] == [False, True]
    monkeypatch.setenv(VARIABLE, "sim=cpu:0")
    assert not is_on_gpu("sim:0")


@pytest.mark.usefixtures("on_gpu")
def test_on_a_host_equal_is_equal():
    one, near = np.ones(1, np.float32), np.full(1, NEAR)
    assert_equal("cpu:0", "sin", one, one)
    with pytest.raises(AssertionError):
        assert_equal("cpu:0", "sin", near, one)


@pytest.mark.parametrize("op", ["sin", "matmul", "histogram", "log_softmax"])
@pytest.mark.usefixtures("on_gpu")
def test_on_a_gpu_rounding_is_free_within_bounds(op):
    one, near, far = np.ones(1, np.float32), np.full(1, NEAR), np.full(1, np.float32(1.001))
    assert_equal("sim:0", op, near, one)
    with pytest.raises(AssertionError, match="instead of"):
        assert_equal("sim:0", op, far, one)


@pytest.mark.parametrize("op", ["take", "no op at all"])
@pytest.mark.usefixtures("on_gpu")
def test_what_does_not_round_is_exact_on_a_gpu(op):
    with pytest.raises(AssertionError, match="instead of"):
        assert_equal("sim:0", op, np.full(1, NEAR), np.ones(1, np.float32))


def test_the_documentation_has_the_bounds():
    page = (ROOT / "docs/gpu.md").read_text().partition("## What counts as equal")[2].partition("\n## ")[0]
    rows = dict(line.strip("| ").split(" | ", 1) for line in page.splitlines() if " | " in line)
    numbers = [[float(n) for n in re.findall(r"(\d+) (?:ulp|units|where)", said)] for said in rows.values()]
    assert list(filter(None, numbers)) == [
        [policy.ULP_ONCE],
        [policy.ULP, policy.ULP_COMPLEX],
        [policy.SCALED, policy.SCALED_BY_LIBRARIES],
        [policy.OF_TABLES],
    ]
    named = next(what for what in rows if what.startswith("the sign of a zero"))
    assert set(re.findall(r"`(\w+)`", named)) == {op for op in policy.EITHER_ZERO if not op.startswith("unique")}


@pytest.mark.parametrize(
    ("dtype", "gpu", "subnormal"),
    [("float16", True, True), ("float32", True, False), ("float64", True, False), ("float32", False, True)],
)
def test_the_smallest_number_is_subnormal_where_there_are_such(dtype, gpu, subnormal):
    assert (least(dtype, gpu=gpu) < np.finfo(dtype).smallest_normal) == subnormal


def test_an_infinity_leaves_all_of_a_transform_open_and_nothing_of_a_sum():
    finite, infinite = np.ones(3), np.array([1, np.inf, 2])
    assert is_all_open("fft", [finite, infinite])
    assert is_all_open("convolve", [np.ones(2), infinite])
    for op, values in (("fft", [finite]), ("sum", [infinite]), ("no op", [infinite]), ("fft", [])):
        assert not is_all_open(op, values), op


def test_special_values_that_the_standard_leaves_open_are_not_compared():
    x = np.array([0, 2], np.int32)
    assert why_unequal("reciprocal", np.array([7, 0], np.int32), np.array([-1, 0], np.int32), [x]) == ""
    assert why_unequal("reciprocal", np.array([7, 1], np.int32), np.array([7, 0], np.int32), [x])
    z = np.array([complex(np.inf, np.nan), 1e30, 1], np.complex64)
    assert why_unequal("exp", np.array([0, 0, 1], np.complex64), np.array([1, 1, 1], np.complex64), [z]) == ""
    assert why_unequal("exp", np.array([0, 0, 0], np.complex64), np.array([1, 1, 1], np.complex64), [z])
    nan, inf = np.array([np.nan]), np.array([np.inf])
    assert why_unequal("exp", nan, inf, [inf])
    assert may_give_a_value("ValueError('Integers to negative integer powers are not allowed.')")
    assert not may_give_a_value("ValueError('shapes')")

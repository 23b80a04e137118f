"""What tests take for equal, on a host and on a GPU."""

from __future__ import annotations

import numpy as np
import pytest

from .equality import assert_equal, is_on_gpu, is_open, why_unequal
from .stand_in import VARIABLE

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


def test_special_values_that_the_standard_leaves_open_are_not_compared():
    x = np.array([0, 2], np.int32)
    assert why_unequal("reciprocal", np.array([7, 0], np.int32), np.array([-1, 0], np.int32), [x]) == ""
    assert why_unequal("reciprocal", np.array([7, 1], np.int32), np.array([7, 0], np.int32), [x])
    z = np.array([complex(np.inf, np.nan), 1e30, 1], np.complex64)
    assert why_unequal("exp", np.array([0, 0, 1], np.complex64), np.array([1, 1, 1], np.complex64), [z]) == ""
    assert why_unequal("exp", np.array([0, 0, 0], np.complex64), np.array([1, 1, 1], np.complex64), [z])
    nan, inf = np.array([np.nan]), np.array([np.inf])
    assert why_unequal("exp", nan, inf, [inf])
    assert is_open("ValueError('Integers to negative integer powers are not allowed.')")
    assert not is_open("ValueError('shapes')")

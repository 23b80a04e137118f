"""`after`: the first operand, with any other operands."""

from __future__ import annotations

import numpy as np
import pytest

import tensord as td
from tensord.interpreter.errors import MetadataError, TensordError


def test_after_is_its_first_operand(evaluate, make, assert_same):
    x = make((2, 3), "float32", 1).T
    assert_same(evaluate("after", x, make((4,), "int8", 2), make((2, 3), "float32", 3)), x)


def test_after_takes_tensors_alone():
    with td.connect("local", devices=["cpu:0"]) as s, pytest.raises(MetadataError):
        s.call("after", [s.asarray(np.ones(2)), 1.0])


def test_what_comes_after_a_failed_tensor_fails():
    with td.connect("local", devices=["cpu:0"]) as s:
        x = s.asarray(np.ones(2))
        failed = s.xp.linalg.inv(s.asarray(np.zeros((2, 2))))
        (found,) = s.call("after", [x, failed])
        with pytest.raises(TensordError, match="ingular"):
            found.numpy()

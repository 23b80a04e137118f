"""Linear algebra on operands without elements: results, and errors, are NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.schema.infer import infer_once
from tensord.interpreter.schema.opdef import find
from tensord.interpreter.types.meta import Meta

from ...each_case import each_case
from ..conftest import evaluate_all

LINALG = np.linalg
SINGULAR = np.zeros((2, 2))

# op, NumPy's function, operands, attributes
CASES: list[tuple[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = [
    *(
        ("solve", LINALG.solve, (left, np.zeros(shape)), {})
        for left, shape in (
            (SINGULAR, (2, 0)),
            (np.stack([np.eye(2), SINGULAR]), (2, 2, 0)),
            (np.eye(2), (2, 0)),
            (np.eye(2), (3, 2, 0)),
            (SINGULAR, (3, 2, 0)),
            (SINGULAR, (0, 2, 3)),
            (SINGULAR, (0, 2, 0)),
            (np.zeros((0, 2, 2)), (0, 2, 3)),
            (np.zeros((0, 2, 2)), (1, 2, 0)),
            (np.zeros((0, 0)), (0, 3)),
            (np.zeros((0, 0)), (0,)),
            (np.zeros((3, 0, 0)), (3, 0, 0)),
        )
    ),
    *(
        (name, getattr(LINALG, name), (np.zeros(shape),), {})
        for name in ("inv", "det", "slogdet", "cholesky", "eigh", "eigvalsh", "eig", "eigvals")
        for shape in ((0, 0), (0, 2, 2), (3, 0, 0))
    ),
    *(
        (name, getattr(LINALG, name), (np.zeros(shape),), {})
        for name in ("qr", "svd", "svdvals", "pinv", "matrix_rank")
        for shape in ((0, 3), (3, 0), (0, 0), (0, 2, 3), (2, 0, 3))
    ),
    *(
        ("matrix_power", LINALG.matrix_power, (np.zeros(shape),), {"n": n})
        for shape in ((0, 0), (0, 2, 2))
        for n in (-1, 0, 3)
    ),
    *(
        ("lstsq", lambda a, b: without_residuals(LINALG.lstsq(a, b)), (np.ones(left), np.ones(right)), {})
        for left, right in (((3, 2), (3, 0)), ((0, 2), (0, 3)), ((3, 0), (3, 2)), ((3, 0), (3,)), ((0, 0), (0, 0)))
    ),
    ("matmul", np.matmul, (np.zeros((2, 0)), np.zeros((0, 3))), {}),
    ("matmul", np.matmul, (np.zeros((2, 3)), np.zeros((3, 0))), {}),
    ("tensordot", np.tensordot, (np.zeros((2, 0)), np.zeros((0, 3))), {"axes": 1}),
    ("vecdot", np.vecdot, (np.zeros((2, 0)), np.zeros((2, 0))), {}),
    ("outer", np.outer, (np.zeros(0), np.zeros(3)), {}),
    ("trace", np.trace, (np.zeros((0, 3)),), {}),
]


def without_residuals(found: Any) -> tuple[Any, ...]:
    """Without the residuals, which are an op of their own."""
    return found[0], found[2], found[3]


@each_case(("name", "function", "operands", "attributes"), CASES)
def test_they_are_as_numpys(name: str, function: Any, operands: Any, attributes: Any) -> None:
    try:
        expected = function(*operands, **attributes)
    except np.linalg.LinAlgError:
        with pytest.raises(np.linalg.LinAlgError):
            evaluate_all(name, *operands, **attributes)
        return
    wanted = list(expected) if isinstance(expected, tuple) else [expected]
    for found, one in zip(evaluate_all(name, *operands, **attributes), wanted, strict=True):
        assert found.shape == np.shape(one)
        np.testing.assert_array_equal(found, one)


def test_no_right_hand_sides_in_a_vast_stack_cost_nothing() -> None:
    """One matrix is checked once, not once for each element of a stack without elements."""
    x2 = np.zeros((1 << 40, 2, 0))
    assert evaluate_all("solve", np.eye(2), x2)[0].shape == x2.shape
    with pytest.raises(np.linalg.LinAlgError):
        evaluate_all("solve", SINGULAR, x2)


def test_to_look_at_a_large_matrix_is_work_although_the_result_is_empty() -> None:
    op, left, right = find("solve"), Meta.of((2000, 2000), "float64"), Meta.of((2000, 0), "float64")
    assert op.estimate((left, right), infer_once(op, (left, right), ()), {}) > 1_000_000_000

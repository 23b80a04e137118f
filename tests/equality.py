"""Equality on a device (docs/decisions/0023): the tests' comparison for a result, wherever it was computed.

On a host device, the simulated ones among them, equal is equal, bit for bit, or as the test itself defines. On a GPU a
result may be as far away as `tests/special_values.py` allows for its op, in ulps of the element, or of the largest one
for sums; special values that the array API standard leaves open are not compared. Ops that do not round are exact
there, too. Tests ask in no other way: `is_on_gpu`, `least`, `may_give_a_value`, `is_all_open`, `why_unequal`,
`assert_equal`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tensord.interpreter import ops as _ops  # noqa: F401 - fills the registry
from tensord.interpreter.schema.opdef import REGISTRY

from .gpu.deviation import INVARIANTS, compare, deviation
from .gpu.op_cases import SPECIAL, Case
from .special_values import OF_TABLES, least, may_give_a_value, open_specials, spreads
from .stand_in import chosen, is_cuda

__all__ = ["OF_TABLES", "assert_equal", "is_all_open", "is_on_gpu", "least", "may_give_a_value", "why_unequal"]


def is_on_gpu(device: str) -> bool:
    """Is the device a GPU, or does one stand in for it?"""
    kind = device.partition(":")[0]
    return kind == "cuda" or (is_cuda() and kind == (chosen() or ("",))[0])


def is_all_open(op: str, values: Sequence[Any]) -> bool:
    """Does a special value among operands and results leave all of a GPU's result open?"""
    return op in REGISTRY and spreads(REGISTRY[op]) and bool(open_specials(REGISTRY[op], values))


def why_unequal(
    op: str, found: Any, expected: Any, operands: Sequence[Any] = (), attributes: Mapping[str, Any] | None = None
) -> str:
    """The difference of a result of a GPU; "" if it is equal. If `op` is no op's name, equal is bit for bit."""
    if op not in REGISTRY:
        same = np.array_equal(found, expected, equal_nan=expected.dtype.kind in "fc")
        return "" if same else f"{found!r} instead of {expected!r}"
    given = tuple(x if isinstance(x, np.ndarray | int | float | complex) else 0 for x in operands)
    case = Case(op, SPECIAL, given, attributes or {})
    with np.errstate(all="ignore"):
        made = compare(REGISTRY[op], case, [found], [expected]) if given and op not in INVARIANTS else None
        one = deviation(REGISTRY[op], found, expected) if made is None else next(iter(made), None)
    return "" if one is None or not one.bad else f"{one.text}, {one.size:.3g} of {one.bound.limit:g} {one.bound.unit}"


def assert_equal(
    device: str,
    op: str,
    found: Any,
    expected: Any,
    operands: Sequence[Any] = (),
    attributes: Mapping[str, Any] | None = None,
) -> None:
    """Equal on this device, as a result of that op."""
    if is_on_gpu(device):
        wrong = why_unequal(op, found, expected, operands, attributes)
        assert not wrong, wrong
    else:
        np.testing.assert_array_equal(found, expected)

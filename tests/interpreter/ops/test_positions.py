"""Sizes beyond the counters of CuPy's kernels are refused on a device, and accepted on the host."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.ops.positions import (
    check_gather,
    check_scatter,
    from_either_end,
    from_the_front,
    safe_positions,
)
from tensord.interpreter.ops.selection import check_counts

from ...each_case import each_case

ELSEWHERE: Any = SimpleNamespace()
HALF, WHOLE = 1 << 31, 1 << 32


@each_case(
    ("counts", "refused"),
    [
        ((1, WHOLE, 1), False),  # one axis: no product is computed
        ((1, 2, WHOLE), True),
        ((2, 1 << 16, (1 << 16) - 1), False),
        ((2, 1 << 16, 1 << 16), True),
        ((WHOLE + 1, 1, 1), True),
    ],
)
def test_a_gather_is_refused_where_its_kernel_would_divide_by_a_number_that_has_become_zero(counts, refused):
    check_gather(np, *counts)
    if refused:
        with pytest.raises(ValueError, match="too many to be selected on a GPU"):
            check_gather(ELSEWHERE, *counts)
    else:
        check_gather(ELSEWHERE, *counts)


@each_case(("counts", "refused"), [((HALF - 1, 9, 9), False), ((HALF, 1, 1), True), ((5, 1 << 16, 1 << 15), True)])
def test_a_scatter_is_refused_where_its_kernel_would_have_negative_lengths(counts, refused):
    check_scatter(np, *counts)
    if refused:
        with pytest.raises(ValueError, match="too many to be written on a GPU"):
            check_scatter(ELSEWHERE, *counts)
    else:
        check_scatter(ELSEWHERE, *counts)


ALL = ("slice", None, None, None)
VAST, LONG, MASK = (2, 70_000, 70_000), np.zeros(70_000, np.int64), np.broadcast_to(True, (70_000, 70_000))


@each_case(
    ("index", "selectors", "write", "refused"),
    [
        ((ALL, "tensor"), [LONG], False, True),  # 70,000 of the second axis, with all of the third
        ((ALL, "tensor"), [LONG[:9]], False, False),
        (("tensor",), [LONG[:2]], False, True),
        ((0, 0, "tensor"), [LONG], False, False),
        ((0, 0, "tensor"), [LONG], True, False),
        ((0, "tensor", "tensor"), [LONG, LONG], True, True),  # along 4,900,000,000 positions
        ((0, "tensor", "tensor"), [LONG, LONG], False, False),
        ((0, "tensor"), [MASK], True, False),
        ((0, "tensor"), [MASK], False, False),
    ],
)
def test_an_index_is_counted_as_the_kernel_sees_it(index, selectors, write, refused):
    if refused:
        with pytest.raises(ValueError, match="too many"):
            check_counts(ELSEWHERE, index, VAST, selectors, write=write)
    else:
        check_counts(ELSEWHERE, index, VAST, selectors, write=write)


def test_positions_in_bounds_are_given_back_and_others_named():
    positions = np.array([0, -3, 2])
    assert from_either_end(np, positions, 3) is positions
    with pytest.raises(IndexError, match="index -3 is out of bounds for an axis of size 2"):
        from_either_end(np, positions, 2)
    with pytest.raises(IndexError, match=r"rows must be in \[0, 3\), got -3 to 2"):
        from_the_front(np, positions, 3, "rows")
    assert from_the_front(np, positions[:0], 0, "rows").size == 0


@each_case("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_positions_are_wide_where_a_kernel_would_overflow(dtype):
    expected = np.int64 if dtype in {"int8", "int16", "uint64", "int64"} else dtype
    assert safe_positions(np.zeros(1, dtype)).dtype == expected

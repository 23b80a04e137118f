"""Results whose shapes data decide, as operands of further ops: alone, in routines and in their blocks, as in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.client.session.session import Session

from ...each_case import each_case

VALUES = np.array([[1.0, -2.0, 5.0, 4.0], [0.0, 6.0, 3.0, -1.0], [7.0, 2.0, 0.0, 5.0]])
ROWS = np.array([True, False, True])

MAKERS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "mask": lambda _, x, __: x[x > 3],
    "rows": lambda _, x, rows: x[rows],
    "none": lambda _, x, __: x[x > 100],
    "positions": lambda xp, x, __: xp.nonzero(x > 3)[1],
    "repeated": lambda xp, x, rows: xp.repeat(x, xp.astype(rows, xp.int64) * 2, axis=0),
}
USERS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda xp, v: xp.sum(v, axis=0),
    "sum_all": lambda xp, v: xp.sum(v),
    "last": lambda xp, v: xp.sum(v * 2, axis=-1, keepdims=True),
    "any": lambda xp, v: xp.any(v > 4, axis=0),
    "prod": lambda xp, v: xp.prod(xp.flip(v, axis=0), axis=0),
    "sums": lambda xp, v: xp.sum(xp.sum(v, axis=-1)),
    "cumulative": lambda xp, v: xp.cumulative_sum(xp.reshape(v, (-1,)), axis=0),
    "again": lambda xp, v: xp.sum(v[v > 4], axis=0),
    "counted": lambda xp, v: xp.sum(xp.astype(v > 0, xp.int64), axis=0),
    "joined": lambda xp, v: xp.concat([v, -v], axis=0),
}


@each_case("maker", MAKERS)
def test_ops_on_what_data_decide_give_what_numpy_gives(session: Session, maker: str) -> None:
    make, xp = MAKERS[maker], session.xp
    x, rows, yes = session.asarray(VALUES), session.asarray(ROWS), session.asarray(True)
    for name, use in USERS.items():
        wanted = use(np, make(np, VALUES, ROWS))

        def function(x: Any, rows: Any, make: Any = make, use: Any = use) -> Any:
            return use(xp, make(xp, x, rows))

        def chosen(x: Any, rows: Any, function: Any = function) -> Any:
            return session.cond(yes, lambda: function(x, rows), lambda: function(x, rows))

        calls: list[Any] = [function, *[session.routine(function)] * 2, *[session.routine(chosen)] * 2]
        for call in calls:
            try:
                found = call(x, rows).numpy()
            except td.CaptureError:  # it needs the number of dimensions
                continue
            assert (found.shape, found.tolist()) == (wanted.shape, wanted.tolist()), name


def test_positions_in_what_has_no_dimensions_are_refused_although_that_is_known_late(session: Session) -> None:
    x = session.asarray(VALUES)
    late = session.xp.sum(x[x > 3])
    with pytest.raises(td.MetadataError, match="a 0-d tensor has no positions"):
        session.xp.nonzero(late)

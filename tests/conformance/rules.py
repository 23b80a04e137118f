"""Calls that the standard's text forbids, although NumPy or array_api_strict may take them.

A rule is asked about a call, and returns the error that users expect, of the right class, or None.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .calls import Call, leaves

Rule = Callable[[Call], Exception | None]
Operands = tuple[int | str, ...]
# Kinds that promote together, and the kinds that a Python scalar goes with.
FAMILIES = {"b": "b", "i": "iu", "u": "iu", "f": "fc", "c": "fc"}
TAKES = {bool: "b", int: "iufc", float: "fc", complex: "fc"}


def nothing(_: Call) -> None:
    """Forbids nothing."""


def unbroadcastable(made: Call) -> Exception | None:
    """Shapes that do not broadcast: a ValueError, also where dtypes are wrong as well."""
    try:
        np.broadcast_shapes(*(each.shape for each in made.args if isinstance(each, np.ndarray)))
    except ValueError as error:
        return error
    return None


def missing_axis(made: Call) -> Exception | None:
    """NumPy's reductions let 0-d arrays have the axes 0 and -1; the standard gives them no axis."""
    named = made.kwargs.get("axis") not in {None, ()}
    return np.exceptions.AxisError("there is no axis") if named and made.args[0].ndim == 0 else None


def mixing(made: Call, operands: Operands) -> Exception | None:
    """Tensors and Python scalars there have no common dtype by the standard's tables; or there is no tensor at all."""
    given: dict[Any, Any] = {**dict(enumerate(made.args)), **made.kwargs}
    flat = leaves([given[each] for each in operands if each in given])
    typed = [each for each in flat if isinstance(each, np.ndarray | np.dtype)]
    dtypes = [each if isinstance(each, np.dtype) else each.dtype for each in typed]
    kinds = {dtype.kind for dtype in dtypes}
    scalars = [type(each) for each in flat if type(each) in TAKES]
    if flat and not any(isinstance(each, np.ndarray | np.dtype) for each in leaves(list(made.args))):
        return TypeError("there is no tensor")
    mixed = len({FAMILIES[kind] for kind in kinds}) > 1 or (np.dtype("uint64") in dtypes and "i" in kinds)
    if mixed or any(kind not in TAKES[scalar] for scalar in scalars for kind in kinds):
        return TypeError("the kinds do not mix")
    return None

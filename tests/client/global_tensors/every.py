"""Every public function of tensors, called with plain tensors and with global ones in all layouts."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from itertools import product
from math import prod
from typing import Any, Final

import numpy as np

from tensord.client.session.session import Session
from tensord.client.tensor.tensor import Tensor
from tensord.interpreter.layouts.layout import BROADCAST, Partial, Split
from tensord.interpreter.layouts.placement import Placement, placement

from ..public_entries import OPERATED, REDUCTIONS, TENSOR, Entry, functions, names_for, operators
from ..routines.compared import over

ARGUMENTS: Final = ("x", "z", "i", "b", "one", "v")  # of the names in the texts: tensors
DEVICES: Final = ("cpu:0", "sim:0", "sim:1", "sim:2", "sim:3")
# Functions that a global tensor refuses, or answers otherwise: it is on no one device.
OTHERWISE: Final = frozenset(
    ("__dlpack__", "cupy", "random.seed", "xp.from_dlpack", "to_device", "to_global", "prefetch")
)
GRIDS: Final = (
    placement(["sim:0"]),
    placement(["sim:1", "sim:0"]),
    placement(["sim:0", "sim:1", "sim:2"]),
    placement(["sim:0", "sim:1", "sim:2", "sim:3"]),
    placement([["sim:0", "sim:1"], ["sim:2", "sim:3"]]),
)
ATOMS: Final = (Split(0), Split(1), BROADCAST, Partial("sum"))


def entries(session: Session) -> list[Entry]:
    """The functions and methods of tensors."""
    found: list[Entry] = []
    for name in ("xp", "xp.linalg", "xp.fft", "xp.special", "nn", "random"):
        space: Any = session
        for part in name.split("."):
            space = getattr(space, part)
        found += functions(space, name)
    found += operators()
    found += [Entry(name, f"x.{name}", given) for name, given in TENSOR.items()]
    found += [Entry(name, f"x.{name}", "") for name in REDUCTIONS]
    found += [Entry(name, function, given) for name, (function, given) in OPERATED.items()]
    return [entry for entry in found if entry.name not in OTHERWISE]


def layouts() -> list[tuple[Placement, Any]]:
    """Every placement with every layout of a matrix."""
    return [(where, layout) for where in GRIDS for layout in product(ATOMS, repeat=len(where.grid))]


def arguments(shape: tuple[int, ...], seed: int) -> dict[str, Any]:
    """Arrays for the names of the texts: quarters, whose sums are exact; square matrices are regular."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-4, 5, shape) / 4
    if len(shape) > 1 and shape[-1] == shape[-2]:
        x += 4 * np.eye(shape[-1])
    count = shape[0] if shape else 1
    return {
        "x": x,
        "z": x.copy(),
        "i": rng.integers(0, 5, shape),
        "b": rng.random(shape) < 0.5,
        "one": np.asarray(2),
        "v": rng.integers(0, count, min(count, 3)),
    }


def sized(entry: Entry, shape: tuple[int, ...]) -> str:
    """The text of a call, with the number of elements in place of nine, a matrix's. Arrays to search in have to be
    sorted.
    """
    if entry.name == "xp.searchsorted":
        return "xp.searchsorted(xp.sort(x), x)"
    return re.sub(r"\b9\b", str(prod(shape)), entry.text) if "reshape" in entry.name else entry.text


def fitting(layout: Any, array: Any) -> Any:
    """The layout, as far as an array can have it: no split of missing axes, no sum of bools."""
    return tuple(
        BROADCAST
        if (isinstance(atom, Split) and atom.axis >= array.ndim) or (isinstance(atom, Partial) and array.dtype == bool)
        else atom
        for atom in layout
    )


def other_names(session: Session) -> dict[str, Any]:
    """The names in the texts that are not tensors."""
    return {name: value for name, value in names_for(session).items() if name not in ARGUMENTS}


def outcome(session: Session, names: dict[str, Any], text: str, tensors: Mapping[str, Tensor]) -> Any:
    """The values of the result and of the arguments, or the error's type and text without the line."""
    session.random.seed(11)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = eval(text, names, dict(tensors))  # noqa: S307 - texts of the tests
            found = list(result) if isinstance(result, map | zip) else result
            return [values(found), [each.numpy() for each in tensors.values()]]
        except Exception as error:
            said = re.sub("<(global )?tensor .*>", "<tensor>", str(error).split(" [")[0].split(" (the part")[0])
            return [type(error).__name__, said.replace("GlobalTensor", "Tensor")]


def values(result: Any) -> Any:
    """The result with arrays for tensors, and without objects that are no values."""
    if isinstance(result, Tensor):
        return result.numpy()
    return over(result, values)


def alike(found: Any, expected: Any) -> bool:
    """Are both equal, but for the rounding of sums in another order?"""
    if isinstance(expected, np.ndarray):
        if type(found) is not np.ndarray or (found.dtype, found.shape) != (expected.dtype, expected.shape):
            return False
        if expected.dtype.kind not in "fc":
            return bool(np.array_equal(found, expected))
        slack = 64 * np.finfo(expected.dtype).eps
        return bool(np.allclose(found, expected, rtol=slack, atol=slack, equal_nan=True))
    if isinstance(expected, dict):
        return list(found) == list(expected) and all(alike(found[key], expected[key]) for key in expected)
    if isinstance(expected, list | tuple):
        return len(found) == len(expected) and all(map(alike, found, expected))
    if isinstance(expected, float | complex):
        return bool(np.isclose(found, expected, equal_nan=True))
    return bool(repr(found) == repr(expected))

"""Hostile calls of the ops that turn data into addresses, or hand sizes to a library.

The calls are made from the definitions, as those of `op_cases` are: in a valid call the values of one operand, or of
all, are replaced by values out of range, or one attribute by a number out of range. Shapes and dtypes stay as they are,
since these are checked before anything runs; invalid combinations with a changed attribute are refused there, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice, zip_longest
from typing import Any

import numpy as np

from tensord.interpreter.schema.opdef import REGISTRY, OpDef
from tensord.interpreter.types.kinds import INTEGER

from . import fake
from .op_cases import SPECIAL, Case, cases, dtypes_of, settings_of

DTYPES = ("float32", "int64", "uint64", "int8", "complex64", "float64", "bool", "")  # of the first operand
MOST = 320  # calls of an op
BASES = 8  # valid calls of an op with one dtype that are made hostile
NOT_BASES = frozenset({SPECIAL, "long"})
# They compute positions or sizes from their attributes, shapes or data, though their definitions do not say so.
COMPUTING = frozenset(
    {"arange", "avg_pool2d", "avg_pool2d_grad", "conv2d", "conv2d_grad", "cross_entropy", "cross_entropy_grad", "diff"}
    | {"eye", "linspace", "max_pool2d", "max_pool2d_grad", "one_hot", "overwrite", "repeat", "roll", "setitem", "tile"}
    | {"argmax", "argmin", "tril", "triu"}
)
INTEGERS = (-1, 0, 1, 2, 3, 5, -4, -1000, 1000, 2**31 - 1, 2**31, -(2**31) - 1, 2**32 + 1, -(2**63), 2**63 - 1)
FLOATS = (-1.0, -1e-9, 2.0, 1e30, -1e30, np.nan, np.inf, -np.inf)
NUMBERS = (-1, 0, 2**16, 2**31 - 1, 2**31, 2**40, 2**63 - 1, -(2**63), 1e308, float("nan"), float("inf"), -0.5)
# Calls that the definitions do not suggest: valid positions in a dtype that cannot hold the length of the
# axis, and edges without a bin.
ITS_OWN = (
    *(
        Case(
            "advanced_setitem",
            f"{dtype} from the end of a long axis",
            (np.zeros((3, size), np.float32), np.ones((3, 2), np.float32), np.array([-1, -2], dtype)),
            {"index": ("...", "tensor")},
        )
        for dtype, size in (("int8", 200), ("int8", 256), ("int16", 40_000), ("int32", 70))
    ),
    *(
        Case("histogram", "one edge", (np.array([1.0, 2.0, np.nan]), np.array([edge])), {"bins": None})
        for edge in (1.0, np.nan)
    ),
)
WINDOWS = (  # of images: numbers that are out of range by themselves and go together
    {"stride": (2**40, 2**31), "padding": (1, 1)},
    {"stride": (2**62, 2**62), "padding": (2**40, 2**40)},
    {"dilation": (2**31, 2**31), "padding": (2**31, 2**31), "stride": (2**33, 2**33)},
    {"kernel_size": (2**31, 2**31), "padding": (2**30, 2**30), "stride": (2**33, 2**33)},
)


def is_exposed(op: OpDef) -> bool:
    """Does a kernel of the op turn data into addresses, or hand sizes to a library? Functions of SciPy do not."""
    if op.library is not None:
        return False
    return op.blocking or bool(op.needs) or INTEGER in op.dtypes or op.name in COMPUTING


def exposed() -> list[str]:
    """The names of all such ops."""
    return sorted(name for name, op in REGISTRY.items() if is_exposed(op))


def few() -> None:
    """Run the stage over the fake, with a fifth of the calls, for the stage's tests."""
    globals()["MOST"] = 64
    fake.main()


def calls(op: OpDef) -> list[Case]:
    """Hostile calls of the op: its own, then no more than `MOST`, of each dtype in turn."""
    each = [hostile(op, dtype) for dtype in DTYPES if dtype in dtypes_of(op)]
    turns = {str(case): case for turn in zip_longest(*each) for case in turn if case is not None}
    own = [case for case in ITS_OWN if case.op == op.name]
    return [*own, *islice(turns.values(), MOST)]


def hostile(op: OpDef, dtype: str) -> Iterator[Case]:
    """The hostile calls with that dtype."""
    valid = [case for case in cases(op, dtype, subnormal=False) if case.what not in NOT_BASES]
    bases = valid[:: max(1, len(valid) // BASES)][:BASES]
    each = [with_values(case) for case in bases]
    each.append(with_attributes(op, bases))
    yield from (case for turn in zip_longest(*each) for case in turn if case is not None)


def with_values(case: Case) -> Iterator[Case]:
    """The values of each operand in turn out of range, then those of all."""
    arrays = [position for position, x in enumerate(case.operands) if isinstance(x, np.ndarray) and x.size]
    for position in reversed(arrays):
        for what, changed in out_of_range(case.operands[position]):
            operands = (*case.operands[:position], changed, *case.operands[position + 1 :])
            yield replace(case, operands=operands, what=f"{case.what}, operand {position}: {what}")
    if len(arrays) > 1:
        worst = {position: list(out_of_range(case.operands[position]))[-2:] for position in arrays}
        for end in (0, -1):
            operands = tuple(worst[n][end][1] if n in worst else x for n, x in enumerate(case.operands))
            yield replace(case, operands=operands, what=f"{case.what}, all operands: {worst[arrays[0]][end][0]}")


def out_of_range(x: Any) -> Iterator[tuple[str, Any]]:
    """Arrays like x with one element out of range, and with nothing else."""
    values = values_for(x.dtype)
    for value in values:
        one = x.copy()
        one.flat[-1] = value
        yield f"{value} at the end", one
    for value in values[-4:]:
        yield f"{value} everywhere", np.full_like(x, value)
    yield "one after the other", np.resize(np.array(values, x.dtype), x.shape)


def values_for(dtype: np.dtype[Any]) -> list[Any]:
    """Numbers of that dtype that are out of range for most purposes, the extreme ones last."""
    if dtype.kind == "b":
        return [False, True]
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return [*(n for n in INTEGERS if limits.min < n < limits.max), int(limits.min), int(limits.max)]
    limits = np.finfo(dtype)  # type: ignore[assignment]
    floats = [value for value in FLOATS if not abs(value) > float(limits.max) or np.isinf(value)]
    return [*floats, limits.min, limits.max] + ([complex(np.nan, np.inf)] if dtype.kind == "c" else [])


def with_attributes(op: OpDef, bases: list[Case]) -> Iterator[Case]:
    """Each attribute that is a number, or has some, out of range; windows of images out of any range."""
    for case in bases[:2]:
        for settings in (dict(case.attributes), *settings_of(op, "float32")):
            for name in settings:
                for value in NUMBERS:
                    if (changed := changed_to(settings[name], value)) is not None:
                        attributes: Mapping[str, Any] = {**settings, name: changed}
                        yield replace(case, attributes=attributes, what=f"{case.what}, {name}={changed!r}")
        names = {attribute.name for attribute in op.attributes}
        for windows in WINDOWS:
            given = {name: value for name, value in windows.items() if name in names}
            if len(given) > 1:
                yield replace(case, attributes={**case.attributes, **given}, what=f"{case.what}, {given}")


def changed_to(sample: Any, value: float) -> Any:
    """The attribute with that number in place of its own; None if it has none."""
    if isinstance(sample, int | float) and not isinstance(sample, bool):
        return value
    if isinstance(sample, tuple) and sample and all(type(each) in {int, float} for each in sample):
        return (*sample[:-1], value)
    return None

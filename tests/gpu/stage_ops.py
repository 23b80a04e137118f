"""Every op on the device against the same call on cpu:0, which is NumPy's: the cases come from the ops' definitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import tensord
from tensord.client.session.session import Session
from tensord.interpreter.errors import TensordError
from tensord.interpreter.schema.opdef import OpDef

from ..equality import is_on_gpu, may_give_a_value
from .deviation import Deviation, compare
from .op_cases import Case, all_ops, cases, dtypes_of, far_apart, seen
from .stage import Given, main

FIRST = ("float32", "", "float64", "int64", "bool", "complex64")
LISTED = 3  # cases that a failure lists
Results = list[Any] | str  # arrays, or the type of the error


def call(session: Session, device: str, case: Case) -> list[Any] | str:
    """Issue the call on a device; its results as tensors, or the error that the call itself raises."""
    operands = [
        seen(session.asarray(x, device=device), strided=case.strided) if isinstance(x, np.ndarray) else x
        for x in case.operands
    ]
    try:
        return list(session.call(case.op, operands, dict(case.attributes), device=device))
    except TensordError as error:
        return f"{type(error).__name__}: {error}"


def results(made: list[Any] | str) -> Results:
    """The values, or the error's type."""
    if isinstance(made, str):
        return made
    try:
        return [tensor.numpy() for tensor in made]
    except TensordError as error:
        return f"{type(error).__name__}: {error}"


def differences(op: OpDef, case: Case, found: Results, expected: Results, *, gpu: bool = True) -> list[Deviation] | str:
    """The comparison of a call's outcomes; a text if one of the two failed and the other one did not."""
    if isinstance(found, str) or isinstance(expected, str):
        if isinstance(found, str) and isinstance(expected, str):
            return []
        if gpu and not isinstance(found, str) and may_give_a_value(str(expected)):
            return []
        return f"{ended(found)}; on cpu:0: {ended(expected)}"
    return compare(op, case, found, expected, gpu=gpu)


def ended(outcome: Results) -> str:
    """A value, or the error."""
    return outcome if isinstance(outcome, str) else "a value"


def check(given: Given, session: Session, op: OpDef, dtype: str) -> str:
    """All cases of an op with a dtype; the faults, "" if there are none. The worst deviation is stated as a figure."""
    gpu = is_on_gpu(given.device)
    made = cases(op, dtype, subnormal=not gpu)
    issued = [(case, call(session, given.device, case), call(session, "cpu:0", case)) for case in made]
    wrong: list[str] = []
    worst: dict[str, tuple[Deviation, Case]] = {}
    for case, there, here in issued:
        found = differences(op, case, results(there), results(here), gpu=gpu)
        if isinstance(found, str):
            wrong.append(f"{case}: {found}")
            continue
        for one in found:
            if one.bad:
                bound = f"{one.bound.limit:g} {one.bound.unit}"
                wrong.append(f"{case}: {one.text}, {one.elements} elements, {one.size:.3g} of {bound}")
            elif one.bound.unit not in worst or worst[one.bound.unit][0].size < one.size:
                worst[one.bound.unit] = (one, case)
    for case in far_apart(op, dtype):
        results(call(session, given.device, case))  # the call has to end: its values are those of other methods
    for unit, (one, case) in worst.items():
        given.record.figure(
            name_of(op, dtype), round(one.size, 2), unit, bound=one.bound.limit, case=str(case), example=one.text
        )
    return summary(wrong, len(made))


def name_of(op: OpDef, dtype: str) -> str:
    """The name of its check."""
    return f"{op.name} {dtype}".strip()


def group_of(pair: tuple[OpDef, str]) -> str:
    """Checks that share kernels: a library's functions compute every dtype in float64."""
    op, dtype = pair
    return name_of(op, dtype) if op.library is None else op.name


def summary(wrong: Sequence[str], count: int) -> str:
    """The first of the faults."""
    if not count:
        return "there is no case of it; tests/gpu/op_cases.py has to know samples of its attributes"
    more = f"\nand {len(wrong) - LISTED} more" if len(wrong) > LISTED else ""
    return f"{len(wrong)} of {count} cases:\n" + "\n".join(wrong[:LISTED]) + more if wrong else ""


def by_value(pairs: Sequence[tuple[OpDef, str]]) -> list[tuple[OpDef, str]]:
    """The most common dtypes come first, in case not all are reached."""
    return sorted(pairs, key=lambda pair: FIRST.index(pair[1]) if pair[1] in FIRST else len(FIRST))


def work(given: Given) -> None:
    """One check for each op and dtype."""
    with tensord.connect("local", devices=given.beside) as session:
        devices = session._core.transport.machine.devices
        if given.part == 0 and (lacking := sorted(devices[given.device].missing)):
            given.record.note(f"ops that the array module lacks, which run on cpu:0: {', '.join(lacking)}")
        every = by_value([(op, dtype) for op in all_ops() for dtype in dtypes_of(op)])
        pairs = given.mine(every, lambda pair: name_of(*pair), group_of)
        for index, (op, dtype) in enumerate(pairs):
            if given.remaining < 0 or devices[given.device].lost is not None:
                reason = devices[given.device].lost or f"{given.seconds:.0f} s are over"
                given.record.unreached(len(pairs) - index, len(pairs), str(reason))
                return
            with given.record.check(name_of(op, dtype)):
                wrong = check(given, session, op, dtype)
                assert not wrong, wrong
        given.record.figure("ops", len(all_ops()))


if __name__ == "__main__":
    main(work)

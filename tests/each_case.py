"""Many small cases in one test.

A test costs some 3 ms of collecting, fixtures and reports, and hundreds of cases of an op take less than that together.
So they are parameters of one test, which runs them all and fails with the names of those that fail.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, Final, TypeAlias

import pytest

Test: TypeAlias = Callable[..., None]
Ids: TypeAlias = Callable[[Any], Any] | Iterable[str] | None
SHOWN: Final = 40  # failed cases of one test
LENGTH: Final = 400  # characters of what is wrong with one
KEPT: Final = {"pytestmark", "__wrapped__"}  # attributes of the test; others are hypothesis's, for each case by itself
CHOSEN: Final = os.environ.get("TENSORD_CASE", "")


def each_case(names: str | Sequence[str], cases: Iterable[Any], ids: Ids = None) -> Callable[[Test], Test]:
    """As `pytest.mark.parametrize`, but all cases run in one test. They share its fixtures.

    `TENSORD_CASE=text` runs only those cases whose label contains the text.
    """
    arguments = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    known = list(cases)
    labels = ids if ids is None or callable(ids) else list(ids)

    def decorated(test: Test) -> Test:
        @wraps(test)
        def run(**fixtures: Any) -> None:
            wrong: list[tuple[str, Exception]] = []
            skipped: list[BaseException] = []
            for place, case in enumerate(known):
                if CHOSEN and CHOSEN not in label_of(case, place, labels):
                    continue
                try:
                    test(**fixtures, **dict(zip(arguments, values_of(case, len(arguments)), strict=True)))
                except pytest.skip.Exception as skip:
                    skipped.append(skip)
                except Exception as error:
                    error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
                    wrong.append((label_of(case, place, labels), error))
            if wrong:
                raise AssertionError(told(wrong, len(known))) from wrong[0][1]
            if skipped and len(skipped) == len(known):
                raise skipped[0]

        for name in vars(run).keys() - KEPT:
            delattr(run, name)
        signature = inspect.signature(test)
        left = [parameter for name, parameter in signature.parameters.items() if name not in arguments]
        run.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]  # what pytest looks at
        return run

    return decorated


def label_of(case: Any, place: int, ids: Callable[[Any], Any] | list[str] | None) -> str:
    """The name of a case in a failure."""
    if isinstance(ids, list):
        return ids[place]
    if is_param(case) and case.id is not None:
        return str(case.id)
    if ids is not None:
        return str(ids(case))
    values = case.values if is_param(case) else case
    parts = values if isinstance(values, (tuple, list)) else [values]
    return ", ".join(part if isinstance(part, str) else getattr(part, "__name__", repr(part)[:80]) for part in parts)


def values_of(case: Any, count: int) -> Sequence[Any]:
    """The arguments of a case."""
    if is_param(case):
        return tuple(case.values)
    return case if count > 1 else (case,)


def is_param(case: Any) -> bool:
    """Was it made by `pytest.param`?"""
    return type(case).__name__ == "ParameterSet"


def told(wrong: list[tuple[str, Exception]], count: int) -> str:
    """Which cases failed, and how; the first one is the cause of the failure."""
    lines = [f"[{label}] {type(error).__name__}: {str(error).strip()[:LENGTH]}" for label, error in wrong[:SHOWN]]
    return "\n".join([f"{len(wrong)} of {count} cases failed; the first one's traceback is above", *lines])

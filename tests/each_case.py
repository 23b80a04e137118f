"""Many small cases in one test.

A test costs some 3 ms of collecting, fixtures and reports, and hundreds of cases of an op take less than that together.
So they are parameters of one test, which runs them all and fails with the names of those that fail.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial, wraps
from typing import Any, Final, NamedTuple, TypeAlias

import pytest

Test: TypeAlias = Callable[..., None]
Ids: TypeAlias = Callable[[Any], Any] | Iterable[str] | None
SHOWN: Final = 40  # failed cases of one test
LENGTH: Final = 400  # characters of the error of one
KEPT: Final = {"pytestmark", "__wrapped__"}  # attributes of the test; others are hypothesis's, for each case by itself
CHOSEN: Final = os.environ.get("TENSORD_CASE", "")


class Layer(NamedTuple):
    """One case of one decorator."""

    names: Sequence[str]
    case: Any
    position: int
    ids: Ids

    def label(self) -> str:
        """Its name in a failure."""
        return label_of(self.case, self.position, self.ids)

    def arguments(self) -> dict[str, Any]:
        """The values that it gives to the test."""
        return dict(zip(self.names, values_of(self.case, len(self.names)), strict=True))


def each_case(names: str | Sequence[str], cases: Iterable[Any], ids: Ids = None) -> Callable[[Test], Test]:
    """Like `pytest.mark.parametrize`, but all cases run in one test, and share its fixtures.

    Of two such decorators, each case of one runs with each of the other. `TENSORD_CASE=text` runs only the cases whose
    label contains the text.
    """
    arguments = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    labels = ids if ids is None or callable(ids) else list(ids)
    mine = [Layer(arguments, case, position, labels) for position, case in enumerate(cases)]

    def decorated(test: Test) -> Test:
        plain: Test = getattr(test, "plain", test)
        every = [(layer, *below) for layer in mine for below in getattr(test, "cases", [()])]

        @wraps(plain)
        def run(*instance: Any, **fixtures: Any) -> None:
            run_all(partial(plain, *instance, **fixtures), every)

        for name in vars(run).keys() - KEPT:
            delattr(run, name)
        signature = inspect.signature(test)
        left = [parameter for name, parameter in signature.parameters.items() if name not in arguments]
        vars(run).update(__signature__=signature.replace(parameters=left), plain=plain, cases=every)
        return run

    return decorated


def run_all(test: Callable[..., None], every: Sequence[Sequence[Layer]]) -> None:
    """Run all chosen cases, and fail with those that failed."""
    wrong: list[tuple[str, Exception]] = []
    skipped: list[BaseException] = []
    for layers in every:
        if CHOSEN and CHOSEN not in labels_of(layers):
            continue
        try:
            test(**{name: value for layer in layers for name, value in layer.arguments().items()})
        except pytest.skip.Exception as skip:
            skipped.append(skip)
        except Exception as error:
            error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
            wrong.append((labels_of(layers), error))
    if wrong:
        raise AssertionError(told(wrong, len(every))) from wrong[0][1]
    if skipped and len(skipped) == len(every):
        raise skipped[0]


def labels_of(layers: Sequence[Layer]) -> str:
    """The name of a case in a failure."""
    return ", ".join(layer.label() for layer in layers)


def label_of(case: Any, position: int, ids: Ids) -> str:
    """The name of the value that one decorator gives."""
    if isinstance(ids, list):
        return str(ids[position])
    if is_param(case) and case.id is not None:
        return str(case.id)
    if callable(ids):
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
    """The failed cases, with their errors; the first one is the cause of the failure."""
    lines = [f"[{label}] {type(error).__name__}: {str(error).strip()[:LENGTH]}" for label, error in wrong[:SHOWN]]
    return "\n".join([f"{len(wrong)} of {count} cases failed; the first one's traceback is above", *lines])

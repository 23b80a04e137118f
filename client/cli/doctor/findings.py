"""Findings of the doctor's checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple


class Level(StrEnum):
    """The severity of a finding. Only FAIL makes the doctor's exit code 1."""

    OK = "ok"
    NOTE = "note"
    WARN = "warn"
    FAIL = "fail"


class CheckResult(NamedTuple):
    """The result of a check: its subject, its severity, and the advice."""

    check: str
    level: Level
    message: str
    advice: str = ""


def ok(check: str, message: str) -> CheckResult:
    """A finding that all is well."""
    return CheckResult(check, Level.OK, message)


def note(check: str, message: str, advice: str = "") -> CheckResult:
    """A finding that is not wrong, but may be unexpected."""
    return CheckResult(check, Level.NOTE, message, advice)


def warn(check: str, message: str, advice: str) -> CheckResult:
    """A finding that something works, but slowly or not for everything."""
    return CheckResult(check, Level.WARN, message, advice)


def fail(check: str, message: str, advice: str) -> CheckResult:
    """A finding that something will not work."""
    return CheckResult(check, Level.FAIL, message, advice)


def judged(check: str, message: str, *, doubtful: bool, advice: str) -> CheckResult:
    """A finding whose message is the same, whether all is well or not."""
    return warn(check, message, advice) if doubtful else ok(check, message)


def listed(names: Sequence[str], most: int = 3) -> str:
    """The first few names, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def installed(name: str) -> str | None:
    """The version of a distribution, None if it is missing."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def guarded(name: str, check: Callable[[], Iterable[CheckResult]]) -> Iterator[CheckResult]:
    """The findings of a check, or one that says that the check raised."""
    try:
        yield from check()
    except Exception as error:
        yield warn(name, f"could not be checked ({type(error).__name__}: {error})", "please report this")

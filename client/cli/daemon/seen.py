"""What `tensord top` sees: two looks at a daemon, and the rates between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

Rows: TypeAlias = Sequence[Mapping[str, Any]]
Seen: TypeAlias = Mapping[str, Any]  # as --json prints it

# By what the sessions are sorted, the smallest first.
SORTS: Final[Mapping[str, Callable[[Mapping[str, Any]], Any]]] = {
    "messages": lambda one: (-one["per_second"], -one["live"]),
    "live": lambda one: (-one["live"], -one["per_second"]),
    "bytes": lambda one: -one["bytes"],
    "name": itemgetter("name"),
}
USUAL: Final = "messages"
# Rates are per second: by their names, the amounts whose growth they are.
_SESSION_RATES: Mapping[str, Callable[[Mapping[str, Any]], int]] = {
    "per_second": itemgetter("consumed"),  # messages
    "moved_per_second": lambda one: one["moved"]["bytes"],
    "evicted_per_second": lambda one: one["evicted"]["bytes"],
}
_DEVICE_RATES: Mapping[str, Callable[[Mapping[str, Any]], int]] = {
    "moved_per_second": lambda one: sum(transfer["bytes"] for transfer in one["transfers"].values()),
    "evicted_per_second": lambda one: one["eviction"]["evicted"]["bytes"] + one["eviction"]["dropped"]["bytes"],
    "returned_per_second": lambda one: one["eviction"]["returned"]["bytes"],
}


class Look(NamedTuple):
    """The state of a daemon at one moment (`time.monotonic`)."""

    at: float
    status: Mapping[str, Any]
    sessions: Rows
    devices: Rows


def seen(before: Look, now: Look) -> Seen:
    """What the daemon says, with the rates between two looks; the busiest session first."""
    passed = max(now.at - before.at, 1e-6)
    done = now.status["instructions"]["retired"] - before.status["instructions"]["retired"]
    return {
        "status": now.status,
        "per_second": max(0, done) / passed,
        "sessions": sorted_by(USUAL, _with_rates(before.sessions, now.sessions, "id", _SESSION_RATES, passed)),
        "devices": _with_rates(before.devices, now.devices, "name", _DEVICE_RATES, passed),
    }


def _with_rates(
    before: Rows, now: Rows, key: str, amounts: Mapping[str, Callable[[Mapping[str, Any]], int]], passed: float
) -> list[dict[str, Any]]:
    """The rows with their rates; 0 for a row that is new."""
    earlier = {one[key]: one for one in before}
    found = []
    for one in now:
        then = earlier.get(one[key], one)
        rates = {name: max(0, amount(one) - amount(then)) / passed for name, amount in amounts.items()}
        found.append({**one, **rates})
    return found


def sorted_by(sort: str, sessions: Rows) -> list[Mapping[str, Any]]:
    """The sessions in that order."""
    return sorted(sessions, key=lambda one: (SORTS[sort](one), one["id"]))

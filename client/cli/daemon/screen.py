"""The screen of `tensord top`: lines and tables, as many as fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

from ..drawing.figures import count, duration, plural, rate, size, some
from ..drawing.tables import Column, cut, plain, table_in_lines, wrapped
from ..drawing.terminal import PIPED_WIDTH, dim
from .shown import doing, moved

Rows: TypeAlias = Sequence[Mapping[str, Any]]
ScreenState: TypeAlias = Mapping[str, Any]  # as --json prints it

# The sort keys of sessions, smallest first.
SORTS: Final[Mapping[str, Callable[[Mapping[str, Any]], Any]]] = {
    "messages": lambda one: (-one["per_second"], -one["live"]),
    "live": lambda one: (-one["live"], -one["per_second"]),
    "bytes": lambda one: -one["bytes"],
    "name": itemgetter("name"),
}
DEFAULT_SORT: Final = "messages"
# Rates per second, by name, and the amounts from whose growth they are computed.
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


class DaemonSample(NamedTuple):
    """The state of a daemon at one moment (`time.monotonic`)."""

    at: float
    status: Mapping[str, Any]
    sessions: Rows
    devices: Rows


def screen_state(before: DaemonSample, now: DaemonSample) -> ScreenState:
    """The daemon's state, with the rates between two samples; the busiest session first."""
    passed = max(now.at - before.at, 1e-6)
    done = now.status["instructions"]["retired"] - before.status["instructions"]["retired"]
    return {
        "status": now.status,
        "per_second": max(0, done) / passed,
        "sessions": sorted_by(DEFAULT_SORT, _with_rates(before.sessions, now.sessions, "id", _SESSION_RATES, passed)),
        "devices": _with_rates(before.devices, now.devices, "name", _DEVICE_RATES, passed),
    }


def _with_rates(
    before: Rows, now: Rows, key: str, amounts: Mapping[str, Callable[[Mapping[str, Any]], int]], passed: float
) -> list[dict[str, Any]]:
    """The rows with their rates; 0 for a row that is new."""
    earlier = {one[key]: one for one in before}
    rows = []
    for row in now:
        then = earlier.get(row[key], row)
        rates = {name: max(0, amount(row) - amount(then)) / passed for name, amount in amounts.items()}
        rows.append({**row, **rates})
    return rows


def sorted_by(sort: str, sessions: Rows) -> list[Mapping[str, Any]]:
    return sorted(sessions, key=lambda one: (SORTS[sort](one), one["id"]))


_HUNG_SHOWN = 5
_AROUND = 3  # lines of a table besides its rows: an empty line before, the head, and a rule


class ScreenTable(NamedTuple):
    """A table of the screen, with its most important rows first."""

    what: str
    columns: Sequence[Column]
    rows: Sequence[Any]


def screen(
    state: ScreenState, foot: str = "", *, width: int = PIPED_WIDTH, height: int | None = None, sort: str = DEFAULT_SORT
) -> list[str]:
    """The whole screen, from top to bottom. With a `height`, the foot names the rows that did not fit."""
    head, hung = (list(_fitted(lines, width, height)) for lines in (_head(state), _hung(state["status"])))
    sessions = [one for one in sorted_by(sort, state["sessions"]) if not one["asks"]]
    parts = [
        ScreenTable("device", _DEVICES, state["devices"]),
        ScreenTable("stream", _STREAMS, list(_streams(state)) or [{"stream": "all", "does": "idle"}]),
        ScreenTable("session", _SESSIONS, sessions),
    ]
    room = None if height is None else height - len(head) - len(hung) - 2  # for an empty line and the foot
    left_out: list[str] = []
    tables: list[str] = []
    for part, share in zip(parts, _shares([len(part.rows) for part in parts], room), strict=True):
        if share < len(part.rows):
            left_out.append(plural(len(part.rows) - share, part.what))
        if share:
            drawn, missing = table_in_lines(part.columns, part.rows[:share], width)
            left_out += missing
            tables += drawn
    omitted = f"left out: {', '.join(reversed(left_out))}" if left_out else ""
    foot = "; ".join(filter(None, (foot, omitted)))
    return [*head, *tables, "", *hung, *map(dim, _fitted([foot] if foot else [], width, height))]


def _fitted(texts: Iterable[str], width: int, height: int | None) -> Iterator[str]:
    """The texts as lines, wrapped; on a screen of known height cut to one line each."""
    for text in map(plain, texts):
        yield from wrapped(text, width) if height is None else (cut(text, width),)


def _shares(wanted: Sequence[int], room: int | None) -> list[int]:
    """The number of rows of each table: one at a time in turn, the last table first, until the room is used up."""
    if room is None:
        return list(wanted)
    shares = [0] * len(wanted)
    order = range(len(wanted) - 1, -1, -1)
    while any(share < most for share, most in zip(shares, wanted, strict=True)):
        before = list(shares)
        for n in order:
            cost = 1 if shares[n] else 1 + _AROUND
            if shares[n] < wanted[n] and cost <= room:
                shares[n] += 1
                room -= cost
        if shares == before:
            break
    return shares


def _head(state: ScreenState) -> list[str]:
    status, done = state["status"], state["status"]["instructions"]
    process = f"process {status['pid']}, up {duration(status['uptime'])}, {size(status['memory'])} of memory"
    flow = f"{rate(state['per_second'])} instructions, {count(done['live'])} live, {count(done['pending'])} pending"
    held = f"{plural(status['tensors'], 'tensor')}, {plural(status['names'], 'name')}"
    return [
        f"tensord {status['version']} at {status['address']}, {process}",
        f"{flow}, {count(done['failed'])} failed; {held}",
    ]


def _per_second(name: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda one: some("{}/s".format, some(size, round(one[f"{name}_per_second"])))


_DEVICES: Final = (
    Column("device", itemgetter("name")),
    Column("used>", lambda one: size(one["memory"]["used"])),
    Column("of>", lambda one: size(one["memory"]["limit"])),
    Column("cached>", lambda one: size(one["memory"]["cached"]), spare=1),
    Column("moving>", _per_second("moved"), spare=2),
    Column("leaving>", _per_second("evicted"), spare=3),
    Column("returning>", _per_second("returned"), spare=4),
    Column("moved", lambda one: moved(one["transfers"]), folds=True, spare=5),
    Column("lost", itemgetter("lost")),
)
_STREAMS: Final = (Column("stream"), Column("does", folds=True))
_SESSIONS: Final = (
    Column("session>", itemgetter("id")),
    Column("name", itemgetter("name"), folds=True),
    Column("pid>", lambda one: one["pid"] or "", spare=1),
    Column("messages>", lambda one: rate(one["per_second"])),
    Column("live>", lambda one: count(one["live"]), spare=2),
    Column("pending>", lambda one: count(one["pending"]), spare=3),
    Column("tensors>", lambda one: count(one["tensors"]), spare=5),
    Column("bytes>", lambda one: size(one["bytes"])),
    Column("moving>", _per_second("moved"), spare=6),
    Column("evicting>", _per_second("evicted"), spare=7),
    Column("errors>", lambda one: some(count, one["errors"]), spare=4),
)


def _streams(state: ScreenState) -> Iterator[dict[str, str]]:
    for one in state["devices"]:
        for stream in one["streams"]:
            if stream["running"] is not None or stream["queued"] or stream["backlog"]:
                yield {"stream": stream["name"], "does": doing(stream)}


def _hung(status: Mapping[str, Any]) -> list[str]:
    return [
        f"hangs: #{one['instruction']} {one['op']} on {one['stream']} for {duration(one['seconds'])}"
        + (f" [{one['location']}]" if one.get("location") else "")
        for one in status["hung"][:_HUNG_SHOWN]
    ]

"""`tensord top`: a screen that shows what a daemon does, refreshed at an interval.

Rates are differences between two looks, so the first screen appears after one interval.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

import click

from ..drawing.figures import count, duration, plural, rate, size, some
from ..drawing.tables import Column, cut, plain, table_in_lines, wrapped
from ..drawing.terminal import PIPED_WIDTH, can_draw, dim, print_lines, size_of, whole_screen, width_of_stdout
from ..line import options
from ..line.output import in_json, tell
from .ask import asking
from .shown import doing, moved

_HUNG_SHOWN = 5
_ENDS = ("q", "Q")
# By what the sessions are sorted, the smallest first.
_SORTS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "messages": lambda one: (-one["per_second"], -one["live"]),
    "live": lambda one: (-one["live"], -one["per_second"]),
    "bytes": lambda one: -one["bytes"],
    "name": itemgetter("name"),
}
_USUAL = "messages"
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
_GLANCE = 0.25  # seconds between two looks at the keys and at the size of the terminal
_AROUND = 3  # lines of a table that are no rows: an empty one before, its head, and a rule


Ask: TypeAlias = Callable[..., Any]  # the daemon, what there is
Rows: TypeAlias = Sequence[Mapping[str, Any]]
Seen: TypeAlias = Mapping[str, Any]  # as --json prints it


class Look(NamedTuple):
    """The state of a daemon at one moment (`time.monotonic`)."""

    at: float
    status: Mapping[str, Any]
    sessions: Rows
    devices: Rows


class View:
    """What the keys have changed: by what the sessions are sorted, and whether the keys are listed."""

    def __init__(self) -> None:
        self.sort = _USUAL
        self.lists_keys = False
        self.size = size_of(sys.stdout)

    def typed(self, key: str) -> bool:
        """Take a key, or none; is the screen to be drawn anew? It is, too, when the terminal has another size."""
        before, self.size = self.size, size_of(sys.stdout)
        if key in ("s", "S"):
            names = list(_SORTS)
            self.sort = names[(names.index(self.sort) + 1) % len(names)]
        elif key in ("h", "H", "?"):
            self.lists_keys = not self.lists_keys
        else:
            return before != self.size
        return True

    def foot(self, interval: float) -> str:
        """The last line of the screen."""
        if self.lists_keys:
            return f"s: sort sessions by {', '.join(_SORTS)} (now {self.sort}); h: hide this; q: end"
        return f"every {duration(interval)}; sessions by {self.sort}; q ends it, h lists the keys"


@click.command()
@options.address
@click.option("--interval", type=click.FloatRange(0.1, 3600), default=1.0, help="Seconds between two looks.")
@click.option("--once", is_flag=True, help="Print one screen and exit.")
@options.as_json
def top(address: str | None, interval: float, *, once: bool) -> None:
    """Watch the daemon work; q or Ctrl-C ends it.

    Shows devices, streams, hanging kernels, and sessions by messages per second; the key s sorts them by something
    else, and h lists the keys. With --json, one line for each look; in a pipe or a file, one screen below the other.

    Example: tensord top --interval 0.5
    """
    with asking(address, lasting=True) as ask:
        try:
            if once or in_json() or not can_draw(sys.stdout):
                _tell(ask, interval, once=once)
            else:
                _watch(ask, interval)
        except KeyboardInterrupt:
            return


def _tell(ask: Ask, interval: float, *, once: bool) -> None:
    """Print what there is, again and again, or once."""
    from ..drawing.keyboard import sleep

    for before, now in _looks(ask, interval, sleep):
        tell(seen(before, now), lambda found: print_lines(screen(found, width=width_of_stdout())))
        sys.stdout.flush()
        if once:
            return


def _watch(ask: Ask, interval: float) -> None:
    """Show it on the whole screen, until a key ends that."""
    from ..drawing.keyboard import keys_as_typed

    view = View()
    with whole_screen() as show, keys_as_typed() as wait:
        show(["looking ..."])
        for before, now in _looks(ask, interval, wait, view.typed):
            width, height = view.size
            foot = view.foot(interval)
            show(screen(seen(before, now), foot, width=width, height=height, sort=view.sort))


def _looks(
    ask: Ask, interval: float, wait: Callable[[float], str], typed: Callable[[str], bool] = lambda _: False
) -> Iterator[tuple[Look, Look]]:
    """Pairs of looks; `wait` sleeps between two, and returns a key that was typed. They end with q. A pair comes again
    if another key has changed how it is shown."""
    before = _look(ask)
    last: tuple[Look, Look] | None = None
    while True:
        while (rest := before.at + interval - time.monotonic()) > 0:
            key = wait(min(rest, _GLANCE))
            if key in _ENDS:
                return
            if typed(key) and last is not None:
                yield last
        now = _look(ask)
        last = before, now
        yield last
        before = now


def _look(ask: Ask) -> Look:
    return Look(time.monotonic(), ask("status"), ask("sessions"), ask("devices"))


def seen(before: Look, now: Look) -> Seen:
    """What the daemon says, with the rates between two looks; the busiest session first."""
    passed = max(now.at - before.at, 1e-6)
    done = now.status["instructions"]["retired"] - before.status["instructions"]["retired"]
    return {
        "status": now.status,
        "per_second": max(0, done) / passed,
        "sessions": sorted_by(_USUAL, _with_rates(before.sessions, now.sessions, "id", _SESSION_RATES, passed)),
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
    return sorted(sessions, key=lambda one: (_SORTS[sort](one), one["id"]))


class Part(NamedTuple):
    """A table of the screen, and its rows, the most important first."""

    what: str
    columns: Sequence[Column]
    rows: Sequence[Any]


def screen(
    found: Seen, foot: str = "", *, width: int = PIPED_WIDTH, height: int | None = None, sort: str = _USUAL
) -> list[str]:
    """The whole screen, one part below the other. With a `height` the foot says what is left out for want of room."""
    head, hung = (list(_fitted(lines, width, height)) for lines in (_head(found), _hung(found["status"])))
    sessions = [one for one in sorted_by(sort, found["sessions"]) if not one["asks"]]
    parts = [
        Part("device", _DEVICES, found["devices"]),
        Part("stream", _STREAMS, list(_streams(found)) or [{"stream": "none of them", "does": "idle"}]),
        Part("session", _SESSIONS, sessions),
    ]
    room = None if height is None else height - len(head) - len(hung) - 2  # for an empty line, and the foot
    left_out: list[str] = []
    tables: list[str] = []
    for part, share in zip(parts, _shares([len(part.rows) for part in parts], room), strict=True):
        if share < len(part.rows):
            left_out.append(plural(len(part.rows) - share, part.what))
        if share:
            drawn, missing = table_in_lines(part.columns, part.rows[:share], width)
            left_out += missing
            tables += drawn
    told = f"left out: {', '.join(reversed(left_out))}" if left_out else ""
    foot = "; ".join(filter(None, (foot, told)))
    return [*head, *tables, "", *hung, *map(dim, _fitted([foot] if foot else [], width, height))]


def _fitted(texts: Iterable[str], width: int, height: int | None) -> Iterator[str]:
    """Texts as lines: on a screen, whose height is known, one for each."""
    for text in map(plain, texts):
        yield from wrapped(text, width) if height is None else (cut(text, width),)


def _shares(wanted: Sequence[int], room: int | None) -> list[int]:
    """How many rows each table gets. Tables get rows in turn, the last one first, until the room is used up."""
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


def _head(found: Seen) -> list[str]:
    status, done = found["status"], found["status"]["instructions"]
    process = f"process {status['pid']}, up {duration(status['uptime'])}, {size(status['memory'])} of memory"
    flow = f"{rate(found['per_second'])} instructions, {count(done['live'])} live, {count(done['pending'])} pending"
    held = f"{plural(status['tensors'], 'tensor')}, {plural(status['names'], 'name')}"
    return [
        f"tensord {status['version']} at {status['address']}, {process}",
        f"{flow}, {count(done['failed'])} failed; {held}",
    ]


def _per_second(name: str) -> Callable[[Mapping[str, Any]], str]:
    """The text of a rate in bytes."""
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


def _streams(found: Seen) -> Iterator[dict[str, str]]:
    """The streams that have work."""
    for one in found["devices"]:
        for stream in one["streams"]:
            if stream["running"] is not None or stream["queued"] or stream["backlog"]:
                yield {"stream": stream["name"], "does": doing(stream)}


def _hung(status: Mapping[str, Any]) -> list[str]:
    return [
        f"hangs: #{one['instruction']} {one['op']} on {one['stream']} for {duration(one['seconds'])}"
        + (f" [{one['location']}]" if one.get("location") else "")
        for one in status["hung"][:_HUNG_SHOWN]
    ]

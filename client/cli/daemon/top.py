"""`tensord top`: a screen that shows what a daemon does, refreshed at an interval.

Rates are differences between two looks, so the first screen appears after one interval.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import click

from ..drawing.figures import count, duration, plural, rate, size, some
from ..drawing.tables import Column, cut, plain, table_in_lines, wrapped
from ..drawing.terminal import PIPED_WIDTH, can_draw, dim, print_lines, size_of, whole_screen, width_of_stdout
from ..line import options
from ..line.output import in_json, print_json
from .ask import asking
from .shown import doing, moved

_HUNG_SHOWN = 5
_ENDS = ("q", "Q")
# By what the sessions are sorted: of a session and its messages per second, the smallest first.
_SORTS: Mapping[str, Callable[[Mapping[str, Any], float], Any]] = {
    "messages": lambda one, rate: (-rate, -one["live"]),
    "live": lambda one, rate: (-one["live"], -rate),
    "bytes": lambda one, _: -one["bytes"],
    "name": lambda one, _: one["name"],
}
_GLANCE = 0.25  # seconds between two looks at the keys and at the size of the terminal
_AROUND = 3  # lines of a table that are no rows: an empty one before, its head, and a rule


Ask: TypeAlias = Callable[..., Any]  # the daemon, what there is


class Look(NamedTuple):
    """The state of a daemon at one moment (`time.monotonic`)."""

    at: float
    status: Mapping[str, Any]
    sessions: Sequence[Mapping[str, Any]]
    devices: Sequence[Mapping[str, Any]]


class Rates(NamedTuple):
    """What happened between two looks, per second: instructions, messages of each session, bytes per device that moved,
    that left to make room, by a transfer or without, and that came back; bytes per session that moved for it, and those
    of them that made room."""

    instructions: float
    sessions: Mapping[int, float]
    moved: Mapping[str, float]
    evicted: Mapping[str, float]
    returned: Mapping[str, float]
    caused: Mapping[int, float]
    evicting: Mapping[int, float]


class View:
    """What the keys have changed: by what the sessions are sorted, and whether the keys are listed."""

    def __init__(self) -> None:
        self.sort = next(iter(_SORTS))
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
        found = rates(before, now)
        if in_json():
            print_json(_plain(now, found))
        else:
            print_lines(screen(now, found, width=width_of_stdout()))
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
            show(screen(now, rates(before, now), foot, width=width, height=height, sort=view.sort))


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


def rates(before: Look, now: Look) -> Rates:
    """The rates between two looks; 0 for a session that is new."""
    passed = max(now.at - before.at, 1e-6)
    done = now.status["instructions"]["retired"] - before.status["instructions"]["retired"]
    earlier = {one["name"]: one for one in before.devices}
    sessions = {one["id"]: one for one in before.sessions}

    def growth(nbytes: Callable[[Mapping[str, Any]], int]) -> dict[str, float]:
        return {
            one["name"]: max(0, nbytes(one) - nbytes(earlier.get(one["name"], one))) / passed for one in now.devices
        }

    def progress(amount: Callable[[Mapping[str, Any]], int]) -> dict[int, float]:
        return {one["id"]: max(0, amount(one) - amount(sessions.get(one["id"], one))) / passed for one in now.sessions}

    return Rates(
        max(0, done) / passed,
        progress(lambda one: int(one["consumed"])),
        growth(_moved_bytes),
        growth(lambda one: int(one["eviction"]["evicted"]["bytes"] + one["eviction"]["dropped"]["bytes"])),
        growth(lambda one: int(one["eviction"]["returned"]["bytes"])),
        progress(lambda one: int(one["moved"]["bytes"])),
        progress(lambda one: int(one["evicted"]["bytes"])),
    )


def _moved_bytes(device: Mapping[str, Any]) -> int:
    return sum(one["bytes"] for one in device["transfers"].values())


def _plain(now: Look, found: Rates) -> dict[str, Any]:
    sessions = [
        {
            **one,
            "per_second": found.sessions[one["id"]],
            "moved_per_second": found.caused[one["id"]],
            "evicted_per_second": found.evicting[one["id"]],
        }
        for one in _busiest(now.sessions, found)
    ]
    devices = [
        {
            **one,
            "moved_per_second": found.moved[one["name"]],
            "evicted_per_second": found.evicted[one["name"]],
            "returned_per_second": found.returned[one["name"]],
        }
        for one in now.devices
    ]
    return {"status": now.status, "per_second": found.instructions, "sessions": sessions, "devices": devices}


def _busiest(
    sessions: Sequence[Mapping[str, Any]], found: Rates, sort: str = next(iter(_SORTS))
) -> list[Mapping[str, Any]]:
    rank = _SORTS[sort]
    return sorted(sessions, key=lambda one: (rank(one, found.sessions[one["id"]]), one["id"]))


class Part(NamedTuple):
    """A table of the screen, and its rows, the most important first."""

    what: str
    columns: Sequence[Column]
    rows: Sequence[Any]


def screen(
    now: Look,
    found: Rates,
    foot: str = "",
    *,
    width: int = PIPED_WIDTH,
    height: int | None = None,
    sort: str = next(iter(_SORTS)),
) -> list[str]:
    """The whole screen, one part below the other. With a `height` the foot says what is left out for want of room."""
    head, hung = (list(_fitted(lines, width, height)) for lines in (_head(now, found), _hung(now)))
    parts = [_devices(now, found), _streams(now), _sessions(now, found, sort)]
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


def _head(now: Look, found: Rates) -> list[str]:
    status, done = now.status, now.status["instructions"]
    process = f"process {status['pid']}, up {duration(status['uptime'])}, {size(status['memory'])} of memory"
    flow = f"{rate(found.instructions)} instructions, {count(done['live'])} live, {count(done['pending'])} pending"
    held = f"{plural(status['tensors'], 'tensor')}, {plural(status['names'], 'name')}"
    return [
        f"tensord {status['version']} at {status['address']}, {process}",
        f"{flow}, {count(done['failed'])} failed; {held}",
    ]


def _devices(now: Look, found: Rates) -> Part:
    columns = (
        Column("device", itemgetter("name")),
        Column("used>", lambda one: size(one["memory"]["used"])),
        Column("of>", lambda one: size(one["memory"]["limit"])),
        Column("cached>", lambda one: size(one["memory"]["cached"]), spare=1),
        Column("moving>", lambda one: _per_second(found.moved[one["name"]]), spare=2),
        Column("leaving>", lambda one: _per_second(found.evicted[one["name"]]), spare=3),
        Column("returning>", lambda one: _per_second(found.returned[one["name"]]), spare=4),
        Column("moved", lambda one: moved(one["transfers"]), folds=True, spare=5),
        Column("lost", itemgetter("lost")),
    )
    return Part("device", columns, now.devices)


def _per_second(nbytes: float) -> str:
    return f"{size(round(nbytes))}/s" if nbytes else ""


def _streams(now: Look) -> Part:
    rows = [
        {"stream": stream["name"], "does": doing(stream)}
        for one in now.devices
        for stream in one["streams"]
        if stream["running"] is not None or stream["queued"] or stream["backlog"]
    ]
    nothing = {"stream": "none of them", "does": "idle"}
    return Part("stream", (Column("stream"), Column("does", folds=True)), rows or [nothing])


def _sessions(now: Look, found: Rates, sort: str) -> Part:
    columns = (
        Column("session>", itemgetter("id")),
        Column("name", itemgetter("name"), folds=True),
        Column("pid>", lambda one: one["pid"] or "", spare=1),
        Column("messages>", lambda one: rate(found.sessions[one["id"]])),
        Column("live>", lambda one: count(one["live"]), spare=2),
        Column("pending>", lambda one: count(one["pending"]), spare=3),
        Column("tensors>", lambda one: count(one["tensors"]), spare=5),
        Column("bytes>", lambda one: size(one["bytes"])),
        Column("moving>", lambda one: _per_second(found.caused[one["id"]]), spare=6),
        Column("evicting>", lambda one: _per_second(found.evicting[one["id"]]), spare=7),
        Column("errors>", lambda one: some(count, one["errors"]), spare=4),
    )
    return Part("session", columns, [one for one in _busiest(now.sessions, found, sort) if not one["asks"]])


def _hung(now: Look) -> list[str]:
    return [
        f"hangs: #{one['instruction']} {one['op']} on {one['stream']} for {duration(one['seconds'])}"
        + (f" [{one['location']}]" if one.get("location") else "")
        for one in now.status["hung"][:_HUNG_SHOWN]
    ]

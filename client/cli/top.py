"""`tensord top`: a screen that shows what a daemon does, refreshed at an interval.

Rates are differences between two looks, so the first screen appears after one interval.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from .admin import doing, moved
from .ask import Address, Json, connected, print_json
from .figures import count, duration, plural, rate, size

if TYPE_CHECKING:
    from rich.console import RenderableType

_SESSIONS_SHOWN = 20
_HUNG_SHOWN = 5


class Look(NamedTuple):
    """The state of a daemon at one moment (`time.monotonic`)."""

    at: float
    status: Mapping[str, Any]
    sessions: Sequence[Mapping[str, Any]]
    devices: Sequence[Mapping[str, Any]]


class Rates(NamedTuple):
    """What happened between two looks, per second: instructions, messages of each session, bytes per device."""

    instructions: float
    sessions: Mapping[int, float]
    moved: Mapping[str, float]


def add(app: typer.Typer) -> None:
    """Register the command."""
    app.command()(top)


def top(
    address: Address = None,
    interval: Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds between two looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print one screen and exit.")] = False,
    as_json: Json = False,
) -> None:
    """Watch the daemon work; Ctrl-C ends it.

    Shows devices, streams, hanging kernels, and sessions by messages per second. With --json, one line for each look.

    Example: tensord top --interval 0.5
    """
    with connected(address) as session:
        looks = _looks(session, interval)
        try:
            if as_json:
                for before, now in looks:
                    print_json(_plain(now, rates(before, now)))
                    if once:
                        break
            elif once:
                _print_once(*next(looks))
            else:
                _show(looks, interval)
        except KeyboardInterrupt:
            return


def _looks(session: Any, interval: float) -> Iterator[tuple[Look, Look]]:
    before = _look(session)
    while True:
        time.sleep(max(0.0, before.at + interval - time.monotonic()))
        now = _look(session)
        yield before, now
        before = now


def _look(session: Any) -> Look:
    query = session._query
    return Look(time.monotonic(), query("status"), query("sessions"), query("devices"))


def rates(before: Look, now: Look) -> Rates:
    """The rates between two looks; 0 for a session that is new."""
    passed = max(now.at - before.at, 1e-6)
    done = now.status["instructions"]["retired"] - before.status["instructions"]["retired"]
    consumed = {one["id"]: one["consumed"] for one in before.sessions}
    earlier = {one["name"]: _moved_bytes(one) for one in before.devices}
    return Rates(
        max(0, done) / passed,
        {
            one["id"]: max(0, one["consumed"] - consumed.get(one["id"], one["consumed"])) / passed
            for one in now.sessions
        },
        {one["name"]: max(0, _moved_bytes(one) - earlier.get(one["name"], 0)) / passed for one in now.devices},
    )


def _moved_bytes(device: Mapping[str, Any]) -> int:
    return sum(one["bytes"] for one in device["transfers"].values())


def _plain(now: Look, found: Rates) -> dict[str, Any]:
    sessions = [{**one, "per_second": found.sessions[one["id"]]} for one in _busiest(now.sessions, found)]
    devices = [{**one, "moved_per_second": found.moved[one["name"]]} for one in now.devices]
    return {"status": now.status, "per_second": found.instructions, "sessions": sessions, "devices": devices}


def _busiest(sessions: Sequence[Mapping[str, Any]], found: Rates) -> list[Mapping[str, Any]]:
    return sorted(sessions, key=lambda one: (-found.sessions[one["id"]], -one["live"], one["id"]))


def _print_once(before: Look, now: Look) -> None:
    from .terminal import stdout_console

    stdout_console().print(screen(now, rates(before, now)))


def _show(looks: Iterator[tuple[Look, Look]], interval: float) -> None:
    from rich.live import Live
    from rich.text import Text

    with Live(Text("looking ..."), screen=True, auto_refresh=False) as live:
        for before, now in looks:
            foot = Text(f"every {duration(interval)}; Ctrl-C ends it", style="dim")
            live.update(screen(now, rates(before, now), foot), refresh=True)


def screen(now: Look, found: Rates, foot: RenderableType = "") -> RenderableType:
    """The whole screen, one part below the other."""
    from rich.console import Group

    from .terminal import plain_text

    lines = [plain_text(line) for line in _head(now, found)]
    hung = [plain_text(line) for line in _hung(now)]
    return Group(*lines, _devices(now, found), _streams(now), _sessions(now, found), *hung, foot)


def _head(now: Look, found: Rates) -> list[str]:
    status, done = now.status, now.status["instructions"]
    process = f"process {status['pid']}, up {duration(status['uptime'])}, {size(status['memory'])} of memory"
    flow = f"{rate(found.instructions)} instructions, {count(done['live'])} live, {count(done['pending'])} pending"
    held = f"{plural(status['tensors'], 'tensor')}, {plural(status['names'], 'name')}"
    return [
        f"tensord {status['version']} at {status['address']}, {process}",
        f"{flow}, {count(done['failed'])} failed; {held}",
    ]


def _devices(now: Look, found: Rates) -> RenderableType:
    from .terminal import table

    rows = [
        (
            one["name"],
            size(one["memory"]["used"]),
            size(one["memory"]["limit"]),
            size(one["memory"]["cached"]),
            f"{size(round(found.moved[one['name']]))}/s" if found.moved[one["name"]] else "",
            moved(one["transfers"]),
            one["lost"],
        )
        for one in now.devices
    ]
    return table(("device", "used>", "of>", "cached>", "moving>", "moved", "lost"), rows)


def _streams(now: Look) -> RenderableType:
    from .terminal import table

    rows = [
        (stream["name"], doing(stream))
        for one in now.devices
        for stream in one["streams"]
        if stream["running"] is not None or stream["queued"] or stream["backlog"]
    ]
    return table(("stream", "does"), rows or [("none of them", "idle")])


def _sessions(now: Look, found: Rates) -> RenderableType:
    from .terminal import table

    rows = [
        (
            str(one["id"]),
            one["name"],
            str(one["pid"] or ""),
            rate(found.sessions[one["id"]]),
            count(one["live"]),
            count(one["pending"]),
            count(one["tensors"]),
            size(one["bytes"]),
            count(one["errors"]) if one["errors"] else "",
        )
        for one in _busiest(now.sessions, found)[:_SESSIONS_SHOWN]
    ]
    return table(("session>", "name", "pid>", "messages>", "live>", "pending>", "tensors>", "bytes>", "errors>"), rows)


def _hung(now: Look) -> list[str]:
    return [
        f"hangs: #{one['instruction']} {one['op']} on {one['stream']} for {duration(one['seconds'])}"
        + (f" [{one['location']}]" if one.get("location") else "")
        for one in now.status["hung"][:_HUNG_SHOWN]
    ]

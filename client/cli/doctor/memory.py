"""The check of `tensord doctor` on a daemon's memory: bytes that nothing explains, and what is held for nobody.

Every byte of a pool has a holder (`vm.reporting.memory.extents`), so one without is a defect of tensord. A daemon that
works takes and frees memory while it is asked, so it is asked until nothing has happened meanwhile, a few times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ...requests.held import whole
from ..daemon.ask import ask
from ..drawing.figures import duration, plural, size
from .findings import Finding, fail, note, ok

ASKED: Final = 5  # times, for an answer during which nothing happens
ALL: Final = 10_000  # rows
OLD: Final = 600.0  # seconds: whoever reads a value with an error has had the time


def check_memory(address: str) -> Iterator[Finding]:
    for _ in range(ASKED):
        found = whole(ask(address, "memory", "session", ALL))
        if found["still"]:
            break
    yield from check_pools(found)
    yield from check_ended([row for row in found["rows"] if row["ended"] and row["bytes"]])
    yield from check_poisoned([row for row in found["rows"] if row["poisoned"] and (row["poisoned_age"] or 0) >= OLD])


def check_pools(found: Mapping[str, Any]) -> Iterator[Finding]:
    """Has every byte that a pool has allocated a holder?"""
    apart = [pool for pool in found["pools"] if pool["unaccounted"]]
    if found["still"]:
        for pool in apart:
            held = f"{pool['unaccounted']:,} of {pool['allocated']:,} bytes in use of {pool['device']}"
            advice = "please report this, with `tensord doctor --deep --json`"
            yield fail("device memory", f"{held} have no holder", advice)
    if not apart:
        devices = plural(len(found["pools"]), "device")
        yield ok("device memory", f"every byte in use has a holder: {size(found['total'])} on {devices}")
    elif not found["still"]:
        message = "memory was taken or freed whenever it was counted, so the holders do not add up"
        yield note("device memory", message, "ask again while less goes on")


def check_ended(rows: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """What ended sessions have left behind, held by names or other sessions."""
    if rows:
        nbytes = sum(row["bytes"] for row in rows)
        message = f"{size(nbytes)} were made by {plural(len(rows), 'session')} that ended, and are still held"
        names = [name for row in rows for name in row["names"]]
        sessions = sorted({id_ for row in rows for id_ in row["sessions"]})
        holders = [f"name {name!r}" for name in names[:3]] + [f"session {id_}" for id_ in sessions[:3]]
        more = sum(row["names_in_all"] for row in rows) - len(names[:3]) + len(sessions) - len(sessions[:3])
        by = ", ".join(holders) + (f" and {more} more" if more else "")
        yield note("ended sessions", f"{message} by {by}", "unpublish what nobody needs: tensord tensors --by name")


def check_poisoned(rows: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """Values that have held an error for a long time."""
    if rows:
        count, oldest = sum(row["poisoned"] for row in rows), max(row["poisoned_age"] for row in rows)
        message = f"{plural(count, 'value')} with an error are held, the oldest for {duration(oldest)}"
        advice = "tensord tensors shows them, with their errors; release them, or write them anew"
        yield note("values with errors", message, advice)

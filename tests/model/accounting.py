"""Compares the reports of memory with the pools: rows sum up, and ending a session frees the reported bytes."""

from __future__ import annotations

from collections import Counter

from tensord.vm.engine import Engine
from tensord.vm.model.session import VmSession
from tensord.vm.reporting.memory.extents import Walk
from tensord.vm.reporting.memory.held import KEYS, SESSION, Sums, held_slices
from tensord.vm.tracing.flat import SourceLocation

LIMIT = 3  # rows, so that most programs have more


def missum(engine: Engine, seen: Counter[str]) -> list[str]:
    """The mismatches between the rows of a report and the pools, device by device. Each call groups by another key.

    `seen`: counts the purposes of bytes that the rows name.
    """
    by = list(KEYS)[engine.scheduler.tick % len(KEYS)]
    *rows, total = (
        row for part in held_slices(engine, Sums(by), LIMIT, lambda *_: SourceLocation(), lambda _: "") for row in part
    )
    found = Counter[str]()
    for row in rows:
        seen.update(row["sorts"].keys())
        found.update(row["devices"])
        if row["bytes"] != sum(row["devices"].values()) or row["bytes"] != sum(row["sorts"].values()):
            return [f"the bytes of the row {row} are not the sum of its parts"]
    pools = {name: device.backend.allocated for name, device in engine.tiers.items()}
    said = {pool["device"]: pool["allocated"] for pool in total["pools"]}
    if said != pools or total["total"] != sum(pools.values()) or any(pool["unaccounted"] for pool in total["pools"]):
        return [f"by {by}: the report's totals are {total}, but the pools have {pools}"]
    if any(found[name] != nbytes for name, nbytes in pools.items()):
        return [f"by {by}: the rows sum up to {dict(found)}, but the pools have {pools}"]
    return []


def freed_with(engine: Engine, session: VmSession) -> dict[str, int]:
    """The bytes on each device that, by the report, the end of the session would free."""
    sums = Sums(SESSION)
    for extents in Walk(engine).slices():
        sums.add(extents)
    return dict(sums.freed.get(session.id, {}))

"""What the reports say of memory, against what the pools say: rows sum up, and ending a session frees what was said."""

from __future__ import annotations

from collections import Counter

from tensord.vm.engine import Engine
from tensord.vm.model.session import VmSession
from tensord.vm.reporting.memory.extents import Walk
from tensord.vm.reporting.memory.held import KEYS, SESSION, Sums, held_slices
from tensord.vm.tracing.flat import SourceLocation

LIMIT = 3  # rows, so that most programs have more


def missum(engine: Engine, seen: Counter[str]) -> list[str]:
    """Where the rows of one walk, by each thing in turn, do not sum up to the pools, device by device. `seen`: takes
    what bytes were for."""
    by = list(KEYS)[engine.scheduler.tick % len(KEYS)]
    *rows, total = (
        row for part in held_slices(engine, Sums(by), LIMIT, lambda *_: SourceLocation(), lambda _: "") for row in part
    )
    found = Counter[str]()
    for row in rows:
        seen.update(row["sorts"].keys())
        found.update(row["devices"])
        if row["bytes"] != sum(row["devices"].values()) or row["bytes"] != sum(row["sorts"].values()):
            return [f"the row {row} does not add up"]
    pools = {name: device.backend.allocated for name, device in engine.tiers.items()}
    said = {pool["device"]: pool["allocated"] for pool in total["pools"]}
    if said != pools or total["total"] != sum(pools.values()) or any(pool["unaccounted"] for pool in total["pools"]):
        return [f"by {by}: {total} says what is not so of {pools}"]
    if any(found[name] != nbytes for name, nbytes in pools.items()):
        return [f"by {by}: the rows have {dict(found)}, the pools {pools}"]
    return []


def freed_with(engine: Engine, session: VmSession) -> dict[str, int]:
    """What is said to be free, by device, if the session ended."""
    sums = Sums(SESSION)
    for extents in Walk(engine).slices():
        sums.add(extents)
    return dict(sums.freed.get(session.id, {}))

"""The figures of a daemon's metrics; the table in `interpreter/metrics` names them.

Prometheus asks for them as long as the daemon lives, so an answer does not examine instructions, and examines
exports in slices. It costs some microseconds for each device, op and session.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from ....interpreter.version import version
from ...model.device_state import DeviceState
from ...model.session import VmSession
from ...model.tally import Tally, Times
from ...process import MachineProcess, resident_memory
from ..answering import ClientInfo, batched
from .devices import cached, lost, transfers
from .eviction import eviction_row, total

if TYPE_CHECKING:
    from ...engine import Engine

SESSIONS: Final = 64  # rows per slice
EXPORTS: Final = 512  # exports that are examined per slice


class MetricsFacts(Protocol):
    """The facts that metrics need about a machine, of those in `questions.MachineFacts`."""

    process: MachineProcess
    kernels: str
    errors_by_type: Mapping[str, int]
    client: Callable[[int], ClientInfo | None]
    looks: Callable[[int], bool]
    hung: Callable[[], Iterable[Mapping[str, Any]]]


def metrics_slices(engine: Engine, about: MetricsFacts) -> Iterator[list[dict[str, Any]]]:
    """The figures of the machine, then a row for each session that does not belong to the command line, in slices."""
    by_device: Counter[str] = Counter()
    by_reader: Counter[int] = Counter()
    for exports in batched(list(engine.residency.releasing.exports.values()), EXPORTS):
        for export in exports:
            by_device[export.copy.device.name] += max(export.copy.nbytes, 0)
            by_reader[export.reader.id] += max(export.copy.nbytes, 0)
        yield []
    waiting = engine.waiting()
    yield [_machine(engine, about, by_device, waiting.total())]
    for sessions in batched([one for one in engine.directory.sessions.values() if not about.looks(one.id)], SESSIONS):
        yield [_session(one, about, waiting[one.id], by_reader[one.id]) for one in sessions]


def _machine(engine: Engine, about: MetricsFacts, exported: Counter[str], pending: int) -> dict[str, Any]:
    scheduler, directory = engine.scheduler, engine.directory
    sessions = list(directory.sessions.values())
    durable = engine.admission.durable.checkpoints
    return {
        "version": version(),
        "uptime": about.process.uptime(),
        "memory": resident_memory(),
        "sessions": sum(not about.looks(one.id) for one in sessions),
        "tensors": sum(len(one.tensors) for one in sessions),
        "names": len(directory.names),
        "instructions": {
            "admitted": scheduler.ids,
            "live": len(engine.live),
            "pending": pending,
            "ready": len(scheduler.dispatcher.ready),
        },
        "tally": tally_row(scheduler.tally),
        "errors": dict(about.errors_by_type),
        "devices": {name: _device(engine, device, exported[name]) for name, device in engine.pools.items()},
        "nodes": {
            doing: {node: total(counted) for node, counted in by_node.items()}
            for doing, by_node in (("sent", engine.admission.nodes.sent), ("received", engine.admission.nodes.received))
        },
        "collectives": {kind: total(counted) for kind, counted in scheduler.collectives.items()},
        "infer_misses": engine.infer.misses,
        "kernels": about.kernels,
        "hung": sum(1 for _ in about.hung()),
        "durable": None if durable.durable is None else {"failing": bool(durable.failure)},
        "checkpoints": len(durable.jobs),
    }


def tally_row(tally: Tally) -> dict[str, Any]:
    """The counts and times of ended instructions.

    `done`: rows of op, count, and the times of scheduled instructions, in the order of the ops' first use; `ended`:
    rows of op, status and count of those that did not succeed.
    """
    return {
        "done": [[op, one.done, *times_row(one.times)] for op, one in tally.counts.items()],
        "ended": [[op, status, count] for (op, status), count in tally.ended.items()],
        "delays": times_row(tally.delays),
    }


def times_row(times: Times) -> tuple[list[int], int]:
    """The counts by the bit length of the time, without zeros at the end, and the sum of the times in ns."""
    counts = times.counts
    used = max((bits + 1 for bits, count in enumerate(counts) if count), default=0)
    return counts[:used], times.total


def _device(engine: Engine, device: DeviceState, exported: int) -> dict[str, Any]:
    backlog, launches = engine.scheduler.dispatcher.backlog, device.launches
    return {
        "used": device.backend.allocated,
        "planned": device.planned,
        "limit": device.backend.limit,
        "cached": cached(device),
        "exported": exported,
        "waiting": len(device.waiting),
        "lost": bool(lost(device)),
        "eviction": eviction_row(device),
        "transfers": transfers(device),
        "streams": {one.name: [one.queued, len(backlog.get(one, ()))] for one in device.streams},
        "kernels": None if launches is None else len(launches.warm),
    }


def _session(session: VmSession, about: MetricsFacts, waiting: int, exported: int) -> dict[str, Any]:
    client = about.client(session.id)
    return {
        "id": session.id,
        "client": session.name if client is None else client.name,
        "bytes": session.account.bytes,
        "exported": exported,
        "tensors": len(session.tensors),
        "live": len(session.live),
        "pending": waiting + (0 if client is None else client.pending),
        "errors": session.counts.errors,
        "moved": total(session.counts.moved),
        "evicted": total(session.counts.evicted),
    }

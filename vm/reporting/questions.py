"""Answers the questions of sessions about the machine. The answers are plain values, made of msgpack's types.

The driving thread answers, so each step of an answer is short. A long answer (a trace, a list of tensors) is an
iterator of slices: a daemon takes one slice at a time between its turns, an embedded machine takes them all (`whole`).
An answer changes nothing and waits for nothing, with these exceptions: `detail` selects which runs are timed, `drain`
refuses new sessions, and the questions in `ACTS` act.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...interpreter.errors import ProtocolError, TensordError
from ...interpreter.version import version
from ..plugins.loading import loaded
from ..process import MachineProcess, resident_memory
from ..recording.recorders import OTHERS_QUEUE_BYTES, QUEUE_BYTES
from ..recording.tap import Tap
from ..tracing.flat import Where
from .answering import MAX_ROWS, ClientInfo, answer_with, device_or_any, error_row, error_text, natural, session_or_any
from .invariants import CHECKS, violations
from .live_trace import recent_parts, trace_parts
from .membership import Membership, refuse_alone
from .memory.extents import Walk
from .memory.held import DEVICE, SESSION, Sums, by_what, held_slices
from .rows.devices import cached, describe, lost, plain, transfers
from .rows.eviction import evict, eviction_row, returning_slices, total
from .rows.metrics import metrics_slices
from .rows.routines import routine_row
from .rows.statistics import residency, share_rows, statistics, tensor_asked
from .rows.tensors import name_kind, name_slices, state_row, tensor_slices

if TYPE_CHECKING:
    from ..engine import Engine
    from ..model.device_state import DeviceState
    from ..model.session import VmSession

ERRORS = 20  # the most recent errors in a status
FILES = 20  # the most changed files in a status
ACTS: Final = frozenset(
    {"evict", "join", "withdraw", "record", "recorded", "unrecord"}
)  # the questions that act, in program order


@dataclass(slots=True)
class MachineFacts:
    """Facts about a machine that its engine does not know. The callables are called for each answer.

    The sessions of an embedded machine have no clients, and none is a session of the command line.
    """

    where: Where
    process: MachineProcess
    address: str = "local"
    client: Callable[[int], ClientInfo | None] = lambda _session: None  # of the session with that id
    looks: Callable[[int], bool] = lambda _session: False  # whether that session belongs to the command line
    grace: float | None = None  # for how many seconds a daemon that is stopped waits for pending work
    kernels: str = ""  # the directory with compiled kernels, of a daemon with cuda devices
    hung: Callable[[], Iterable[Mapping[str, Any]]] = tuple
    errors: Callable[[], Sequence[TensordError]] = tuple
    errors_by_type: Mapping[str, int] = field(default_factory=dict)  # how many errors of each type there were
    drain: Callable[[], None] | None = None  # refuses new sessions from now on; None if the machine is not a daemon
    members: Membership | None = None  # of the cluster; None for a machine without a node name


class QuestionContext(NamedTuple):
    """The engine that is asked, the session that asks, and facts about the machine."""

    engine: Engine
    session: VmSession
    about: MachineFacts


def answer(engine: Engine, session: VmSession, what: object, arguments: object, about: MachineFacts) -> Any:
    """The answer to one question, or an iterator over its slices. ProtocolError if the question is not valid."""
    return answer_with(_ANSWERS, what, arguments, QuestionContext(engine, session, about))


def whole(answered: Any) -> Any:
    """The whole answer: the slices of a long answer are joined."""
    if isinstance(answered, Iterator):
        return [entry for part in answered for entry in part]
    return answered


# -- the questions -----------------------------------------------------------------------------------------------------


def _stats(context: QuestionContext) -> dict[str, Any]:
    found = statistics(context.engine, context.session)
    found["hung"] = plain(list(context.about.hung()))
    found["recent_errors"] = [error_text(error) for error in context.about.errors()]
    return found


def _trace(context: QuestionContext, since: object = 0, live: object = True, routines: object = None) -> Any:
    after = natural("since", since)
    known_after = after if routines is None else natural("routines", routines)
    return trace_parts(context.engine, context.about.where, after, live=bool(live), routines=known_after)


def _recent(context: QuestionContext, since: object, most: object) -> Any:
    limit = min(natural("most", most), MAX_ROWS)
    return recent_parts(context.engine, context.about.where, natural("since", since), limit)


def _status(context: QuestionContext) -> dict[str, Any]:
    engine, _, about = context
    clients = [client for id_ in list(engine.directory.sessions) if (client := about.client(id_)) is not None]
    return {
        "version": version(),
        "pid": about.process.pid,
        "address": about.address,
        "uptime": about.process.uptime(),
        "memory": resident_memory(),
        "descriptors": about.process.descriptors(),
        "devices": {name: _device_row(device) for name, device in engine.pools.items()},
        "files": _files(engine),
        "checkpoints": _checkpoints(context),
        "durable": _durable(engine),
        "grace": about.grace,
        "kernels": about.kernels,
        "sessions": sum(not about.looks(id_) for id_ in engine.directory.sessions),
        "tensors": sum(len(session.tensors) for session in engine.directory.sessions.values()),
        "names": len(engine.directory.names),
        "instructions": _instructions(engine, sum(client.pending for client in clients)),
        "transfers": {name: transfers(device) for name, device in engine.pools.items()},
        "hung": plain(list(about.hung())),
        "recent_errors": [error_row(error) for error in about.errors()[-ERRORS:]],
        "trace": _ring(engine),
    }


def _device_row(device: DeviceState) -> dict[str, Any]:
    return {
        "used": device.backend.allocated,
        "limit": device.backend.limit,
        "cached": cached(device),
        "eviction": eviction_row(device),
        "lost": lost(device),
    }


def _files(engine: Engine) -> dict[str, Any]:
    """How many files are open, and the names of those that changed while tensors still use them."""
    files = engine.residency.files
    return {"loaded": len(files.open), "changed": sorted({file.name for file in files.changed})[:FILES]}


def _instructions(engine: Engine, unread: int) -> dict[str, int]:
    """Counts of instructions. `unread` messages still wait for admission at the clients."""
    return {
        "admitted": engine.scheduler.ids,
        "live": len(engine.live),
        "pending": engine.waiting().total() + unread,
        "retired": engine.scheduler.retired,
        "failed": engine.scheduler.failed,
    }


def _ring(engine: Engine) -> dict[str, Any]:
    ring = engine.ring
    return {
        "enabled": ring.enabled,
        "records": len(ring.entries),
        "capacity": ring.entries.maxlen or 0,
        "dropped": engine.scheduler.retired - len(ring.entries) if ring.enabled else 0,
    }


def _checkpoints(context: QuestionContext) -> list[dict[str, Any]]:
    return [
        {
            "directory": str(job.target.path),
            "names": len(job.contents.names),
            "written": job.done,
            "bytes": max(job.to_write, job.done),
        }
        for job in context.engine.admission.durable.checkpoints.jobs
    ]


def _durable(engine: Engine) -> dict[str, Any] | None:
    """The directory of durable names, and why the disk is not up to date; None for a machine without durable names."""
    checkpoints = engine.admission.durable.checkpoints
    if checkpoints.durable is None:
        return None
    return {"directory": str(checkpoints.durable), "failure": checkpoints.failure}


def _sessions(context: QuestionContext, freed: object = False) -> Any:
    """The sessions.

    `freed`: each row also has the bytes that the end of the session would free; all tensors are visited for that.
    """
    return _freed_slices(context) if freed else _session_rows(context)


def _session_rows(context: QuestionContext) -> list[dict[str, Any]]:
    engine, session, about = context
    waiting = engine.waiting()
    sessions = list(engine.directory.sessions.values())
    return [
        _session(one, about, waiting[one.id], asks=one is session) | {"shares": share_rows(engine, one)}
        for one in sessions
    ]


def _freed_slices(context: QuestionContext) -> Iterator[list[dict[str, Any]]]:
    sums = Sums(SESSION)
    for extents in Walk(context.engine).slices():
        sums.add(extents)
        yield []
    yield [row | {"freed": dict(sums.freed.get(row["id"], {}))} for row in _session_rows(context)]


def _session(session: VmSession, about: MachineFacts, waiting: int, *, asks: bool) -> dict[str, Any]:
    process = about.process
    client = about.client(session.id) or ClientInfo(session.name, process.pid, process.uid, "local", process.uptime())
    return {
        "id": session.id,
        **client._asdict(),
        "pending": client.pending + waiting,
        "tensors": len(session.tensors),
        "bytes": session.account.bytes,
        "peak": session.account.peak,
        "live": len(session.live),
        "errors": session.counts.errors,
        "moved": total(session.counts.moved),
        "evicted": total(session.counts.evicted),
        "cancelled": session.cancelled is not None,
        "names": session.account.names,
        "quota": session.limits.bytes,
        "payload": session.payload,
        "strict": session.strict,
        "asks": asks,
    }


def _tensors(
    context: QuestionContext, limit: object = 50, session: object = 0, device: object = ""
) -> Iterator[list[Any]]:
    engine, _, about = context
    most, only = min(natural("limit", limit), MAX_ROWS), session_or_any(session, engine.directory.sessions)
    return tensor_slices(engine, most, only, device_or_any(device, engine.pools), about.where)


def _memory(
    context: QuestionContext, by: object = DEVICE, limit: object = 50, device: object = ""
) -> Iterator[list[Any]]:
    engine, _, about = context
    most, on = min(natural("limit", limit), MAX_ROWS), device_or_any(device, engine.pools)

    def name_of(id_: int) -> str | None:
        one, client = engine.directory.sessions.get(id_), about.client(id_)
        return None if one is None else one.name if client is None else client.name

    return held_slices(engine, Sums(by_what(by), on), most, about.where, name_of)


def _names(context: QuestionContext, limit: object = MAX_ROWS, kind: object = "") -> Iterator[list[Any]]:
    return name_slices(context.engine.directory.names, min(natural("limit", limit), MAX_ROWS), name_kind(kind))


def _invariants(context: QuestionContext) -> dict[str, Any]:
    """Check the invariants.

    The time is proportional to the number of objects, and no other session is served meanwhile.
    """
    engine = context.engine
    return {
        "rules": len(CHECKS),
        "tensors": sum(len(one.tensors) for one in engine.directory.sessions.values()),
        "instructions": len(engine.live),
        "violations": violations(engine),
    }


def _detail(context: QuestionContext, every: object, everywhere: object = False) -> int:
    """Time one of `every` runs call by call, of this session or, as long as it lives, of all sessions; 0: none."""
    engine, session, _ = context
    interval = natural("every", every)
    if not engine.ring.enabled:
        raise ProtocolError("detail is a part of the trace, but this machine does not trace: start it with tracing on")
    if everywhere:
        engine.ring.details.ask(session, interval)
    else:
        session.detail = interval
    return interval


def _members(context: QuestionContext) -> Iterator[list[Any]]:
    """The nodes of the cluster, this one included; empty if the machine does not belong to a cluster."""
    members = context.about.members
    return iter(()) if members is None else members.rows()


def _join(context: QuestionContext, rows: object, token: object) -> int:
    """Set the table of the cluster's members, and the secret by which they recognize each other."""
    members = context.about.members
    if members is None:
        raise refuse_alone()
    return members.join(context.session, rows, token)


def _drain(context: QuestionContext) -> None:
    """Refuse new sessions of the daemon. Open sessions continue."""
    if context.about.drain is None or not context.session.files.may_store:
        raise ProtocolError("only the daemon's own user, over ipc, may drain it")
    context.about.drain()


def _record(context: QuestionContext, sessions: object = (), bound: object = QUEUE_BYTES) -> dict[str, Any]:
    """Record messages and values of the given sessions, or of all, from the next batch on, with their current state."""
    engine, session, _ = context
    if not isinstance(sessions, list | tuple):
        raise ProtocolError("the sessions to record must be a list of numbers")
    chosen = frozenset(session_or_any(one, engine.directory.sessions) for one in sessions)
    if chosen != {session.id} and not session.files.may_store:
        raise ProtocolError(
            "a session may record only its own values; the daemon's own user, over ipc, may record those of others"
        )
    tap = Tap(
        engine.scheduler.clock,
        min(natural("bound", bound), QUEUE_BYTES if session.files.may_store else OTHERS_QUEUE_BYTES),
        everybody=not chosen - {0},
    )
    engine.recorders.request(session, tap, chosen - {0})
    return {"devices": list(engine.devices), "session": session.id, "version": version()}


_ANSWERS: dict[str, Callable[..., Any]] = {
    "stats": _stats,
    "residency": lambda context, id_: residency(tensor_asked(context.session, natural("id", id_))),
    "state": lambda context, id_: state_row(tensor_asked(context.session, natural("id", id_))),
    "trace": _trace,
    "recent": _recent,
    "status": _status,
    "checkpoints": _checkpoints,
    "metrics": lambda context: metrics_slices(context.engine, context.about),
    "sessions": _sessions,
    "tensors": _tensors,
    "memory": _memory,
    "devices": lambda context: [
        describe(context.engine, one, context.about.where) for one in context.engine.pools.values()
    ],
    "names": _names,
    "invariants": _invariants,
    "routine": lambda context, id_, source=False: routine_row(context.session, natural("id", id_), source=bool(source)),
    "plugins": lambda _asked: [plugin.row for plugin in loaded()],
    "detail": _detail,
    "returns": lambda context, limit=10: returning_slices(
        context.engine, min(natural("limit", limit), MAX_ROWS), context.about.where
    ),
    "evict": lambda context, names=(), owner=0, device="": evict(context.engine, context.session, names, owner, device),
    "members": _members,
    "join": _join,
    "drain": _drain,
    "record": _record,
    "recorded": lambda context: context.engine.recorders.drain(context.session),
    "recording": lambda context: {"reads": context.engine.recorders.unread(context.session)},
    "unrecord": lambda context: context.engine.recorders.end(context.session),
    "withdraw": lambda context, node: context.engine.admission.cancellation.withdraw(context.session, node),
}

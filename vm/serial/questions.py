"""Questions about a serial machine: those of the virtual machine, as far as there is an answer.

The answers have the virtual machine's layout, so that a program which reads them runs on both. Fields about streams,
transfers, queues and memory limits are empty or zero: there are none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ...interpreter.errors import ProtocolError, TensordError
from ...interpreter.version import version
from ..process import Process
from ..reporting.answering import (
    MOST,
    Client,
    answer_with,
    device_or_any,
    error_row,
    natural,
    session_or_any,
)
from ..reporting.device_rows import plain
from ..reporting.eviction import NO_EVICTION, total
from ..reporting.extents import TENSOR, Extent
from ..reporting.held_rows import DEVICE, SESSION, Sums, by_what
from ..reporting.name_rows import name_kind, name_row, names_of
from ..reporting.properties import error_text, properties, state_of
from ..routines.programs import routine_of
from .engine import SerialEngine
from .values import SerialSession, SerialTensor

ERRORS_KEPT: Final = 20
NOTHING: Final = dict(NO_EVICTION)


class About(NamedTuple):
    """What a machine knows and its engine does not: its process, the devices' options, the newest errors."""

    process: Process
    options: Mapping[str, Any]
    errors: Callable[[], Sequence[TensordError]]


def answer(engine: SerialEngine, session: SerialSession, what: object, arguments: object, about: About) -> Any:
    """The answer to one question. ProtocolError for one that the serial machine cannot answer."""
    return answer_with(_ANSWERS, what, arguments, engine, session, about)


# -- the questions -----------------------------------------------------------------------------------------------------


def _trace(_engine: SerialEngine, _session: SerialSession, _about: About, *_: object) -> Any:
    raise ProtocolError(
        'engine="serial" keeps no trace, since it schedules nothing: connect with engine="vm" to trace a program'
    )


def _detail(_engine: SerialEngine, _session: SerialSession, _about: About, every: object, _all: object = False) -> int:
    """Checked, and means nothing: there is no trace."""
    return natural("every", every)


def _returns(_engine: SerialEngine, _session: SerialSession, _about: About, limit: object = 10) -> list[Any]:
    """Nothing leaves, and nothing returns."""
    natural("limit", limit)
    return []


def _evict(_engine: SerialEngine, _session: SerialSession, _about: About, *_: object) -> dict[str, Any]:
    """There is nowhere to go."""
    return {"left": [], "more": False}


def _stats(engine: SerialEngine, session: SerialSession, about: About) -> dict[str, Any]:
    held = memory_by_device(engine)
    return {
        "engine": "serial",
        "instructions": engine.ids,
        "retired": engine.ids,
        "failed": engine.failed,
        "live": 0,
        "pending": 0,
        "by_status": {},
        "infer_misses": 0,
        "devices": {
            name: {
                "allocated": nbytes,
                "planned": 0,
                "limit": 0,
                "cached": 0,
                "cached_blocks": 0,
                "largest_cached": 0,
                "waiting_for_memory": 0,
                "eviction": NOTHING,
                "queued": {},
            }
            for name, nbytes in held.items()
        },
        "transfers": {name: {} for name in engine.devices},
        "names": sorted(engine.names),
        "hung": [],
        "recent_errors": [error_text(error) for error in about.errors()],
        "session": {
            "id": session.id,
            "tensors": len(session.tensors),
            "bytes": sum(nbytes_of(tensor) for tensor in session.tensors.values()),
            "peak": 0,
            "live": 0,
            "errors": session.errors,
            "cancelled": session.cancelled is not None,
            "shares": {},
        },
    }


def _residency(_engine: SerialEngine, session: SerialSession, _about: About, id_: object) -> dict[str, str]:
    return residency(_tensor_of(session, id_))


def _state(_engine: SerialEngine, session: SerialSession, _about: About, id_: object) -> dict[str, Any]:
    tensor = _tensor_of(session, id_)
    return state_of(_error_of(tensor), tensor.meta, ready=True)


def _tensor_of(session: SerialSession, id_: object) -> SerialTensor:
    tensor = session.tensors.get(natural("id", id_))
    if tensor is None:
        raise ProtocolError(f"tensor {id_} was released")
    return tensor


def residency(tensor: SerialTensor) -> dict[str, str]:
    """Maps the home device to "valid", or to "poisoned" where there is an error in place of a value."""
    return {tensor.home: "poisoned" if tensor.value.array is None else "valid"}


def _checkpoints(_engine: SerialEngine, _session: SerialSession, _about: About) -> list[dict[str, Any]]:
    return []  # each is written at once


def _status(engine: SerialEngine, _session: SerialSession, about: About) -> dict[str, Any]:
    return {
        "version": version(),
        "engine": "serial",
        "pid": about.process.pid,
        "address": "local",
        "uptime": about.process.uptime(),
        "memory": about.process.memory(),
        "descriptors": about.process.descriptors(),
        "devices": {
            name: {"used": nbytes, "limit": 0, "cached": 0, "eviction": NOTHING, "lost": ""}
            for name, nbytes in memory_by_device(engine).items()
        },
        "files": {"loaded": 0, "changed": []},
        "checkpoints": [],
        "durable": None,
        "grace": None,
        "sessions": len(engine.sessions),
        "tensors": sum(len(session.tensors) for session in engine.sessions.values()),
        "names": len(engine.names),
        "instructions": {
            "admitted": engine.ids,
            "live": 0,
            "pending": 0,
            "retired": engine.ids,
            "failed": engine.failed,
        },
        "transfers": {name: {} for name in engine.devices},
        "hung": [],
        "recent_errors": [error_row(error) for error in about.errors()],
        "trace": {"enabled": False, "records": 0, "capacity": 0, "dropped": 0},
    }


def _sessions(
    engine: SerialEngine, session: SerialSession, about: About, freed: object = False
) -> list[dict[str, Any]]:
    sums, process = Sums(SESSION), about.process
    sums.add(extents(engine))
    return [
        {
            "id": one.id,
            **Client(one.name, process.pid, process.uid, "local", process.uptime())._asdict(),
            "tensors": len(one.tensors),
            "bytes": sum(nbytes_of(tensor) for tensor in one.tensors.values()),
            "peak": 0,
            "live": 0,
            "errors": one.errors,
            "moved": total((0, 0)),
            "evicted": total((0, 0)),
            "cancelled": one.cancelled is not None,
            "names": 0,
            "quota": 0,
            "payload": 0,
            "strict": False,
            "asks": one is session,
            "shares": {},
            **({"freed": dict(sums.freed.get(one.id, {}))} if freed else {}),
        }
        for one in engine.sessions.values()
    ]


def _tensors(
    engine: SerialEngine,
    _session: SerialSession,
    _about: About,
    limit: object = 50,
    session: object = 0,
    device: object = "",
) -> list[dict[str, Any]]:
    most, only = min(natural("limit", limit), MOST), session_or_any(session, engine.sessions)
    wanted = device_or_any(device, engine.devices)
    found = [row for row in _rows(engine, only) if wanted in ("", row["home"])]
    return sorted(found, key=lambda row: (row["storage_bytes"], row["session"], row["id"]), reverse=True)[:most]


def _memory(
    engine: SerialEngine,
    _session: SerialSession,
    _about: About,
    by: object = DEVICE,
    limit: object = 50,
    device: object = "",
) -> list[dict[str, Any]]:
    """A value is of the session that holds it, the first one that does; nothing tells when or where it was made."""
    most, on = min(natural("limit", limit), MOST), device_or_any(device, engine.devices)
    sums = Sums(by_what(by), on)
    sums.add(extents(engine))
    held = memory_by_device(engine)
    pools = [serial_pool(name, nbytes) for name, nbytes in held.items() if on in ("", name)]

    def name_of(id_: int) -> str | None:
        one = engine.sessions.get(id_)
        return None if one is None else one.name

    return [row for part in sums.rows(most, 0, name_of) for row in part] + [sums.total(pools, still=True)]


def extents(engine: SerialEngine) -> Iterator[Extent]:
    """Every value with its holders."""
    names: dict[SerialTensor, list[str]] = {}
    holders: dict[SerialTensor, list[int]] = {}
    for session in engine.sessions.values():
        for tensor in session.tensors.values():
            holders.setdefault(tensor, []).append(session.id)
    for name, published in engine.names.items():
        for tensor in published.tensors:
            names.setdefault(tensor, []).append(name)
    for tensor in {**holders, **names}:
        by = tuple(dict.fromkeys(holders.get(tensor, ())))
        nbytes, poisoned = nbytes_of(tensor), tensor.value.array is None
        named = tuple(names.get(tensor, ()))
        yield Extent(tensor.home, TENSOR, nbytes, 0, by[0] if by else 0, 0, by, named, poisoned=poisoned)


def serial_pool(name: str, nbytes: int) -> dict[str, Any]:
    """A device's memory in the layout of a pool: there is none, so nothing is kept."""
    zeros = dict.fromkeys(("unaccounted", "limit", "rounding", "cached", "cached_blocks", "largest_cached"), 0)
    return {"device": name, "allocated": nbytes, **zeros, "run_arena": 0, "idle_arenas": []}


def _rows(engine: SerialEngine, only: int) -> list[dict[str, Any]]:
    """The rows of all handles and of named tensors without a handle; or of the handles of session `only`."""
    named: dict[SerialTensor, list[str]] = {}
    for name in sorted(engine.names):
        for tensor in engine.names[name].tensors:
            named.setdefault(tensor, []).append(name)
    sessions = [engine.sessions[only]] if only else list(engine.sessions.values())
    handles = [(one.id, id_, tensor) for one in sessions for id_, tensor in one.tensors.items()]
    if not only:
        held = {tensor for _, _, tensor in handles}
        handles += [(0, 0, tensor) for tensor in named if tensor not in held]
    return [_row(session, id_, tensor, named.get(tensor, [])) for session, id_, tensor in handles]


def _row(session: int, id_: int, tensor: SerialTensor, names: list[str]) -> dict[str, Any]:
    return {
        "session": session,
        "id": id_,
        "names": names,
        **_shape(tensor),
        "view": False,
        "storage": 0,
        "storage_bytes": nbytes_of(tensor),
        "sharers": 1,
        "version": 0,
        "error": error_text(_error_of(tensor)),
        "op": "",  # it keeps no record of what made a value
        "of": "",
        "location": "",
    }


def _error_of(tensor: SerialTensor) -> TensordError | None:
    return None if tensor.value.array is not None else tensor.value.first


def _shape(tensor: SerialTensor) -> dict[str, Any]:
    return properties(tensor.meta, tensor.home, residency(tensor), tensor.holders)


def _names(
    engine: SerialEngine, _session: SerialSession, _about: About, limit: object = MOST, kind: object = ""
) -> list[dict[str, Any]]:
    chosen = names_of(engine.names, name_kind(kind))[: min(natural("limit", limit), MOST)]
    return [name_row(name, engine.names[name], _shape) for name in chosen]


def _routine(_engine: SerialEngine, session: SerialSession, _about: About, id_: object) -> dict[str, Any]:
    """What a virtual machine tells of a routine that it has not compiled: here ops always run one by one."""
    routine = routine_of(session, natural("id", id_))
    program = routine.program
    return {
        "program": program.digest,
        "devices": list(routine.devices),
        "ops": len(program.steps),
        "passes": [],
        "without_passes": 0,
        "runs_op_by_op": routine.runs,
        "compiled": False,
        "pieces": [],
        "values": [],
        "metas": [],
    }


def _devices(engine: SerialEngine, _session: SerialSession, about: About) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "options": plain(about.options[name]),
            "memory": {"used": nbytes, "planned": 0, "limit": 0, "cached": 0, "waiting": 0},
            "eviction": NOTHING,
            "lost": "",
            "streams": [],
            "transfers": {},
            "peers": [],
            "missing": sorted(engine.devices[name]),
        }
        for name, nbytes in memory_by_device(engine).items()
    ]


# -- plain values ------------------------------------------------------------------------------------------------------


def memory_by_device(engine: SerialEngine) -> dict[str, int]:
    """Device -> bytes of the tensors that have their home there."""
    tensors = [tensor for session in engine.sessions.values() for tensor in session.tensors.values()]
    found = dict.fromkeys(engine.devices, 0)
    named = (tensor for published in engine.names.values() for tensor in published.tensors)
    for tensor in {*tensors, *named}:
        found[tensor.home] += nbytes_of(tensor)
    return found


def nbytes_of(tensor: SerialTensor) -> int:
    """Bytes of the tensor's value; 0 where there is an error in its place."""
    array = tensor.value.array
    return 0 if array is None else int(array.nbytes)


_ANSWERS: dict[str, Callable[..., Any]] = {
    "stats": _stats,
    "residency": _residency,
    "state": _state,
    "trace": _trace,
    "status": _status,
    "checkpoints": _checkpoints,
    "sessions": _sessions,
    "tensors": _tensors,
    "memory": _memory,
    "devices": _devices,
    "names": _names,
    "detail": _detail,
    "routine": _routine,
    "returns": _returns,
    "evict": _evict,
}

"""Answers the questions of a session to a serial machine. The command line asks only daemons, which are never serial.

The answers have the same fields as the virtual machine's, so that a program that reads them runs on both. Fields about
streams, transfers, queues and memory limits are empty or zero, since a serial machine has none of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from ...interpreter.errors import ProtocolError, TensordError
from ..plugins.loading import loaded
from ..reporting.answering import MAX_ROWS, answer_with, device_or_any, error_text, natural, properties, state_of
from ..reporting.memory.extents import TENSOR, PoolExtent
from ..reporting.memory.held import DEVICE, Sums, by_what
from ..reporting.rows.eviction import NO_EVICTION
from ..reporting.rows.tensors import name_kind, name_row, names_of
from ..routines.programs import routine_of
from .engine import SerialEngine
from .values import SerialSession, SerialTensor

RECENT_ERRORS: Final = 20


class SerialQuestionContext(NamedTuple):
    """The engine that is asked, the session that asks, and the machine's most recent errors."""

    engine: SerialEngine
    session: SerialSession
    recent: Sequence[TensordError]


def answer(context: SerialQuestionContext, what: object, arguments: object) -> Any:
    """The answer to one question. ProtocolError if the serial machine cannot answer it."""
    return answer_with(_ANSWERS, what, arguments, context)


def _trace(_asked: SerialQuestionContext, *_: object) -> Any:
    raise ProtocolError(
        'engine="serial" keeps no trace, since it schedules nothing: connect with engine="vm" to trace a program'
    )


def _detail(_asked: SerialQuestionContext, every: object, _: object = False) -> int:
    """Check the argument, which has no effect: there is no trace."""
    return natural("every", every)


def _stats(context: SerialQuestionContext) -> dict[str, Any]:
    engine, session, recent = context
    return {
        "engine": "serial",
        "instructions": engine.ids,
        "retired": engine.ids,
        "failed": engine.failed,
        "live": 0,
        "pending": 0,
        "by_status": {},
        "infer_misses": 0,
        "devices": {name: _device_row(nbytes) for name, nbytes in memory_by_device(engine).items()},
        "nodes": {"sent": {}, "received": {}},
        "collectives": {},
        "transfers": {name: {} for name in engine.devices},
        "names": sorted(engine.names),
        "hung": [],
        "recent_errors": [error_text(error) for error in recent],
        "session": _session_row(session),
    }


def _device_row(allocated: int) -> dict[str, Any]:
    """The figures of a device. Plans, limits, caches, queues and evictions are 0: the serial engine has none."""
    return {
        "allocated": allocated,
        "planned": 0,
        "limit": 0,
        "kept_for_runs": 0,
        "cached": 0,
        "cached_blocks": 0,
        "largest_cached": 0,
        "waiting_for_memory": 0,
        "eviction": NO_EVICTION,
        "queued": {},
    }


def _session_row(session: SerialSession) -> dict[str, Any]:
    return {
        "id": session.id,
        "tensors": len(session.tensors),
        "bytes": sum(nbytes_of(tensor) for tensor in session.tensors.values()),
        "peak": 0,
        "live": 0,
        "errors": session.counts.errors,
        "cancelled": session.cancelled is not None,
        "shares": {},
    }


def _state(context: SerialQuestionContext, id_: object) -> dict[str, Any]:
    tensor = _tensor_of(context.session, id_)
    error = None if tensor.value.array is not None else tensor.value.first
    return state_of(error, tensor.meta, ready=True)


def _tensor_of(session: SerialSession, id_: object) -> SerialTensor:
    tensor = session.tensors.get(natural("id", id_))
    if tensor is None:
        raise ProtocolError(f"tensor {id_} was released")
    return tensor


def residency(tensor: SerialTensor) -> dict[str, str]:
    """The home device -> "valid", or "poisoned" if the tensor has an error in place of a value."""
    return {tensor.home: "poisoned" if tensor.value.array is None else "valid"}


def _memory(
    context: SerialQuestionContext, by: object = DEVICE, limit: object = 50, device: object = ""
) -> list[dict[str, Any]]:
    """Sums of bytes. A value counts for the first session that holds it; when and where it was made is not known."""
    engine = context.engine
    most, on = min(natural("limit", limit), MAX_ROWS), device_or_any(device, engine.devices)
    sums = Sums(by_what(by), on)
    sums.add(extents(engine))
    held = memory_by_device(engine)
    none = ("unaccounted", "limit", "rounding", "cached", "cached_blocks", "largest_cached", "run_arena")
    empty = {**dict.fromkeys(none, 0), "idle_arenas": []}  # there are no pools, so nothing is kept
    pools = [{"device": name, "allocated": nbytes, **empty} for name, nbytes in held.items() if on in ("", name)]

    def name_of(id_: int) -> str | None:
        one = engine.sessions.get(id_)
        return None if one is None else one.name

    return [row for part in sums.rows(most, 0, name_of) for row in part] + [sums.total(pools, still=True)]


def extents(engine: SerialEngine) -> Iterator[PoolExtent]:
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
        yield PoolExtent(tensor.home, TENSOR, nbytes, 0, by[0] if by else 0, 0, by, named, poisoned=poisoned)


def _shape(tensor: SerialTensor) -> dict[str, Any]:
    return properties(tensor.meta, tensor.home, residency(tensor), tensor.holders)


def _names(context: SerialQuestionContext, limit: object = MAX_ROWS, kind: object = "") -> list[dict[str, Any]]:
    names = context.engine.names
    chosen = names_of(names, name_kind(kind))[: min(natural("limit", limit), MAX_ROWS)]
    return [name_row(name, names[name], _shape) for name in chosen]


def _routine(context: SerialQuestionContext, id_: object) -> dict[str, Any]:
    """Describe a routine as the virtual machine does before it is compiled, since ops always run one by one here."""
    routine = routine_of(context.session, natural("id", id_))
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


def memory_by_device(engine: SerialEngine) -> dict[str, int]:
    """Device -> the bytes of the tensors whose home it is."""
    tensors = [tensor for session in engine.sessions.values() for tensor in session.tensors.values()]
    sums = dict.fromkeys(engine.devices, 0)
    named = (tensor for published in engine.names.values() for tensor in published.tensors)
    for tensor in {*tensors, *named}:
        sums[tensor.home] += nbytes_of(tensor)
    return sums


def nbytes_of(tensor: SerialTensor) -> int:
    """The bytes of a tensor's value; 0 if there is an error in its place."""
    array = tensor.value.array
    return 0 if array is None else int(array.nbytes)


_ANSWERS: dict[str, Callable[..., Any]] = {
    "stats": _stats,
    "residency": lambda context, id_: residency(_tensor_of(context.session, id_)),
    "state": _state,
    "trace": _trace,
    "memory": _memory,
    "names": _names,
    "detail": _detail,
    "plugins": lambda _asked: [plugin.row for plugin in loaded()],
    "routine": _routine,
}

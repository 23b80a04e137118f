"""Rows of the largest tensors of a machine, and of published names, for both engines.

An answer has only the requested number of rows, since there may be a million tensors. The search is sliced: the machine
works between two slices, so a tensor that is released in the meantime is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from ....interpreter.errors import ProtocolError, TensordError
from ....interpreter.wire.forms import shown
from ...model.device_state import DeviceState
from ...model.directory import Published, PublishedRoutine, handles_of
from ...model.tensor import Moved, VmTensor
from ...tracing.analysis.recorded.derived import operands_and_attributes
from ...tracing.flat import Where
from ..answering import batched, error_text, properties, state_of
from ..memory.holdings import keep_largest, maker_of
from .statistics import residency

if TYPE_CHECKING:
    from ...engine import Engine

PER_SLICE = 512  # tensors per slice, which takes some 400 us
DESCRIBED = 64  # rows per slice

# (bytes, session, id, tensor); no two have the same session and id
Found = tuple[int, int, int, VmTensor]


def tensor_slices(engine: Engine, limit: int, session: int, on: str, where: Where) -> Iterator[list[dict[str, Any]]]:
    """The rows of the `limit` largest tensors, the largest first, in slices, many of which are empty.

    `session`: only the handles of a session; 0: all handles, and published tensors without handles. `on`: only tensors
    whose home is this device, or that have a copy there.
    """
    device = engine.pools.get(on)
    largest: list[Found] = []
    everything = _handles(engine, session)
    for chunk in batched(everything, PER_SLICE):
        keep_largest(largest, [found for found in chunk if device is None or _is_on(found[3], device)], limit)
        yield []
    if not largest:
        yield []  # an answer has at least one slice, even without tensors
    largest.sort(reverse=True)
    named: dict[VmTensor, list[str]] = {}
    for some in batched(list(engine.directory.named()), PER_SLICE):
        for name, tensor in some:
            named.setdefault(tensor, []).append(name)
        yield []
    for start in range(0, len(largest), DESCRIBED):
        yield [
            _row(owner, id_, tensor, named.get(tensor, []), where)
            for _, owner, id_, tensor in largest[start : start + DESCRIBED]
            if tensor.holders
        ]


def name_slices(names: Mapping[str, Published[VmTensor]], limit: int, kind: str = "") -> Iterator[list[dict[str, Any]]]:
    """The rows of the first `limit` names, sorted, in slices, of which there is at least one.

    `kind`: "tensor" or "routine": only these names; "": all names.
    """
    chosen = iter(names_of(names, kind)[:limit])
    while True:
        some = list(islice(chosen, DESCRIBED))
        yield [name_row(name, names[name], shape_of) for name in some if name in names]
        if len(some) < DESCRIBED:
            return


def _handles(engine: Engine, session: int) -> Iterator[Found]:
    """All handles, and the published tensors without handles."""
    seen: set[VmTensor] = set()
    sessions = engine.directory.sessions
    for holder in [sessions[session]] if session else list(sessions.values()):
        for _, id_, tensor in handles_of(holder, holder.tensors):
            if tensor.holders > 1:
                seen.add(tensor)
            yield _nbytes(tensor), holder.id, id_, tensor
    if not session:
        for number, tensor in enumerate(dict.fromkeys([tensor for _, tensor in engine.directory.named()])):
            if tensor not in seen:
                yield _nbytes(tensor), 0, -number, tensor


def _nbytes(tensor: VmTensor) -> int:
    return -1 if tensor.meta is None else tensor.meta.nbytes


def _is_on(tensor: VmTensor, device: DeviceState) -> bool:
    storage = tensor.storage
    return tensor.home is device or device in storage.copies or any(where is device for where, _ in storage.views or ())


def _row(session: int, id_: int, tensor: VmTensor, names: list[str], where: Where) -> dict[str, Any]:
    storage = tensor.storage
    current = storage.current()
    op, (inputs, outputs, attributes, _) = storage.maker
    return {
        "session": session,
        "id": max(id_, 0),
        "names": sorted(names),
        **shape_of(tensor),
        "view": tensor.strides is not None,
        "storage": min((copy.id for copy in current), default=0),
        "storage_bytes": max(storage.nbytes, 0),
        "sharers": storage.sharers,
        "version": storage.version,
        "error": error_text(error_of(tensor)),
        "op": op,
        "of": operands_and_attributes(inputs or outputs, attributes),
        "location": maker_of(storage, where)[1],
    }


def state_row(tensor: VmTensor) -> dict[str, Any]:
    """The state of a tensor, without waiting."""
    return state_of(error_of(tensor), tensor.meta, ready=_is_ready(tensor))


def _is_ready(tensor: VmTensor) -> bool:
    """Whether a wait for the tensor would end at once. For a moved tensor, only copies on its home count."""
    storage = tensor.storage
    copies = storage.current()
    if type(tensor) is Moved:
        key = tensor.view_key()
        copies = [copy for copy in copies if copy.device is tensor.home and copy.view in (None, key)]
    return tensor.meta is not None and any(copy.writer is None and not copy.is_awaited for copy in copies)


def shape_of(tensor: VmTensor) -> dict[str, Any]:
    return properties(tensor.meta, tensor.home.name, residency(tensor), tensor.holders)


def error_of(tensor: VmTensor) -> TensordError | None:
    """The error that reading the tensor would raise."""
    return tensor.meta_error or next((c.poison for c in tensor.storage.current() if c.poison is not None), None)


TENSOR: Final = "tensor"
ROUTINE: Final = "routine"


def name_kind(kind: object) -> str:
    """Check that a value is a kind of names, or "" for all kinds. ProtocolError if it is not."""
    if type(kind) is not str or kind not in ("", TENSOR, ROUTINE):
        raise ProtocolError(f"a name stands for a {TENSOR} or a {ROUTINE}, not for {shown(kind)}")
    return kind


def names_of(names: Mapping[str, Published[Any]], kind: str) -> list[str]:
    """The names of one kind, sorted; all names if the kind is ""."""
    return sorted(name for name, one in names.items() if kind in ("", kind_of(one)))


def kind_of(published: Published[Any]) -> str:
    return TENSOR if published.routine is None else ROUTINE


def name_row(name: str, published: Published[Any], shape_of: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    routine = published.routine
    found = {"name": name, "kind": kind_of(published)}
    if routine is None:
        return found | shape_of(published.tensors[0])
    return found | routine_row(routine) | {"tensors": [shape_of(tensor) for tensor in published.tensors]}


def routine_row(routine: PublishedRoutine) -> dict[str, Any]:
    """The row of a published routine: its parameters, its devices, and the number of its results."""
    program = routine.program
    return {
        "program": program.digest,
        "devices": list(routine.devices),
        "ops": len(program.steps),
        "parameters": [f"{source.name} {source.meta}".strip() for source in program.parameters],
        "numbers": [f"{number.name} {number.kind}".strip() for number in program.number_parameters],
        "results": len(program.results),
        "captured": [source.name for source in program.captured],
    }

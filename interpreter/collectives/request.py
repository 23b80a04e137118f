"""The checks of a COLLECTIVE message: its attributes, its tensors' metas and homes, and its devices.

Everything that a client sent is untrusted until `resolve_request` has returned; after that, nothing is checked again.
The client itself calls the same function first, so that an error is raised at the user's line. The rules:

- A rank is a device. The ranks of a broadcast are the devices that the message names; those of all other collectives
  are the homes of the tensors, one tensor for each rank.
- No device occurs twice, all devices are of one kind, and there is one result for each rank.
- All shapes are known.

`check_ranks` comes before, so that a message with very many tensors costs no work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ..errors import MetadataError
from ..types.device_names import kind_of
from ..types.meta import Meta
from .choice import schedule_of
from .collective import REDUCTIONS, CollectiveKind, CollectiveSpec, collective

COPY: Final = "copy"  # a piece is copied to a buffer, and merged while the next one arrives
STREAM: Final = "stream"  # the peer's memory is read in place, if possible
MAX_TIMEOUT: Final = 86_400.0  # seconds of a timeout
MAX_LIBRARY_NAME_LENGTH: Final = 64  # characters of a library's name and version


class CollectiveRequest(NamedTuple):
    """The attributes. `merge`: COPY or STREAM; `timeout`: the seconds that a step may take, 0 for no limit. `library`:
    the library that carries the collective out on several nodes, with its version; empty if steps do."""

    reduction: str = "sum"
    axis: int = 0
    concat_axis: int = 0
    merge: str = COPY
    timeout: float = 0.0
    library: str = ""

    def collective(self, kind: str, metas: Sequence[Meta], ranks: int, root: int = 0) -> CollectiveSpec:
        """The collective on tensors of these metas; MetadataError if it is invalid."""
        reduction, axis, concat_axis = self[:3]
        return collective(kind, metas, ranks, reduction=reduction, axis=axis, concat_axis=concat_axis, root=root)


def is_axis(value: Any) -> bool:
    """An integer that an axis may be."""
    return type(value) is int and -(1 << 31) < value < 1 << 31


def is_timeout(value: Any) -> bool:
    """Seconds, not negative."""
    return type(value) in {int, float} and 0 <= value <= MAX_TIMEOUT


# Attribute -> its check, and the required form.
CHECKS: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    "reduction": (lambda value: type(value) is str, f"one of {', '.join(REDUCTIONS)}"),
    "axis": (is_axis, "the number of an axis"),
    "concat_axis": (is_axis, "the number of an axis"),
    "merge": (lambda value: type(value) is str and value in (COPY, STREAM), f"{COPY!r} or {STREAM!r}"),
    "timeout": (is_timeout, f"seconds from 0 to {MAX_TIMEOUT:g}"),
    "library": (lambda value: type(value) is str and len(value) <= MAX_LIBRARY_NAME_LENGTH, "the name of a library"),
}


def request_of(attributes: Mapping[Any, Any] | Sequence[Any]) -> CollectiveRequest:
    """The request in untrusted attributes; MetadataError for an unknown or invalid one."""
    try:
        given = dict(attributes)
    except (TypeError, ValueError):
        raise MetadataError("attributes are pairs of a name and a value") from None
    for name, value in given.items():
        if type(name) is not str or name not in CHECKS:
            raise MetadataError(f"a collective has only the attributes {', '.join(CHECKS)}")
        check, meaning = CHECKS[name]
        if not check(value):
            raise MetadataError(f"{name} of a collective must be {meaning}")
    return CollectiveRequest(**given)


class ResolvedRequest(NamedTuple):
    """The checked content of a message: the attributes, the collective, and the name of each rank's device."""

    request: CollectiveRequest
    collective: CollectiveSpec
    devices: list[str]

    def received(self, homes: Sequence[str]) -> tuple[int, ...]:
        """The bytes that each rank receives from other devices if steps carry the collective out. `homes`: of the
        tensors."""
        received, itemsize = [0] * len(self.devices), self.collective.inputs[0].dtype.itemsize
        for step in schedule_of(self.collective).steps:
            origin = (homes if step.source.is_input else self.devices)[step.source.rank]
            if origin != self.devices[step.rank]:
                received[step.rank] += step.source.region.size * itemsize
        return tuple(received)


def resolve_request(
    kind: str,
    homes: Sequence[str],
    metas: Sequence[Meta | None],
    devices: Sequence[str],
    attributes: Mapping[Any, Any] | Sequence[Any],
    results: int,
) -> ResolvedRequest:
    """The content of a message, for tensors with these homes and metas; MetadataError if it is invalid.

    `results`: the number of results for which the client has ids. The root of a broadcast is the rank of the tensor's
    home; if the home is no rank, rank 0 stands for it.
    """
    request = request_of(attributes)
    ranks = devices if kind == CollectiveKind.BROADCAST else homes
    if devices and ranks is not devices:
        raise MetadataError(f"{kind}: only a broadcast takes devices; all others work on the homes of tensors", op=kind)
    if results != len(ranks):
        raise MetadataError(f"{kind}: {results} results for {len(ranks)} devices", op=kind)
    check_devices(kind, ranks, homes)
    known = [meta for meta in metas if meta is not None]
    if len(known) < len(metas):
        raise MetadataError(f"{kind}: a shape is not known yet; wait for the tensors first", op=kind)
    root = ranks.index(homes[0]) if homes[0] in ranks else 0
    return ResolvedRequest(request, request.collective(kind, known, len(ranks), root), list(ranks))


def check_ranks(kind: str, tensors: int, results: int, devices: int) -> None:
    """MetadataError if there are more tensors, or results, than the machine has `devices`."""
    most = max(tensors, results)
    if most > devices:
        raise MetadataError(f"{kind}: {most} tensors on devices of their own; the machine has {devices}", op=kind)


def check_devices(kind: str, ranks: Sequence[str], homes: Sequence[str]) -> None:
    """MetadataError for a repeated device, or devices of several kinds, since the last bits of their results differ."""
    seen: set[str] = set()
    for name in ranks:
        if name in seen:
            raise MetadataError(f"{kind}: {name} twice; each tensor must be on a device of its own", op=kind)
        seen.add(name)
    kinds = dict.fromkeys(kind_of(name) for name in (*ranks, *homes))
    if len(kinds) > 1:
        raise MetadataError(f"{kind}: devices of one kind are needed, not of {' and '.join(kinds)}", op=kind)

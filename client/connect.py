"""From an address to a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..interpreter.errors import MetadataError
from .session import Session


def connect(
    address: str | None,
    *,
    devices: Sequence[str | Mapping[str, object]] | None,
    tracing: bool,
    strict: bool,
) -> Session:
    """See `tensord.connect`."""
    where = address or "local:default"
    if where.partition(":")[0] != "local":
        raise MetadataError(f'cannot connect to {where!r}: this version knows "local" and "local:NAME"')
    from .embedded import connect_local

    return Session(connect_local(where, devices, tracing=tracing, strict=strict))

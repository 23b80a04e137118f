"""From an address to a session: a daemon's, or one on a machine in this process."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from ..interpreter.errors import ConnectionLost, MetadataError
from ..interpreter.wire.addresses import find_daemon, for_client
from .session import Session

EMBEDDED = "local:default"


def connect(
    address: str | None,
    *,
    devices: Sequence[str | Mapping[str, object]] | None = None,
    tracing: bool = True,
    strict: bool = False,
    keys: str | os.PathLike[str] | None = None,
    name: str = "",
) -> Session:
    """See `tensord.connect`."""
    if address is not None and type(address) is not str:
        raise MetadataError(f"an address is a string, not {type(address).__name__}")
    where = address or (EMBEDDED if devices is not None else find_daemon() or EMBEDDED)
    if where.partition(":")[0] == "local":
        from .embedded.transport import connect_local

        return Session(connect_local(where, devices, tracing=tracing, strict=strict))
    if devices is not None:
        raise MetadataError("devices= is for machines of this process: a daemon's are those it was started with")
    return connect_daemon(for_client(where).text, strict=strict, keys=keys, name=name)


def connect_daemon(
    address: str, *, strict: bool = False, keys: str | os.PathLike[str] | None = None, name: str = ""
) -> Session:
    """A session on the daemon at that address. ConnectionLost if there is none, or if it refuses us."""
    from .keys import curve_options
    from .transport.link import program_name
    from .transport.remote import RemoteTransport

    options = {} if address.startswith("ipc://") else curve_options(keys)
    try:
        return Session(RemoteTransport(address, options, name or program_name(), strict=strict))
    except OSError as error:  # out of descriptors, or no such host
        raise ConnectionLost(f"cannot connect to {address}: {error}") from None

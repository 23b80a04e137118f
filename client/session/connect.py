"""From an address to a session, on a daemon or on a machine in this process."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.errors import MetadataError, MetadataTypeError
from ...interpreter.types.device_names import NODE_FORM, is_node
from ...interpreter.wire.addresses import ADDRESS_VARIABLE as ADDRESS
from ...interpreter.wire.addresses import default_address, find_daemon, for_client, is_local
from ...interpreter.wire.forms import shown
from ...interpreter.wire.names import MAX_NAME_LENGTH, is_name, program_name
from ..locations.locations import check_frames
from ..outbox.outbox import Outbox
from ..requests.answers import seconds
from ..transport.seeking import running_daemon, tell_of_fallback, until_daemon_listens
from .session import Session

EMBEDDED = "local:default"
ENGINES = ("vm", "serial")
VARIABLE = "TENSORD_ENGINE"
AUTO = "auto"
RAY = "ray://"
NOT_THROUGH_RAY = (
    "Ray Client cannot reach a daemon: run the program on a node (`ray job submit`), where connect_cluster() "
    'finds the daemon, or name one and your keys: connect_cluster("tcp://HOST:PORT", keys="DIRECTORY")'
)


class ConnectOptions(NamedTuple):
    """The parameters of `tensord.connect`."""

    devices: Sequence[str | Mapping[str, object]] | None = None
    tracing: bool = True
    strict: bool = False
    keys: str | os.PathLike[str] | None = None
    engine: str | None = None
    frames: int | None = None
    name: str | None = None
    routines: str | None = None
    detail: int = 0
    wait: float | None = None
    node: str | None = None
    plugins: Sequence[str] | None = None


DEFAULT_OPTIONS = ConnectOptions()


def connect(address: str | None, wanted: ConnectOptions = DEFAULT_OPTIONS) -> Session:
    """See `tensord.connect`."""
    detail = wanted.detail
    if type(detail) is not int or detail < 0:
        raise MetadataError(
            f"detail=N times one run in every N, 0 times none; N must be an int of at least 0, not {shown(detail)}"
        )
    session = connect_anywhere(address, wanted, outbox_for(wanted.routines))
    if detail:
        try:
            session._core.answers.query("detail", detail)
        except BaseException:
            session.close()
            raise
    return session


def connect_anywhere(address: str | None, wanted: ConnectOptions, outbox: type[Outbox]) -> Session:
    """A session on a daemon, or on a machine in this process."""
    wanted = checked(address, wanted)
    patience = seconds("connect", wanted.wait)
    for_here = (wanted.devices, wanted.engine, wanted.node, wanted.plugins)
    needs_local = not wanted.tracing or any(one is not None for one in for_here)
    where = address or (EMBEDDED if needs_local else find_address())
    if is_local(where or EMBEDDED) and (where is not None or patience is None):
        if patience is not None:
            raise MetadataError(
                f"wait= is for a daemon: the machine at {where} is of this process, and is there at once"
            )
        return connect_inside(where, wanted, outbox)
    refuse_local(where or "", wanted)

    def attempt() -> Session:
        return connect_daemon(for_client(where or running_daemon()).text, wanted, outbox)

    return until_daemon_listens(attempt, patience or 0.0)


def checked(address: str | None, wanted: ConnectOptions) -> ConnectOptions:
    """The parameters, checked; frames and name by default from the environment and the program. MetadataError if
    invalid."""
    if address is not None and type(address) is not str:
        raise MetadataError(f"an address must be a string, not {type(address).__name__}")
    if address is not None and address.startswith(RAY):
        raise MetadataError(NOT_THROUGH_RAY)
    if wanted.engine is not None:
        check_engine("engine=", wanted.engine)
    frames, keys, name = check_frames(wanted.frames), wanted.keys, wanted.name
    if keys is not None and not isinstance(keys, str | os.PathLike):
        raise MetadataTypeError(f"keys= must name a file or a directory, not {type(keys).__name__}")
    if wanted.node is not None and not is_node(wanted.node):
        raise MetadataError(f"node= must be {NODE_FORM}, not {shown(wanted.node)}")
    if name is not None and not is_name(name):
        raise MetadataError(f"name= must be a printable text of 1 to {MAX_NAME_LENGTH} characters, not {shown(name)}")
    return wanted._replace(frames=frames, name=name or program_name())


def connect_inside(where: str | None, wanted: ConnectOptions, outbox: type[Outbox]) -> Session:
    """A session on a machine in this process: the named one, or the default one in place of a daemon."""
    from ..embedded.local import MachineRequest, connect_local, load_plugins

    load_plugins(wanted.plugins)  # outside of the region below: an import may take long, and Ctrl-C must end it
    usual = usual_engine()
    sought = default_address() if where is None and usual != "serial" else ""
    address = where or EMBEDDED
    asked = MachineRequest(wanted.devices, wanted.engine, usual, wanted.tracing, wanted.node)
    with SHIELD:  # an exception after this finds a whole session, which ends when it is dropped
        machine = connect_local(address, asked, wanted.name or "", strict=wanted.strict)
        if sought:
            tell_of_fallback(sought, address)
        return Session(machine, wanted.frames, outbox, address=address, sought=sought, strict=wanted.strict)


def refuse_local(where: str, wanted: ConnectOptions) -> None:
    """MetadataError for options that only apply to machines of this process."""
    if wanted.engine is not None:
        raise MetadataError(
            f"engine= is for machines of this process: {where} is the address of a daemon, which has its own"
        )
    if wanted.devices is not None:
        raise MetadataError(
            "devices= is for machines of this process: a daemon has the devices that it was started with"
        )
    if wanted.plugins is not None:
        raise MetadataError(
            "plugins= is for machines of this process: a daemon loads the plugins that its settings name"
        )
    if wanted.node is not None:
        raise MetadataError("node= is for machines of this process: a daemon has the name that it was started with")
    if not wanted.tracing:
        raise MetadataError(
            "tracing= is for machines of this process: a daemon keeps a trace unless its [trace] is off"
        )


def outbox_for(routines: object) -> type[Outbox]:
    """The class of outbox: one that finds routines by itself ("auto"), or the plain one (None)."""
    if routines is None:
        return Outbox
    if routines != AUTO:
        raise MetadataError(f'routines= is "{AUTO}" or None, not {shown(routines)}')
    from ..periods.outbox import PeriodicOutbox

    return PeriodicOutbox


def find_address() -> str | None:
    """Where `connect()` finds a machine: $TENSORD_ADDRESS, else a running daemon; None: a machine in this process.

    With $TENSORD_ENGINE=serial no daemon is looked for; MetadataError if $TENSORD_ADDRESS names one nevertheless.
    """
    if usual_engine() != "serial":
        return find_daemon()
    named = os.environ.get(ADDRESS) or None
    if named is not None and not is_local(named):
        raise MetadataError(
            f"${VARIABLE}=serial is for machines of this process, and ${ADDRESS} names a daemon, {named}: "
            "unset one of the two"
        )
    return named


def usual_engine() -> str:
    """The default engine of a machine in this process: $TENSORD_ENGINE, else "vm"."""
    named = os.environ.get(VARIABLE)
    if not named:
        return ENGINES[0]
    check_engine(f"${VARIABLE}", named)
    return named


def check_engine(where: str, engine: object) -> None:
    """MetadataError unless `engine` names an engine."""
    if type(engine) is not str or engine not in ENGINES:
        known = " or ".join(f'"{name}"' for name in ENGINES)
        raise MetadataError(f"{where} is {known}, not {shown(engine)}")


def connect_daemon(
    address: str, wanted: ConnectOptions = DEFAULT_OPTIONS, outbox: type[Outbox] = Outbox, server_key: str | None = None
) -> Session:
    """A session on the daemon at that address; without a name, only for questions. ConnectionLost if the daemon is
    missing or refuses. `server_key`: the daemon's public key, unless it lies next to the client's own."""
    from ..process.forks import close_at_exit
    from ..transport.keys import socket_options
    from ..transport.link import connecting
    from ..transport.remote import RemoteTransport

    with connecting(address), SHIELD:
        options = socket_options(address, wanted.keys, server_key)
        transport = RemoteTransport(address, options, wanted.name, strict=wanted.strict)
        close_at_exit(transport)
        return Session(transport, wanted.frames, outbox, address=address, strict=wanted.strict)

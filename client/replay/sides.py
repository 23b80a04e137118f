"""The machines on which a recording runs: in this process, or daemons.

A `Side` is one machine with the replay's sessions. It maps the recorded devices to its own, and queues messages.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Self

from ...interpreter.errors import ConnectionLost, MetadataError
from ...interpreter.schema.opdef import find
from ...interpreter.schema.own_op import check_daemon_has
from ...interpreter.types.device_names import kind_of
from ...interpreter.wire.addresses import for_client
from ...interpreter.wire.messages import Fetch, NamedMessage, encode_message
from ..embedded.local import MachineRequest, connect_local
from ..transport.interface import Transport
from ..transport.replies import Reply
from .translation import on_devices

ENGINES: Final = ("vm", "serial")
NAME: Final = "replay"
BATCH: Final = 512  # messages per batch


class Spec(NamedTuple):
    """A machine: that of an `address`, else one in this process with these devices (the recorded ones if there are
    none)."""

    text: str
    engine: str = "vm"
    devices: tuple[str, ...] = ()
    address: str = ""


def spec_of(text: str) -> Spec:
    """`vm`, `serial`, `cpu:0,sim:0`, `serial=cpu:0,sim:0`, `ipc://...`, `tcp://...`. MetadataError for other texts."""
    if "://" in text:
        return Spec(text, address=text)
    engine, _, devices = text.partition("=") if text.partition("=")[0] in ENGINES else ("vm", "", text)
    names = tuple(filter(None, (name.strip() for name in devices.split(","))))
    if text not in ENGINES and (not names or not all(map(is_device, names))):
        raise MetadataError(
            f"{text!r:.60} is not a machine: write vm, serial, devices such as cpu:0,sim:0, or the address of a daemon"
        )
    return Spec(text, text if text in ENGINES else engine, () if text in ENGINES else names)


def is_device(name: str) -> bool:
    """Return whether this may be the name of a device, of any kind."""
    kind, colon, number = name.rpartition("/")[2].partition(":")
    return kind.isidentifier() and bool(colon) and number.isdecimal()


class Side:
    """One machine, and the replay's sessions there. A context manager, which closes them."""

    def __init__(self, spec: Spec, recorded: Sequence[str], given: Mapping[str, str] | None = None) -> None:
        self.spec = spec
        self._local = f"local:{NAME}-{os.urandom(4).hex()}"
        self._sessions: dict[int, Transport] = {}
        self._unsent: dict[int, list[Any]] = {}
        here = spec.devices or tuple(name.rpartition("/")[2] for name in recorded)
        host = () if any(kind_of(name) == "cpu" for name in here) else ("cpu:0",)  # runs with side effects need one
        self._asked = MachineRequest((*here, *host), spec.engine, spec.engine, tracing=False)
        self._keeper = self._connect(NAME, strict=False)  # keeps the machine alive after the recorded sessions
        try:
            there = list(self._keeper.devices)
            self.devices = there if spec.address else there[: len(there) - len(host)]
            self._mapped = mapped(recorded, self.devices, given or {}, named=bool(spec.devices or spec.address))
        except BaseException:
            self.close()
            raise

    def _connect(self, name: str, *, strict: bool) -> Transport:
        if not self.spec.address:
            local = connect_local(self._local, self._asked, name, strict=strict)
            local.distrust()
            return local
        from ..transport.keys import socket_options
        from ..transport.link import connecting
        from ..transport.remote import RemoteTransport

        address = for_client(self.spec.address).text
        with connecting(address):
            return RemoteTransport(address, socket_options(address), name, strict=strict)

    def device(self, recorded: str) -> str:
        """The device here for a recorded one."""
        return self._mapped.get(recorded, recorded)

    @property
    def has_gpus(self) -> bool:
        return self.spec.engine == "vm" and any(kind_of(name) == "cuda" for name in self._mapped.values())

    def check_op(self, name: str) -> None:
        """MetadataError if the machine lacks an op of another package, or has another version of it."""
        there, own = self._keeper.own_ops, find(name).own
        if there is not None and own is not None:
            check_daemon_has(name, own, there)

    # -- sessions --------------------------------------------------------------------------------------------------

    def open(self, session: int, name: str, *, strict: bool) -> None:
        self._sessions[session] = self._connect(name[:64] or NAME, strict=strict)

    def end(self, session: int) -> None:
        transport = self._sessions.pop(session, None)
        if transport is not None:
            self._flush(transport, self._unsent.pop(session, []))
            transport.close()

    def send(self, session: int, message: NamedMessage) -> None:
        """Queue a message."""
        unsent = self._unsent.setdefault(session, [])
        unsent.append(encode_message(on_devices(message, self.device)))
        if len(unsent) >= BATCH:
            self.flush(session)

    def fetch(self, session: int, id_: int) -> Reply:
        """Request a value as of this point."""
        request, reply = self._sessions[session].request()
        self.send(session, Fetch(id_, request, 0, 0))
        return reply

    def flush(self, session: int) -> None:
        self._flush(self._sessions[session], self._unsent.pop(session, []))

    def flush_all(self) -> None:
        """Send all queued messages."""
        for session in list(self._unsent):
            self.flush(session)

    def _flush(self, transport: Transport, messages: list[Any]) -> None:
        if messages:
            transport.await_credit()
            transport.send(messages)

    def wait(self, session: int, reply: Reply) -> None:
        """Wait for an answer. ConnectionLost if the machine has ended."""
        transport = self._sessions[session]
        if not reply.done and not transport.wait(reply, None):
            raise ConnectionLost(f"the machine {self.spec.text} does not answer")

    def close(self) -> None:
        for transport in (*self._sessions.values(), self._keeper):
            transport.close()
        self._sessions.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def mapped(recorded: Sequence[str], there: Sequence[str], given: Mapping[str, str], *, named: bool) -> dict[str, str]:
    """The device of a machine for each recorded device: as given; else the one of the same name, unless devices were
    `named`; else by position, cyclically. MetadataError for names that neither has."""
    for old, new in given.items():
        if old not in recorded:
            raise MetadataError(f"the recording has no device {old!r:.60}; it has {', '.join(recorded)}")
        if new not in there:
            raise MetadataError(f"the machine has no device {new!r:.60}; it has {', '.join(there)}")
    same = not named or set(recorded) <= set(there)
    by_order = {old: there[position % len(there)] for position, old in enumerate(recorded)}
    return {old: given.get(old) or (old if same and old in there else by_order[old]) for old in recorded}

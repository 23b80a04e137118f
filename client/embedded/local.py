"""Machines in this process: the place where the client reaches into `vm`.

"local" makes a new machine for the session alone; "local:NAME" shares one machine by name within the process, so
that several sessions can share tensors. A machine has one of two engines:

- "vm", the virtual machine;
- "serial", which executes every op at once, in program order: docs/serial.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from ...interpreter.errors import MetadataError
from ...vm.machine import VirtualMachine
from ...vm.serial.machine import SerialMachine
from ..process.forks import FORKS, ProcessLock
from .serial_transport import SerialTransport
from .transport import EmbeddedTransport

Specs: TypeAlias = Sequence[str | Mapping[str, object]]
Machine: TypeAlias = VirtualMachine | SerialMachine
Local: TypeAlias = EmbeddedTransport | SerialTransport


class Shared:
    """A machine that sessions share by name: what it was made with, and how many sessions it has."""

    __slots__ = ("devices", "engine", "machine", "sessions", "tracing")

    def __init__(
        self, machine: Machine, devices: list[str | Mapping[str, object]], engine: str, *, tracing: bool
    ) -> None:
        self.machine = machine
        self.devices = devices
        self.engine = engine
        self.tracing = tracing
        self.sessions = 0


_shared: dict[str, Shared] = {}
_shared_lock = ProcessLock()
FORKS.anew.append(_shared.clear)  # a child does not have the threads of its parent's machines


def connect_local(
    address: str, devices: Specs | None, *, engine: str | None, usual: str, tracing: bool, strict: bool, name: str = ""
) -> Local:
    """A session on a machine of its own ("local"), or on the process's machine of that name ("local:NAME").

    `name` is that of the session. `engine` is the one that the caller asked for; if None, a new machine has `usual`.
    """
    shared = address.partition(":")[2]
    if not shared:
        machine = new_machine(devices, engine or usual, tracing=tracing)
        return transport_to(machine, machine.close, name, strict=strict)
    with _shared_lock:
        found = _shared.get(shared)
        if found is None:
            machine = new_machine(devices, engine or usual, tracing=tracing)
            found = _shared[shared] = Shared(machine, list(devices or ()), engine or usual, tracing=tracing)
        else:
            check_same(address, found, devices, engine, tracing=tracing)
        found.sessions += 1
    return transport_to(found.machine, lambda: leave(shared), name, strict=strict)


def new_machine(devices: Specs | None, engine: str, *, tracing: bool) -> Machine:
    """A machine of that engine. The serial one keeps no trace in any case."""
    return SerialMachine(devices or ()) if engine == "serial" else VirtualMachine(devices or (), tracing=tracing)


def transport_to(machine: Machine, release: Callable[[], object], name: str, *, strict: bool) -> Local:
    """A session's connection to a machine; `release` is called when the session has ended."""
    if isinstance(machine, SerialMachine):
        return SerialTransport(machine, release, name, strict=strict)
    return EmbeddedTransport(machine, release, name, strict=strict)


def check_same(address: str, found: Shared, devices: Specs | None, engine: str | None, *, tracing: bool) -> None:
    """MetadataError if what is asked for differs from what the shared machine has."""
    if devices is not None and found.devices != list(devices):
        known = ", ".join(map(str, found.devices)) or "cpu:0"
        raise MetadataError(f"the machine {address!r} exists already, with devices {known}; leave devices= out")
    if engine is not None and found.engine != engine:
        raise MetadataError(
            f'the machine {address!r} exists already, with engine="{found.engine}"; leave engine= out, or choose '
            "another name"
        )
    if found.tracing and not tracing:
        raise MetadataError(f"the machine {address!r} exists already, and keeps a trace; leave tracing= out")


def leave(name: str) -> None:
    """Take a session off a shared machine; the machine is closed with the last one.

    The thread of a hanging kernel is lost; the virtual machine's log says so.
    """
    with _shared_lock:
        found = _shared[name]
        found.sessions -= 1
        if found.sessions:
            return
        del _shared[name]
    found.machine.close()

"""Machines in this process, which the client makes from `vm`.

"local" makes a new machine for the session alone; "local:NAME" shares one machine by name within the process, so that
several sessions can share tensors. A machine has one of two engines:

- "vm", the virtual machine;
- "serial", which executes every op at once, in program order (docs/serial.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakValueDictionary

from ...interpreter.errors import MetadataError, MetadataTypeError
from ...streams.catalogue import device_list
from ...vm.machine import VirtualMachine
from ...vm.plugins.installed import is_package
from ...vm.plugins.loading import load
from ...vm.serial.machine import SerialMachine
from ..process.forks import FORKS, ProcessLock
from .in_process import EmbeddedTransport
from .serial_transport import SerialTransport

Specs: TypeAlias = Sequence[str | Mapping[str, object]]
Machine: TypeAlias = VirtualMachine | SerialMachine
Local: TypeAlias = EmbeddedTransport | SerialTransport


class MachineRequest(NamedTuple):
    """The machine that a session asks for. `engine`: None for any; a new machine then has the engine `usual`."""

    devices: Specs | None
    engine: str | None
    usual: str
    tracing: bool
    node: str | None = None


class SharedMachine:
    """A machine that sessions share by name, the request that it was made for, and its sessions: their number and their
    outboxes."""

    def __init__(self, asked: MachineRequest) -> None:
        self.asked = asked
        self.machine = new_machine(asked)
        self.sessions = 0
        self.outboxes: WeakValueDictionary[int, Any] = WeakValueDictionary()


_shared: dict[str, SharedMachine] = {}
_shared_lock = ProcessLock()
FORKS.child_resets.append(_shared.clear)  # a child does not have the threads of its parent's machines


def connect_local(address: str, asked: MachineRequest, name: str, *, strict: bool) -> Local:
    """A session on a machine of its own ("local"), or on a shared one ("local:NAME")."""
    shared = address.partition(":")[2]
    if not shared:
        machine = new_machine(asked)
        return transport_to(machine, machine.close, name, strict=strict)
    if asked.devices is not None:
        asked = asked._replace(devices=device_list(asked.devices))
    with _shared_lock:
        shared_machine = _shared.get(shared)
        if shared_machine is None:
            shared_machine = _shared[shared] = SharedMachine(asked._replace(devices=asked.devices or []))
        else:
            check_same(address, shared_machine.asked, asked)
        shared_machine.sessions += 1
    transport = transport_to(shared_machine.machine, lambda: leave_shared(shared), name, strict=strict)
    transport.outboxes = shared_machine.outboxes
    return transport


def load_plugins(names: Sequence[str] | None) -> None:
    """Load the plugins that are not loaded yet. MetadataError unless `names` is a list of names, and the errors of
    `load`."""
    if names is None:
        return
    if isinstance(names, str) or not isinstance(names, Sequence) or not all(map(is_package, names)):
        raise MetadataTypeError(f'plugins= is a list of installed packages, such as ["mypackage"], not {names!r}')
    load(names)


def new_machine(asked: MachineRequest) -> Machine:
    """A new machine. A serial one never keeps a trace."""
    devices = asked.devices or ()
    if engine_of(asked) == "serial":
        return SerialMachine(devices, asked.node or "")
    return VirtualMachine(devices, tracing=asked.tracing, node=asked.node or "")


def engine_of(asked: MachineRequest) -> str:
    return asked.engine or asked.usual


def transport_to(machine: Machine, release: Callable[[], object], name: str, *, strict: bool) -> Local:
    """A session's connection to a machine; `release` is called when the session has ended."""
    if isinstance(machine, SerialMachine):
        return SerialTransport(machine, release, name, strict=strict)
    return EmbeddedTransport(machine, release, name, strict=strict)


def check_same(address: str, existing: MachineRequest, asked: MachineRequest) -> None:
    """MetadataError if a shared machine was made with other options than those asked for."""
    if asked.devices is not None and existing.devices != asked.devices:
        known = ", ".join(map(str, existing.devices or ())) or "cpu:0"
        raise MetadataError(f"the machine {address!r} exists already, with devices {known}; leave devices= out")
    if asked.engine is not None and engine_of(existing) != asked.engine:
        raise MetadataError(
            f'the machine {address!r} exists already, with engine="{engine_of(existing)}"; leave engine= out, '
            "or choose another name"
        )
    if asked.node not in {None, existing.node}:
        raise MetadataError(f"the machine {address!r} exists already, as node {existing.node!r}; leave node= out")
    if existing.tracing and not asked.tracing:
        raise MetadataError(f"the machine {address!r} exists already, and keeps a trace; leave tracing= out")


def leave_shared(name: str) -> None:
    """End one session on a shared machine; the machine is closed with its last session.

    The thread of a hanging kernel is lost; the virtual machine's log says so.
    """
    with _shared_lock:
        shared_machine = _shared[name]
        shared_machine.sessions -= 1
        if shared_machine.sessions:
            return
        del _shared[name]
    shared_machine.machine.close()

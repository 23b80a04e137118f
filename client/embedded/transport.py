"""The embedded transport: a virtual machine in this process. The only place where the client reaches into `vm`.

"local" makes a machine of its own for the session; "local:NAME" shares one machine by name within the process, so
that several sessions can share tensors.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.errors import ConnectionLost, MetadataError, TensordError
from ...interpreter.types.meta import Meta
from ...interpreter.wire.messages import Message
from ...vm.machine import VirtualMachine
from ..forks import FORKS, ProcessLock
from ..transport.interface import Reply

Specs = Sequence[str | Mapping[str, object]]


class Shared:
    """A machine that sessions share by name: what it was made with, and how many sessions it has."""

    __slots__ = ("devices", "machine", "sessions")

    def __init__(self, machine: VirtualMachine, devices: list[str | Mapping[str, object]]) -> None:
        self.machine = machine
        self.devices = devices
        self.sessions = 0


_shared: dict[str, Shared] = {}
_shared_lock = ProcessLock()
FORKS.anew.append(_shared.clear)  # a child does not have the threads of its parent's machines


class EmbeddedTransport:
    """A session's connection to a machine in the same process."""

    def __init__(self, machine: VirtualMachine, release: Callable[[], None], *, strict: bool) -> None:
        self.machine = machine
        self.devices = {name: device.missing for name, device in machine.devices.items()}
        self.inline_work = machine.engine.inline_work
        self.maps = self.eager = False
        self.shield = SHIELD
        self._release = release
        self._replies: dict[int, Reply] = {}
        self._numbers = itertools.count(1)
        self._session = machine.attach(self._answer, strict=strict)
        self._closed = False

    @property
    def lost(self) -> bool:
        """Has the machine been closed?"""
        return self.machine.closed

    def new_array(self, meta: Meta) -> NDArray[Any]:
        """Plain memory; the machine adopts it."""
        return np.empty(meta.shape, meta.dtype)

    def release_exports_with(self, release: Callable[[int], None]) -> None:
        """Results are copies."""

    def send(self, messages: Sequence[Message]) -> None:
        """Hand the batch over; the calling thread drives the machine."""
        self.machine.submit(self._session, messages)

    def await_credit(self) -> None:
        """Wait while too much is unfinished."""
        self.machine.await_credit(self._session)

    def request(self) -> tuple[int, Reply]:
        """A new request."""
        number, reply = next(self._numbers), Reply()
        self._replies[number] = reply
        return number, reply

    def _answer(self, request: int, value: object, error: TensordError | None) -> None:
        reply = self._replies.pop(request, None)
        if reply is not None:
            reply.set(value, error)

    def wait(self, reply: Reply, timeout: float | None) -> bool:
        """Drive the machine until the reply is there."""
        return reply.done or self.machine.wait_until(lambda: reply.done, timeout)

    def attend(self, reply: Reply) -> None:
        """Whatever completes is looked after by the machine's background thread."""

    def rouse(self, idle_flush: Callable[[], bool]) -> None:
        """Have the background thread send unsent messages in a while."""
        machine = self.machine
        if self._session.id not in machine.hooks:
            machine.hooks[self._session.id] = idle_flush
        if not machine.background.awake:
            machine.background.rouse()

    def cancel(self) -> None:
        """Cancel the session's pending instructions."""
        self.machine.cancel(self._session)

    def close(self) -> None:
        """End the session, and the machine with its last one."""
        if self._closed:
            return
        self._closed = True
        self.machine.detach(self._session)
        for reply in list(self._replies.values()):
            reply.set(None, ConnectionLost("the session was closed"))
        self.machine.drive()  # and wake the threads that wait for one of them
        self._release()

    def abandon(self) -> None:
        """Have the background thread close it."""
        if not self._closed and not self.machine.closed:
            self.machine.chores.append(self.close)
            self.machine.background.ring()


def connect_local(address: str, devices: Specs | None, *, tracing: bool, strict: bool) -> EmbeddedTransport:
    """A session on a machine of its own ("local"), or on the process's machine of that name ("local:NAME")."""
    name = address.partition(":")[2]
    if not name:
        machine = VirtualMachine(devices or (), tracing=tracing)
        return EmbeddedTransport(machine, lambda: end(machine), strict=strict)
    with _shared_lock:
        found = _shared.get(name)
        if found is not None and devices is not None and found.devices != list(devices):
            known = ", ".join(map(str, found.devices)) or "cpu:0"
            raise MetadataError(f"the machine {address!r} exists already, with devices {known}; leave devices= out")
        if found is None:
            found = _shared[name] = Shared(VirtualMachine(devices or (), tracing=tracing), list(devices or ()))
        found.sessions += 1
        machine = found.machine
    return EmbeddedTransport(machine, lambda: leave(name), strict=strict)


def leave(name: str) -> None:
    """One session less on a shared machine."""
    with _shared_lock:
        found = _shared[name]
        found.sessions -= 1
        if found.sessions:
            return
        del _shared[name]
    end(found.machine)


def end(machine: VirtualMachine) -> None:
    """Close a machine. A kernel that hangs costs its thread; the machine's log says so."""
    machine.close()

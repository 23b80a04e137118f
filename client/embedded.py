"""The embedded transport: a virtual machine in this process. The only place where the client reaches into `vm`.

"local" makes a machine of its own for the session; "local:NAME" shares one machine by name within the process, so
that several sessions can share tensors.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..interpreter.errors import ConnectionLost, MetadataError, TensordError
from ..interpreter.messages import Message
from ..vm.machine import VirtualMachine
from .transport import Reply

_shared: dict[str, tuple[VirtualMachine, int]] = {}
_shared_lock = threading.Lock()

Specs = Sequence[str | Mapping[str, object]]


class EmbeddedTransport:
    """A session's connection to a machine in the same process."""

    def __init__(self, machine: VirtualMachine, release: Callable[[], None], *, strict: bool) -> None:
        self.machine = machine
        self.devices = {name: device.missing for name, device in machine.devices.items()}
        self.inline_work = machine.engine.inline_work
        self._release = release
        self._replies: dict[int, Reply] = {}
        self._numbers = itertools.count(1)
        self._session = machine.attach(self._answer, strict=strict)
        self._closed = False

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

    def rouse(self, idle_flush: Callable[[], bool]) -> None:
        """Have the background thread look after unsent messages."""
        machine = self.machine
        if self._session.id not in machine.hooks:
            machine.hooks[self._session.id] = idle_flush
        if not machine.awake:
            machine.rouse()

    def query(self, what: str, *arguments: Any) -> Any:
        """Look inside."""
        machine = self.machine
        if machine.closed:
            raise ConnectionLost("the virtual machine is closed")
        if what == "stats":
            return machine.stats(self._session)
        if what == "residency":
            return machine.residency(self._session, *arguments)
        return machine.trace()

    def cancel(self) -> None:
        """Cancel the session's pending instructions."""
        self.machine.cancel(self._session)

    def restart(self) -> None:
        """Take the session's instructions again."""
        self.machine.restart(self._session)

    def close(self) -> None:
        """End the session, and the machine with its last one."""
        if self._closed:
            return
        self._closed = True
        self.machine.detach(self._session)
        for reply in list(self._replies.values()):
            reply.set(None, ConnectionLost("the session was closed"))
        self._release()


def connect_local(address: str, devices: Specs | None, *, tracing: bool, strict: bool) -> EmbeddedTransport:
    """A session on a machine of its own ("local"), or on the process's machine of that name ("local:NAME")."""
    name = address.partition(":")[2]
    if not name:
        machine = VirtualMachine(devices or (), tracing=tracing)
        return EmbeddedTransport(machine, lambda: end(machine), strict=strict)
    with _shared_lock:
        found = _shared.get(name)
        if found is not None and devices is not None and list(found[0].devices) != names_of(devices):
            raise MetadataError(f"the machine {address!r} exists already, with devices {', '.join(found[0].devices)}")
        machine = found[0] if found is not None else VirtualMachine(devices or (), tracing=tracing)
        _shared[name] = (machine, 1 if found is None else found[1] + 1)
    return EmbeddedTransport(machine, lambda: leave(name), strict=strict)


def names_of(devices: Specs) -> list[object]:
    """The device names in a specification."""
    return [spec if isinstance(spec, str) else spec.get("name") for spec in devices]


def leave(name: str) -> None:
    """One session less on a shared machine."""
    with _shared_lock:
        machine, sessions = _shared.pop(name)
        if sessions > 1:
            _shared[name] = (machine, sessions - 1)
            return
    end(machine)


def end(machine: VirtualMachine) -> None:
    """Close a machine. A kernel that hangs costs its thread; the machine says so in the log."""
    machine.close()

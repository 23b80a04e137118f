"""The transport to a virtual machine in this process."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from numpy.typing import NDArray

from ...interpreter.types.meta import Meta
from ...streams.device import Device
from ...vm.machine import VirtualMachine
from ..transport.interface import Reply
from .in_process import InProcessTransport, plain_array

PINNED_ARRAY = 1 << 20  # bytes from which on an upload's memory is what a device copies from directly


def array_for(device: Device, meta: Meta) -> NDArray[Any]:
    """Memory for an upload that may go to this device."""
    return device.host_array(meta) if meta.nbytes >= PINNED_ARRAY else plain_array(meta)


class EmbeddedTransport(InProcessTransport):
    """A session's connection to a virtual machine in the same process."""

    machine: VirtualMachine

    def __init__(self, machine: VirtualMachine, release: Callable[[], object], name: str = "", *, strict: bool) -> None:
        devices = {name: device.missing for name, device in machine.devices.items()}
        pinning = next((device for device in machine.devices.values() if device.pins), None)
        new_array = plain_array if pinning is None else partial(array_for, pinning)
        super().__init__(devices, machine.engine.inline_work, release, new_array)
        self.machine = machine
        self._session = machine.attach(self._answer, name, strict=strict, lose=self._lose_replies)

    def await_credit(self) -> None:
        self.machine.await_credit(self._session)

    def has_room(self, share: float) -> bool:
        return self.machine.has_room(self._session, share)

    def wait(self, reply: Reply, timeout: float | None) -> bool:
        return reply.done or self.machine.wait_until(lambda: reply.done, timeout)

    def rouse(self, idle_flush: Callable[[], bool]) -> None:
        machine = self.machine
        if self._session.id not in machine.hooks:
            machine.hooks[self._session.id] = idle_flush
        if not machine.background.awake:
            machine.background.rouse()

    def abandon(self) -> None:
        """Have the background thread close the session."""
        if not self._closed and not self.machine.closed:
            self.machine.chores.append(self.close)
            self.machine.background.ring()

    def _wake(self) -> None:
        self.machine.drive()

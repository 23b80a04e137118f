"""The transport to a virtual machine in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from numpy.typing import NDArray

from ...interpreter.errors import ConnectionLost
from ...interpreter.types.meta import Meta
from ...interpreter.wire.messages import Message
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

    def __init__(self, machine: VirtualMachine, release: Callable[[], object], name: str = "", *, strict: bool) -> None:
        devices = {name: device.missing for name, device in machine.devices.items()}
        pinning = next((device for device in machine.devices.values() if device.pins), None)
        new_array = plain_array if pinning is None else partial(array_for, pinning)
        super().__init__(devices, machine.engine.inline_work, new_array)
        self.machine = machine
        self._release = release
        self._session = machine.attach(self._answer, name, strict=strict, lose=self._lose_replies)
        self._closed = False

    @property
    def lost(self) -> bool:
        """Has the machine been closed?"""
        return self.machine.closed

    def release_exports_with(self, release: Callable[[int], None]) -> None:
        """Nothing to do: results are copies."""

    def send(self, messages: Sequence[Message]) -> None:
        """Hand the batch over; the calling thread drives the machine."""
        self.machine.submit(self._session, messages)

    def await_credit(self) -> None:
        """Wait while too much is unfinished."""
        self.machine.await_credit(self._session)

    def has_room(self, share: float) -> bool:
        """Is at most that share of a window unfinished?"""
        return self.machine.has_room(self._session, share)

    def wait(self, reply: Reply, timeout: float | None) -> bool:
        """Drive the machine until the reply is there."""
        return reply.done or self.machine.wait_until(lambda: reply.done, timeout)

    def attend(self, reply: Reply) -> None:
        """Nothing to do: the machine's background thread looks after completions."""

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
        self._lose_replies(ConnectionLost("the session was closed"))
        self.machine.drive()  # and wake the threads that wait for replies
        self._release()

    def abandon(self) -> None:
        """Have the background thread close the session."""
        if not self._closed and not self.machine.closed:
            self.machine.chores.append(self.close)
            self.machine.background.ring()

"""The transport to a virtual machine in this process, and the base class that it shares with `serial_transport`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from numpy.typing import NDArray

from ...interpreter.errors import ConnectionLost, TensordError
from ...interpreter.types.meta import Meta
from ...interpreter.wire.messages import Message
from ...streams.device import libraries_of
from ...vm.machine import VirtualMachine
from ..transport.callers import Callers, wait_for_machine
from ..transport.replies import Replies, Reply
from .process_memory import ProcessMemory


class InProcessTransport:
    """The part of a connection that does not depend on the kind of machine. `release` is called when the session has
    ended."""

    machine: Any
    _session: Any
    send: Callable[[Sequence[Message]], None]  # hands a batch over; the calling thread drives the machine

    def __init__(
        self,
        devices: Mapping[str, frozenset[str]],
        inline_work: int,
        release: Callable[[], object],
        node: str,
        memory: ProcessMemory,
    ) -> None:
        self._release = release
        self._closed = False
        self.memory = memory
        self.devices = dict(devices)
        self.own_ops: Mapping[str, tuple[str, str]] | None = None
        self.inline_work = inline_work
        self.node, self.incarnation = node, 0
        self.libraries: Mapping[str, str] = {}
        self.outboxes: WeakValueDictionary[int, Any] = WeakValueDictionary()  # on a shared machine: those of all
        self.maps = self.eager = self.away = False
        self.opens_files, self.names_files = True, False
        self._replies = Replies()
        self.request = self._replies.request
        self._tell_loss: Callable[[TensordError], None] = lambda _error: None

    @property
    def lost(self) -> bool:
        return bool(self.machine.closed)

    def cancel(self) -> None:
        self.machine.cancel(self._session)

    def attend(self, reply: Reply) -> None:
        """Do nothing: the machine handles completions."""

    def tell_loss_to(self, tell: Callable[[TensordError], None]) -> None:
        self._tell_loss = tell

    def ending(self) -> None:
        """Do nothing: sending a batch takes no time."""

    def close(self) -> None:
        """End the session, and with the last session the machine."""
        if self._closed:
            return
        self._closed = True
        self.machine.detach(self._session)
        self._lose_replies(ConnectionLost("the session was closed"))
        self._wake()
        self._release()

    def _wake(self) -> None:
        """Wake the threads that wait for replies."""

    def _lose_replies(self, error: TensordError) -> None:
        """Fail all open replies: no answers will come."""
        self._tell_loss(error)
        self._replies.fail_all(error)


class EmbeddedTransport(InProcessTransport):
    """A session's connection to a virtual machine in the same process."""

    machine: VirtualMachine

    def __init__(self, machine: VirtualMachine, release: Callable[[], object], name: str = "", *, strict: bool) -> None:
        devices = {name: device.missing for name, device in machine.devices.items()}
        super().__init__(devices, machine.engine.inline_work, release, machine.node, ProcessMemory(machine.devices))
        self.machine = machine
        self.libraries = libraries_of(machine.devices)
        self.waker = machine.background
        self.callers = Callers(self._give_back)
        self._session = machine.attach(self._replies.answer, name, strict=strict, on_fault=self._lose_replies)
        self._session.ask_client = self._call
        self.send = partial(machine.submit, self._session)

    def _call(self, _request: int, called: Any, _error: TensordError | None) -> None:
        """The machine asks for a host call, or a host call is over."""
        if called.values is None:
            self.callers.end_call(called.number)
        else:
            function = called.function
            self.callers.call(called.number, getattr(function, "callback", function), called.values)

    def _give_back(self, number: int, error: TensordError | None, arrays: Sequence[NDArray[Any]]) -> None:
        """Pass the results of a host call to the machine, in memory of its own."""
        own = []
        for array in arrays:
            own.append(self.memory.new_array(Meta.of(array.shape, array.dtype)))
            own[-1][...] = array
        self.machine.returned(self._session, number, error, own)

    def distrust(self) -> None:
        """Make the machine check messages as a daemon does, since they come from a file."""
        self._session.trusted = False

    def await_credit(self) -> None:
        wait_for_machine(lambda: self.machine.await_credit(self._session))

    def has_room(self, share: float) -> bool:
        return self.machine.has_room(self._session, share)

    def wait(self, reply: Reply, timeout: float | None) -> bool:
        return reply.done or self.callers.wait(self.machine.wait_for, reply, timeout)

    def flush_with(self, flush: Callable[[], bool]) -> None:
        self.machine.hooks[self._session.id] = flush

    def abandon(self) -> None:
        """Make the background thread close the session."""
        if not self._closed and not self.machine.closed:
            self.machine.chores.append(self.close)
            self.machine.background.ring()

    def _wake(self) -> None:
        self.machine.drive()

    def _lose_replies(self, error: TensordError) -> None:
        self.callers.close()
        super()._lose_replies(error)

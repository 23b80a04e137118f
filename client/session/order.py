"""Program order, as methods of a session: side effects, flush, sync, atomic groups and cancellation."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from time import monotonic
from typing import Any

from ..calls.checks import Device, on_one_device, own
from ..calls.host_calls import host_call
from ..files.checkpoints import keeping_durable
from ..locations.tracebacks import make_public
from ..outbox.current import capture_of
from ..requests.answers import seconds
from ..tensor.tensor import Tensor
from ..waiting.steps import Awaiting, MessageRoom, Steps, Within, on_thread
from .parts import Facet, Parts


class SideEffects(Facet):
    """Functions of the program that the machine calls, for their side effects or for their results."""

    def chain(self) -> int:
        """Make a new chain. Side effects on different chains are not ordered against each other.

        :returns: The number of the chain, for ``chain=`` of `effect` and `print`.
        """
        return self._core.effects.new_chain()

    def effect(self, callback: Callable[..., None], *tensors: Tensor, chain: int | None = None) -> None:
        """Call a function with the values of tensors, after the side effects that were issued before. Returns at once.

        The callback runs on the thread that drives the machine, and may neither send nor wait. If the
        callback raises, or an operand is poisoned, later effects in the chain do not happen; `check_chain` raises the
        error.

        :param callback: The function. It gets host arrays of its own, one for each tensor.
        :param tensors: The operands.
        :param chain: The chain of the effect, made by `chain`; by default the session's own.
        :raises MetadataError: A tensor belongs to another session.
        :raises ProtocolError: A tensor was released.
        """
        owned = [on_one_device(own(self._core, tensor)) for tensor in tensors]
        capture = capture_of(self._core.outbox)
        if capture is not None:
            capture.effect(callback, owned, chain)
        else:
            self._core.effects.issue(callback, tuple(tensor._id for tensor in owned), chain)

    def host_call(
        self,
        function: Callable[..., Any],
        *tensors: Tensor,
        result: Any,
        device: Device | None = None,
    ) -> Any:
        """Make tensors that a function of this program computes from the values of other tensors. Returns at once.

        The function gets read-only arrays, on a thread of the session, one call at a time, in any order. A coroutine
        function runs on the event loop of `connect_async`, else on an event loop of the session. Both may use the
        session. An exception of the function, or a result of another shape or dtype, becomes the error of the results.

        :param function: The function, or coroutine function, that computes the results.
        :param tensors: The operands.
        :param result: Shape and dtype as a pair, or an object that has both, such as a tensor. With a list of these the
            function returns a list of values.
        :param device: The home of the results; by default that of the first tensor.
        :returns: A tensor, or a list of tensors if `result` is a list.
        :raises MetadataError: A shape or dtype of `result`, or the device, does not exist.
        """
        return host_call(self._core, function, tensors, result, device)

    def check_chain(self, chain: int | None = None) -> None:
        """Wait for the side effects of a chain.

        :param chain: The chain; by default the session's own.
        :raises TensordError: The error that stopped the chain.
        """
        on_thread(self._core.outbox, self._core.effects.checking(chain))

    def check_chain_async(self, chain: int | None = None) -> Awaiting[None]:
        """`await session.check_chain_async(chain)`: see `check_chain`."""
        return self._awaiting(self._core.effects.checking(chain))

    def print(self, *values: Tensor | object, sep: str = " ", chain: int | None = None) -> None:
        """Print tensors' values and other objects in program order: an `effect` on a chain. Returns at once.

        A failed tensor is printed as its error. `close` and the end of the program wait for open prints, for some
        seconds at most. After an error of another effect in the chain nothing more is printed; `check_chain` raises
        that error.

        :param values: Tensors, and any other objects, which are printed as their `str` at the time of the call.
        :param sep: The text between two values.
        :param chain: The chain of the effect; by default the session's own.
        """
        owned = [on_one_device(own(self._core, value)) for value in values if isinstance(value, Tensor)]
        parts = [None if isinstance(value, Tensor) else str(value) for value in values]
        capture = capture_of(self._core.outbox)
        if capture is not None:
            capture.print(parts, owned, sep, chain)
        else:
            self._core.printing.issue(parts, tuple(tensor._id for tensor in owned), sep, chain, self)


make_public(SideEffects)


class Order(Facet):
    """Methods that concern everything issued before the call."""

    def flush(self) -> None:
        """Send all unsent messages. Never waits for results, but may wait until the machine accepts more messages."""
        self._core.outbox.flush()

    def flush_async(self) -> Awaiting[None]:
        """`await session.flush_async()`: send all unsent messages, and wait until there is room for more.

        Afterwards half of the credit window is free: that many ops can be issued before an op blocks the event loop.
        """
        return self._awaiting(making_room(self._core))

    def sync(self, timeout: float | None = None, *, durable: bool = False) -> int:
        """Wait until everything issued before has ended. Errors of failed instructions are not raised.

        :param timeout: The maximal wait in seconds; by default no limit.
        :param durable: Wait, too, until all durable names of the machine are on the disk with their present values.
        :returns: The number of instructions that have failed since the last `sync`; cancelled ones do not count.
            ``stats()["recent_errors"]`` has the newest errors.
        :raises TimeoutError: The time is over.
        :raises FileError: Values of durable names have failed or are not computed yet.
        """
        return on_thread(self._core.outbox, syncing(self._core, timeout, durable=bool(durable)))

    def sync_async(self, *, durable: bool = False) -> Awaiting[int]:
        """`failed = await session.sync_async()`: everything issued before this call has ended. See `sync`."""
        return self._awaiting(syncing(self._core, None, durable=bool(durable)))

    def atomic(self) -> AbstractContextManager[None]:
        """`with session.atomic():` no other session sees only a part of the ops issued inside.

        The machine receives the ops as one group: ops of other sessions come before the group, or after it. The group
        is sent when the block ends, so nothing inside can wait for a value or ask a question, and `publish` and
        `unpublish` return at once, with errors only logged. Nested blocks are one group. Other threads that use the
        session wait until the block is over. If the block raises, the ops issued until then are sent nevertheless, as a
        group, since there are handles to their results. A group is about interleaving, not errors: ops fail one by one.

        :returns: A context manager. Calls inside that would wait raise ProtocolError.
        """
        return self._core.outbox.atomic()

    def cancel(self) -> None:
        """Cancel all pending work, and all work issued before `restart`: the results get a cancellation error."""
        self._core.cancellation.cancel()

    def restart(self) -> None:
        """Accept instructions again after `cancel`. A later `cancel` is not undone."""
        self._core.cancellation.restart()


make_public(Order)


# -- the steps ---------------------------------------------------------------------------------------------------------


def making_room(core: Parts) -> Steps[None]:
    """`flush`, with room for more messages afterwards."""
    core.outbox.flush(patient=False)
    yield MessageRoom()


def syncing(core: Parts, timeout: float | None, *, durable: bool) -> Steps[int]:
    began, limit = monotonic(), seconds("sync", timeout)
    failed = int((yield Within(core.answers.ask_to_sync(), limit)))
    if durable:
        rest = None if limit is None else max(began + limit - monotonic(), 0.0)
        yield from keeping_durable(core.outbox, timeout=rest)
    return failed

"""Program order, as methods of a session: side effects; and what was issued is sent, awaited, grouped, cancelled."""

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
from ..waiting.steps import Awaiting, Room, Steps, Within, on_thread
from .parts import Facet, Parts


class SideEffects(Facet):
    """Functions of the program that the machine calls: on chains, and for their results."""

    def chain(self) -> int:
        """A new chain: side effects on different chains are not ordered against each other."""
        return self._core.effects.new_chain()

    def effect(self, callback: Callable[..., None], *tensors: Tensor, chain: int | None = None) -> None:
        """Call back with the tensors' values (host arrays of its own), after the side effects issued before.

        Returns at once. The callback runs on the thread that drives the machine and may neither submit nor wait. If
        it raises, or an operand is poisoned, the effects behind it in the chain do not happen; `check_chain` raises
        the error.
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
        """Tensors that a function of this program computes from the values of others. Returns at once.

        `result`: (shape, dtype), or something that has both, such as a tensor: then a tensor is returned. For a list of
        these the function returns a list, and so does this. `device` is by default that of the first tensor.

        The function gets read-only arrays, on a thread of the session's, one call at a time, in no certain order. A
        coroutine function runs on the event loop of `connect_async`, else on one of the session's. Either may use the
        session. An exception of the function, or a result of another shape or dtype, becomes the error of the results.
        """
        return host_call(self._core, function, tensors, result, device)

    def check_chain(self, chain: int | None = None) -> None:
        """Wait for a chain's side effects; raises the error that stopped it."""
        on_thread(self._core.outbox, self._core.effects.checking(chain))

    def check_chain_async(self, chain: int | None = None) -> Awaiting[None]:
        """`await session.check_chain_async(chain)`: its side effects have happened. See `check_chain`."""
        return self._awaiting(self._core.effects.checking(chain))

    def print(self, *values: Tensor | object, sep: str = " ", chain: int | None = None) -> None:
        """Print tensors' values and other things in program order: an `effect` on a chain.

        Returns at once. A tensor that has failed is printed as its error. `close` waits for open prints, and so does
        the end of the program, for some seconds at most. After an error of another effect in the chain nothing more is
        printed; `check_chain` says why.
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
    """Methods that concern everything that was issued before."""

    def flush(self) -> None:
        """Send all unsent messages. Never waits for results, but may wait until the machine takes more."""
        self._core.outbox.flush()

    def flush_async(self) -> Awaiting[None]:
        """`await session.flush_async()`: send all unsent messages, and wait until there is room for more.

        Half a window is free then: so many ops can be issued before one waits for room, and holds up the loop.
        """
        return self._awaiting(making_room(self._core))

    def sync(self, timeout: float | None = None, *, durable: bool = False) -> int:
        """Wait until everything issued before has ended. Does not raise the errors of failed instructions. TimeoutError
        after `timeout` seconds.

        Returns how many instructions of the session have failed since the last `sync`; cancelled ones do not count.
        `stats()["recent_errors"]` has the newest errors. `durable`: wait, too, until all durable names of the machine
        are on the disk, with the values that they have now; FileError for those that are not, since their values are
        not there yet or have failed.
        """
        return on_thread(self._core.outbox, syncing(self._core, timeout, durable=bool(durable)))

    def sync_async(self, *, durable: bool = False) -> Awaiting[int]:
        """`failed = await session.sync_async()`: everything issued before this call has ended. See `sync`."""
        return self._awaiting(syncing(self._core, None, durable=bool(durable)))

    def atomic(self) -> AbstractContextManager[None]:
        """`with session.atomic():` no other session sees only a part of the ops issued inside.

        The machine takes the ops as one group: ops of other sessions come before all of it, or after. The group is sent
        when the block ends; so nothing inside can wait for a value or ask for anything (ProtocolError), and `publish`
        and `unpublish` return at once, their errors only logged. Nested blocks are one group. Other threads that use
        the session wait until the block is over. If the block raises, the ops issued until then are sent all the same,
        as a group: there are handles to their results. A group is about interleaving, not errors: ops fail one by one.
        """
        return self._core.outbox.atomic()

    def cancel(self) -> None:
        """Turn everything pending into cancellation errors, and everything issued later until `restart`."""
        self._core.cancellation.cancel()

    def restart(self) -> None:
        """After `cancel`: take instructions again. A cancellation that comes after this call stays."""
        self._core.cancellation.restart()


make_public(Order)


# -- the steps ---------------------------------------------------------------------------------------------------------


def making_room(core: Parts) -> Steps[None]:
    """`flush`, with room for more afterwards."""
    core.outbox.flush(patient=False)
    yield Room()


def syncing(core: Parts, timeout: float | None, *, durable: bool) -> Steps[int]:
    began, limit = monotonic(), seconds("sync", timeout)
    failed = int((yield Within(core.answers.ask_to_sync(), limit)))
    if durable:
        rest = None if limit is None else max(began + limit - monotonic(), 0.0)
        yield from keeping_durable(core.outbox, timeout=rest)
    return failed

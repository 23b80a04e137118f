"""What a session does to all that it has issued: sends it, waits for it, groups it, cancels it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from time import monotonic

from ..files.checkpoints import keeping_durable
from ..locations.tracebacks import make_public
from ..requests.answers import seconds
from ..waiting.steps import Awaiting, Room, Steps, Within, on_thread
from .parts import Facet, Parts


class Order(Facet):
    """What concerns everything that was issued before."""

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

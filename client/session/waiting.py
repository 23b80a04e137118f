"""The awaitable forms of a session, for asyncio, and the steps of what waits, which they share with the other forms.

docs/waiting.md says what they promise.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence, Sized
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar, cast

from numpy.typing import NDArray

from ...interpreter.errors import MetadataError, MetadataKeyError, MetadataTypeError, ProtocolError
from ..calls.checks import own
from ..files.loading import loading
from ..files.saving import keeping_durable, restoring, saving
from ..locations.locations import located
from ..locations.tracebacks import make_public
from ..outbox.current import refuse_captured
from ..requests.answers import seconds
from ..requests.held import ROWS, whole
from ..sharing.names import AT_ONCE
from ..sharing.values import looked_up, publishable
from ..tensor.waiting import ready
from ..transport.seeking import hinting
from ..waiting.helper import in_helper
from ..waiting.on_loop import on_loop
from ..waiting.steps import Awaiting, Room, Steps, Within

if TYPE_CHECKING:
    from ..files.saving import Saving
    from ..tensor.tensor import Tensor
    from .session import Session

T = TypeVar("T")
ALL: Final = 10_000  # rows of an answer, at the most


class AwaitableSession:
    """What a session has for event loops. It is an asynchronous context manager, too: the end awaits `close_async`."""

    def flush_async(self) -> Awaiting[None]:
        """`await session.flush_async()`: send all unsent messages, and wait until there is room for more.

        Half a window is free then: so many ops can be issued before one waits for room, and holds up the loop.
        """
        return self._awaiting(making_room(cast("Session", self)))

    def fetch_async(self, tensors: Iterable[Tensor]) -> Awaiting[list[NDArray[Any]]]:
        """`arrays = await session.fetch_async(tensors)`: their values as of this call. See `fetch`."""
        return self._awaiting(fetching(cast("Session", self), listed(tensors)))

    def sync_async(self, *, durable: bool = False) -> Awaiting[int]:
        """`failed = await session.sync_async()`: everything issued before this call has ended. See `sync`."""
        return self._awaiting(syncing(cast("Session", self), None, durable=bool(durable)))

    def check_chain_async(self, chain: int | None = None) -> Awaiting[None]:
        """`await session.check_chain_async(chain)`: its side effects have happened. See `check_chain`."""
        return self._awaiting(cast("Session", self)._effects.checking(chain))

    def publish_async(
        self, name: str | Mapping[str, Any], value: Any = None, *, durable: bool = False
    ) -> Awaiting[None]:
        """`await session.publish_async(name, tensor)`: see `publish`."""
        return self._awaiting(publishing(cast("Session", self), name, value, durable=bool(durable)))

    def lookup_async(
        self, name: str | Sequence[str], *, snapshot: bool = False, wait: float | None = AT_ONCE
    ) -> Awaiting[Any]:
        """`tensor = await session.lookup_async(name)`: see `lookup`."""
        return self._awaiting(looking_up(cast("Session", self), name, snapshot=bool(snapshot), wait=wait))

    def unpublish_async(self, *names: str) -> Awaiting[None]:
        """`await session.unpublish_async(name)`: see `unpublish`."""
        return self._awaiting(unpublishing(cast("Session", self), names))

    def names_async(self, kind: Literal["", "tensor", "routine"] = "") -> Awaiting[list[str]]:
        """`names = await session.names_async()`: see `names`."""
        return self._awaiting(listing(cast("Session", self), kind))

    def load_async(
        self,
        path: str | os.PathLike[str],
        names: Iterable[str] | None = None,
        device: str | None = None,
        *,
        own: bool = False,
        raw: bool = False,
        digest: bool = False,
    ) -> Awaiting[dict[str, Tensor]]:
        """`tensors = await session.load_async(path)`: see `load`."""
        wanted = listed(names)
        steps = loading(cast("Session", self), path, wanted, device, own=bool(own), raw=bool(raw), digest=bool(digest))
        return self._awaiting(steps)

    def save_async(
        self, path: str | os.PathLike[str], tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
    ) -> Awaiting[Saving]:
        """`saving = await session.save_async(path, tensors)`, and `await saving`: see `save`.

        The values are those at the end of the first `await`, when the file has been begun.
        """
        session = cast("Session", self)
        return self._awaiting(saving(session, session._savings, path, tensors, metadata))

    def restore_async(
        self,
        directory: str | os.PathLike[str],
        names: str | Sequence[str] | None = None,
        *,
        generation: int = 0,
        deep: bool = False,
    ) -> Awaiting[dict[str, Any]]:
        """`report = await session.restore_async(directory)`: see `restore`."""
        given = (names,) if isinstance(names, str) else names
        return self._awaiting(restoring(cast("Session", self), directory, given, generation, deep=bool(deep)))

    def stats_async(self, by: str | None = None) -> Awaiting[dict[str, Any]]:
        """`counters = await session.stats_async()`: see `stats`."""
        return self._awaiting(counting(cast("Session", self), by))

    def trace_async(self) -> Awaiting[Any]:
        """`trace = await session.trace_async()`: see `trace`."""
        return self._awaiting(cast("Session", self)._tracing())

    async def close_async(self) -> None:
        """`await session.close_async()`: see `close`. A task that is cancelled meanwhile does not stop the closing."""
        session = cast("Session", self)
        refuse_captured(session._outbox, "the session cannot be closed")
        await in_helper(session.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close_async()

    def _awaiting(self, steps: Steps[T]) -> Awaiting[T]:
        return on_loop(cast("Session", self)._outbox, steps)


make_public(AwaitableSession)


def listed(given: Any) -> Any:
    """What the user's iterable gives, taken outside of all locks and regions: it may wait for other threads' ops.

    What is no iterable, or a text, is refused by the steps."""
    return list(given) if isinstance(given, Iterable) and not isinstance(given, str | Sized) else given


# -- the steps ---------------------------------------------------------------------------------------------------------


def making_room(session: Session) -> Steps[None]:
    """`flush`, with room for more afterwards."""
    session._outbox.flush(patient=False)
    yield Room()


def fetching(session: Session, tensors: Iterable[Tensor]) -> Steps[list[NDArray[Any]]]:
    """`fetch`."""
    if not isinstance(tensors, Iterable):
        raise located(MetadataTypeError(f"fetch: takes a list of tensors, not {type(tensors).__name__}"))
    return (yield from session._answers.fetching_all([own(session, tensor) for tensor in tensors]))


def syncing(session: Session, timeout: float | None, *, durable: bool) -> Steps[int]:
    """`sync`."""
    began, limit = monotonic(), seconds("sync", timeout)
    failed = int((yield Within(session._answers.ask_to_sync(), limit)))
    if durable:
        rest = None if limit is None else max(began + limit - monotonic(), 0.0)
        yield from keeping_durable(session._outbox, timeout=rest)
    return failed


def publishing(session: Session, name: Any, value: Any, *, durable: bool) -> Steps[None]:
    """`publish`."""
    given: Any = {name: value} if isinstance(name, str) else name
    if not (isinstance(given, Mapping) and all(isinstance(key, str) for key in given)):
        raise located(MetadataError("publish: takes a name and a tensor or routine, or a dict of these by name"))
    found = {key: publishable(session, value) for key, value in given.items()}
    with hinting(session._hint, ProtocolError):
        yield from session._names.publishing(found, durable=durable)
    if durable and not session._outbox.is_inside():
        for one in found.values():
            for tensor in one.exposed:
                yield from ready(tensor)
        yield from keeping_durable(session._outbox, tuple(given))


def looking_up(session: Session, name: str | Sequence[str], *, snapshot: bool, wait: float | None) -> Steps[Any]:
    """`lookup`."""
    given = (name,) if isinstance(name, str) else name
    with hinting(session._hint, MetadataKeyError):
        told = yield from session._names.looking_up(given, snapshot=snapshot, wait=wait)
    found = looked_up(session, tuple(given), *told)
    return found[0] if isinstance(name, str) else dict(zip(given, found, strict=True))


def unpublishing(session: Session, names: Sequence[str]) -> Steps[None]:
    """`unpublish`."""
    with hinting(session._hint, MetadataKeyError):
        yield from session._names.unpublishing(names)


def listing(session: Session, kind: str) -> Steps[list[str]]:
    """`names`."""
    if not kind:
        return (yield from session._names.listing())
    return [row["name"] for row in (yield session._answers.ask("names", ALL, kind))]


def counting(session: Session, by: str | None) -> Steps[dict[str, Any]]:
    """`stats`."""
    found: dict[str, Any] = as_lists((yield session._answers.ask("stats")))
    if by is not None:
        memory = whole(as_lists((yield session._answers.ask("memory", by, ROWS))))
        found["session"]["freed"] = memory["freed"].get(str(found["session"]["id"]), {})
        found["memory"] = memory
    contexts = [context.stats() for context in list(session._opened)]
    return found | {"contexts": contexts} | session._outbox.stats()


def as_lists(value: Any) -> Any:
    """A plain value with lists for tuples, as it comes over a wire, which has only one kind of sequence."""
    if isinstance(value, dict):
        return {key: as_lists(item) for key, item in value.items()}
    return [as_lists(item) for item in value] if isinstance(value, list | tuple) else value

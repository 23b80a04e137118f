"""Names that sessions share, as methods of a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from ...interpreter.errors import MetadataError, MetadataKeyError, ProtocolError
from ..files.checkpoints import keeping_durable
from ..locations.locations import located
from ..locations.tracebacks import make_public
from ..sharing.global_names import expanded, put_together, shown
from ..sharing.names import AT_ONCE
from ..sharing.values import looked_up, publishable
from ..tensor.waiting import ready
from ..transport.seeking import hinting
from ..waiting.steps import Awaiting, Steps, on_thread
from .parts import Facet, Parts

ALL: Final = 10_000  # rows of an answer, at most


class SharedNames(Facet):
    """Tensors and routines under names."""

    def publish(self, name: str | Mapping[str, Any], value: Any = None, *, durable: bool = False) -> None:
        """Give a tensor or a routine a name for every session of the machine.

        A name keeps its tensor alive, or the tensors that its routine captures. Later writes in place to a durable
        tensor are on the disk by the next ``sync(durable=True)``, or at the machine's interval.

        :param name: The name, or a dict of tensors and routines by name, which are published together.
        :param value: A tensor, ``routine.link(...)``, the result of `session.link`, or a routine that was captured
            once.
        :param durable: The name survives the machine (docs/checkpoints.md), until it is unpublished. The call waits
            until the value, or the tensors that the routine captures, are on the disk; inside `atomic` the next
            ``sync(durable=True)`` does.
        :raises MetadataError: The name is not valid, or the routine calls back (`effect`).
        :raises ProtocolError: The machine keeps no durable names.
        :raises TensordError: The error of a durable value.
        """
        on_thread(self._core.outbox, publishing(self._core, name, value, durable=bool(durable)))

    def publish_async(
        self, name: str | Mapping[str, Any], value: Any = None, *, durable: bool = False
    ) -> Awaiting[None]:
        """`await session.publish_async(name, tensor)`: see `publish`."""
        return self._awaiting(publishing(self._core, name, value, durable=bool(durable)))

    def lookup(self, name: str | Sequence[str], *, snapshot: bool = False, wait: float | None = AT_ONCE) -> Any:
        """Return the tensor or routine that is published under a name.

        :param name: The name, or several, which are looked up together.
        :param snapshot: Return new tensors with the present values, also for the tensors that routines capture: later
            writes to the named tensors do not change them. Nothing is copied before such a write.
        :param wait: The seconds to wait for the name to be published; None for no limit.
        :returns: The tensor or routine; for several names a dict.
        :raises MetadataKeyError: A name is not published, or not within `wait` seconds.
        :raises TimeoutError: The machine has not answered within `wait` seconds, or two seconds if that is longer.
            Without `wait` there is no limit.
        """
        return on_thread(self._core.outbox, looking_up(self._core, name, snapshot=bool(snapshot), wait=wait))

    def lookup_async(
        self, name: str | Sequence[str], *, snapshot: bool = False, wait: float | None = AT_ONCE
    ) -> Awaiting[Any]:
        """`tensor = await session.lookup_async(name)`: see `lookup`."""
        return self._awaiting(looking_up(self._core, name, snapshot=bool(snapshot), wait=wait))

    def unpublish(self, *names: str) -> None:
        """Remove names. Handles to their tensors stay.

        :param names: The names.
        :raises MetadataKeyError: Nothing is published under a name.
        """
        on_thread(self._core.outbox, unpublishing(self._core, names))

    def unpublish_async(self, *names: str) -> Awaiting[None]:
        """`await session.unpublish_async(name)`: see `unpublish`."""
        return self._awaiting(unpublishing(self._core, names))

    def names(self, kind: Literal["", "tensor", "routine"] = "") -> list[str]:
        """Return the names under which something is published.

        :param kind: "tensor" or "routine", for the names of these only.
        :returns: The names, sorted.
        """
        return on_thread(self._core.outbox, listing(self._core, kind))

    def names_async(self, kind: Literal["", "tensor", "routine"] = "") -> Awaiting[list[str]]:
        """`names = await session.names_async()`: see `names`."""
        return self._awaiting(listing(self._core, kind))


make_public(SharedNames)


# -- the steps ---------------------------------------------------------------------------------------------------------


def publishing(core: Parts, name: Any, value: Any, *, durable: bool) -> Steps[None]:
    given: Any = {name: value} if isinstance(name, str) else name
    if not (isinstance(given, Mapping) and all(isinstance(key, str) for key in given)):
        raise located(MetadataError("publish: takes a name and a tensor or routine, or a dict of these by name"))
    by_name = {key: publishable(core, value) for key, value in expanded(given)}
    with hinting(core.hint, ProtocolError):
        yield from core.names.publishing(by_name, durable=durable)
    if durable and not core.outbox.is_inside():
        for entry in by_name.values():
            for tensor in entry.shared:
                yield from ready(tensor)
        yield from keeping_durable(core.outbox, tuple(by_name))


def looking_up(core: Parts, name: str | Sequence[str], *, snapshot: bool, wait: float | None) -> Steps[Any]:
    given = (name,) if isinstance(name, str) else name
    with hinting(core.hint, MetadataKeyError):
        asked, answer = yield from core.names.looking_up(given, snapshot=snapshot, wait=wait)
    every = list(dict.fromkeys(one for some in asked.values() for one in some))
    found = put_together(asked, dict(zip(every, looked_up(core, every, *answer), strict=True)))
    return found[0] if isinstance(name, str) else dict(zip(asked, found, strict=True))


def unpublishing(core: Parts, names: Sequence[str]) -> Steps[None]:
    with hinting(core.hint, MetadataKeyError):
        yield from core.names.unpublishing(names)


def listing(core: Parts, kind: str) -> Steps[list[str]]:
    if not kind:
        return shown((yield from core.names.listing()))
    return shown(row["name"] for row in (yield core.answers.ask("names", ALL, kind)))

"""Names under which sessions of one machine share tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..interpreter.errors import MetadataError, MetadataTypeError
from ..interpreter.wire.messages import ListNames, Lookup, Publish, Unpublish
from ..interpreter.wire.names import check_names
from .locations import located
from .outbox.outbox import Outbox
from .reading import expose
from .tensor import Tensor


class Names:
    """One session's access to the machine's names. Inside `atomic`, publishing and unpublishing do not wait."""

    __slots__ = ("_outbox",)

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def publish(self, tensors: Mapping[str, Tensor]) -> None:
        """Publish these tensors under their names, all at once."""
        names, ids = listed_names(tuple(tensors)), tuple(tensor._id for tensor in tensors.values())
        try:
            check_names(names)
        except MetadataError as error:
            raise located(error) from None
        for tensor in tensors.values():
            expose(tensor)
        self._outbox.tell(lambda request: Publish(names, ids, request))

    def lookup(self, given: Sequence[str], *, snapshot: bool) -> list[tuple[int, Any, str]]:
        """New ids for the tensors of these names, taken at once, with the meta and home of each in wire form."""
        names = listed_names(given)
        ids: list[int] = []

        def build(request: int, _location: int) -> Lookup:
            ids.extend(self._outbox.new_id() for _ in names)
            return Lookup(names, tuple(ids), request, snapshot)

        found = self._outbox.await_reply(self._outbox.ask(build, located=False))
        return [(id_, meta, home) for id_, (meta, home) in zip(ids, found, strict=True)]

    def unpublish(self, names: Sequence[str]) -> None:
        """Remove names."""
        plain = listed_names(names)
        self._outbox.tell(lambda request: Unpublish(plain, request))

    def all(self) -> list[str]:
        """Every name under which something is published, sorted."""
        return list(self._outbox.await_reply(self._outbox.ask(lambda request, _: ListNames(request), located=False)))


def listed_names(names: Any) -> tuple[str, ...]:
    """The names as plain strings, as messages carry them; MetadataTypeError if they are something else."""
    if not isinstance(names, list | tuple | set | frozenset | dict):
        raise located(MetadataTypeError(f"expected a name or a list of names, got {type(names).__name__}"))
    for name in names:
        if not isinstance(name, str):
            raise located(MetadataTypeError(f"a name is a string, not {type(name).__name__}"))
    return tuple(map(str.__str__, names))

"""Names under which sessions of one machine share tensors and routines: publishing, looking up, removing, listing.

Several names are published, or looked up, together or not at all. A wait for a name asks the machine again and again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import inf
from time import monotonic
from typing import Any, Final, NamedTuple, TypeAlias

from ...interpreter.errors import MetadataError, MetadataKeyError, MetadataTypeError
from ...interpreter.wire.messages import ListNames, Lookup, Publish, Unpublish, encode_message
from ...interpreter.wire.names import check_names
from ...interpreter.wire.program_messages import Convention
from ..locations.locations import located
from ..outbox.outbox import Outbox
from ..requests.answers import seconds
from ..tensor.reading import mark_shared
from ..tensor.tensor import Tensor
from ..transport.replies import Reply
from ..waiting.steps import Pause, Steps, Within
from .global_names import machine_names

PAUSE: Final = 0.02  # seconds until missing names are asked for again
ANSWER_TIMEOUT: Final = 2.0  # seconds for the machine's answer, however short the wait


class AtOnce:
    """A wait of 0 seconds for a publication, with no limit for the answer: that of a call without `wait`."""

    def __repr__(self) -> str:
        return "0.0"


AT_ONCE: Final[Any] = AtOnce()


# The machine's answer about names: for each, new ids for the tensors, and the records of programs.
LookupAnswer: TypeAlias = tuple[list[Any], list[int], list[Any]]


class Publishable(NamedTuple):
    """A tensor or a routine as messages carry it: its id; for a routine its convention, if it has one. `shared`: the
    tensors to which other sessions may write from then on."""

    id: int
    shared: tuple[Tensor, ...]
    convention: Any = None


class Names:
    """One session's access to the machine's names, in steps. Inside `atomic`, publishing does not wait for the
    answer."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def publishing(self, given: Mapping[str, Publishable], *, durable: bool = False) -> Steps[None]:
        """Publish tensors and routines under their names, all at once."""
        names, ids = listed_names(tuple(given)), tuple(each.id for each in given.values())
        try:
            check_names(names)
        except MetadataError as error:
            raise located(error) from None
        outbox = self._outbox
        for each in given.values():
            for tensor in each.shared:
                mark_shared(tensor)
        conventions = {each.id: each.convention for each in given.values() if each.convention is not None}
        with outbox.lock:
            for routine, convention in conventions.items():
                outbox.messages.append(encode_message(Convention(routine, convention)))
        sent = outbox.tell(lambda request: Publish(names, ids, request, durable))
        if sent is not None:
            yield sent

    def looking_up(
        self, given: Sequence[str], *, snapshot: bool, wait: float | None
    ) -> Steps[tuple[dict[str, list[str]], LookupAnswer]]:
        """The values of these names, looked up together, as the machine answers; and the machine's names behind each.
        Asks again for `wait` seconds if one is not published yet.

        The time is measured here, since a machine that hangs measures none: TimeoutError if it has not answered by
        then.
        """
        names, limit = listed_names(given), seconds("lookup", None if wait is AT_ONCE else wait)
        began, missing = monotonic(), None
        until = began if wait is AT_ONCE else inf if limit is None else began + limit
        answered = inf if limit is None else began + max(limit, ANSWER_TIMEOUT)
        while True:
            try:
                return (yield from self._look_up_with_parts(names, answered, snapshot=snapshot))
            except MetadataKeyError as error:
                if monotonic() >= until:
                    raise
                missing = error.reraisable()
            except TimeoutError:
                if missing is not None:  # the machine has answered before
                    raise missing from None
                raise TimeoutError(
                    f"lookup: the machine has not answered for {max(limit or 0.0, ANSWER_TIMEOUT):g} s"
                ) from None
            yield Pause(PAUSE)

    def _look_up_with_parts(
        self, names: Sequence[str], deadline: float, *, snapshot: bool
    ) -> Steps[tuple[dict[str, list[str]], LookupAnswer]]:
        """As `_look_up_all`, with the parts of global tensors for names that are not published themselves. Asks again
        if other sessions have published something else meanwhile."""
        asked = {name: [name] for name in names}
        while True:
            every = tuple(dict.fromkeys(name for some in asked.values() for name in some))
            try:
                return asked, (yield from self._look_up_all(every, deadline, snapshot=snapshot))
            except MetadataKeyError:
                before, asked = asked, machine_names(names, (yield from self.listing()))
                if asked == before:
                    raise

    def _look_up_all(self, names: Sequence[str], deadline: float, *, snapshot: bool) -> Steps[LookupAnswer]:
        count = len(names)
        while True:
            ids, answer = yield from self._asking(names, count, deadline, snapshot=snapshot)
            if type(answer) is not int:
                return list(answer[: len(names)]), ids, list(answer[len(names) :])
            count = answer  # routines capture tensors, which have ids, too

    def _asking(
        self, names: Sequence[str], count: int, deadline: float, *, snapshot: bool
    ) -> Steps[tuple[list[int], Any]]:
        ids: list[int] = []

        def build(request: int, _location: int) -> Lookup:
            ids.extend(self._outbox.new_id() for _ in range(count))
            return Lookup(names, tuple(ids), request, snapshot)

        reply = self._outbox.ask(build, located=False)
        try:
            return ids, (yield Within(reply, None if deadline == inf else max(deadline - monotonic(), 0.0)))
        except BaseException:  # no handles are made of them
            reply.when_done(partial(self._drop, reply, ids))
            raise

    def _drop(self, reply: Reply, ids: Sequence[int]) -> None:
        """Release the tensors of an unused answer. Called on any thread, inside any lock."""
        if reply.error is None and type(reply.value) is not int:
            for id_ in ids:
                self._outbox.release(id_)

    def unpublishing(self, names: Sequence[str]) -> Steps[None]:
        """Remove names."""
        listed = listed_names(names)
        sent = self._outbox.tell(lambda request: Unpublish(listed, request))
        if sent is not None:
            yield sent

    def listing(self) -> Steps[list[str]]:
        """Every published name, sorted."""
        return list((yield self._outbox.ask(lambda request, _: ListNames(request), located=False)))


def listed_names(names: Any) -> tuple[str, ...]:
    """The names as plain strings for messages; MetadataTypeError for anything else."""
    if not isinstance(names, list | tuple | set | frozenset | dict):
        raise located(MetadataTypeError(f"expected a name or a list of names, got {type(names).__name__}"))
    for name in names:
        if not isinstance(name, str):
            raise located(MetadataTypeError(f"a name must be a string, not {type(name).__name__}"))
    return tuple(map(str.__str__, names))

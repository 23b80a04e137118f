"""Contexts: what is made inside one goes when it ends, except what was kept. Contexts form a tree.

A context is open in the thread, or the asyncio task, that has opened it, as a span is. It holds the handles that are
made there while it is the innermost one. Source: OCANNL's contexts, whose `finalize` frees the arrays that a context
does not have from its parent.

A context holds handles weakly: a handle that is dropped inside releases its tensor at once, as anywhere. What stays of
it is an entry of a list, which is swept when it has doubled: the list grows with what lives, not with history. At the
end each handle that is still there is released, and learns why. Which context holds a handle, the handle itself knows:
it has that context's list. So handing it on is one assignment, and entries elsewhere mean nothing any more.

While no context is open, a new handle costs one look at `opened`, which is empty. Inside one it costs a weak reference
and an entry of the list.

Threads. Any thread may end a context while others make handles in it. The end sets the list's limit to
less than nothing before it goes through the list, and each new handle is in the list before its thread looks at the
limit. So the end finds the handle, or its thread finds the end, and has the nearest open parent hold the handle. Only
sweeps shorten the list before the end, one at a time.

Rejected: a range of ids for each context, without a list. Its end could release the tensors, but not tell the handles,
so each call would have to compare its operands with the ranges; and threads would need ids of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar, Token
from dataclasses import fields, is_dataclass
from numbers import Number
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar
from weakref import ref

import numpy as np

from ...interpreter.concurrency.blocks import ends_block
from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.errors import MetadataError, MetadataKeyError, MetadataTypeError, ProtocolError
from ...interpreter.types.meta import Meta
from ...interpreter.types.sizes import size
from ...interpreter.wire.names import check_names
from ..locations.frames import Line, describe_lines
from ..locations.locations import located, user_lines
from ..locations.tracebacks import make_public
from ..tensor.tensor import Gone, Handles, Tensor
from .checks import foreign, own

if TYPE_CHECKING:
    from types import TracebackType

    from ..outbox.outbox import Outbox

Kept = TypeVar("Kept")
SLACK: Final = 256  # entries that a list may have before it is swept
ENDED: Final = -1  # as the limit of a list
LEAVES: Final = (str, bytes, Number, np.generic, np.ndarray, type(None))  # what may lie beside tensors


class Ended(Gone):
    """What has become of the tensors of a context: where it ended."""

    __slots__ = ("_lines",)

    def __init__(self, lines: Sequence[Line]) -> None:
        self._lines = lines

    def __str__(self) -> str:
        where = describe_lines(self._lines)
        at = f" ({where})" if where else ""
        return f"was released when its context ended{at}; c.keep(tensor) hands one on"


class Contexts:
    """The contexts of one session.

    `opened`: those that are open in any thread, the oldest first. `innermost`: gives that of this thread or task; it
    may have been ended by another one.
    """

    __slots__ = ("_variable", "innermost", "opened", "outbox")

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self.opened: dict[Context, None] = {}
        self._variable: ContextVar[Context | None] = ContextVar("tensord context", default=None)
        self.innermost = self._variable.get

    def enter(self, context: Context) -> Token[Context | None]:
        """Make it the innermost context of this thread or task."""
        self.opened[context] = None
        return self._variable.set(context)

    def leave(self, context: Context, token: Token[Context | None]) -> None:
        """Make the context before it the innermost one again. Other threads and tasks that are in it pass over it."""
        self.opened.pop(context, None)
        if self.innermost() is context:
            with suppress(ValueError):  # the token is of another copy of the contextvars
                self._variable.reset(token)

    def pass_over(self, context: Context, heir: Context | None) -> None:
        """Make the heir innermost in place of a context that another thread has ended."""
        if self.innermost() is context:
            self._variable.set(heir)


class Context:
    """What is made in `with session.context() as c:` goes when the block ends, except what `c.keep` was given.

    `c["w"] = x` names a tensor, and `c["w"]` finds it, here or in a context around this one. Names keep their tensors
    alive until the context ends. ProtocolError for uses before it is open and after its end.
    """

    __slots__ = ("__weakref__", "_contexts", "_handles", "_limit", "_names", "_parent", "_sweeping", "_token", "ended")

    def __init__(self, contexts: Contexts) -> None:
        self._contexts = contexts
        self._parent: Context | None = None
        self._token: Token[Context | None] | None = None
        self._names: dict[str, Tensor] = {}
        self._sweeping = Lock()
        self._handles: Handles = []
        self._limit = SLACK
        self.ended = False

    # -- its life --------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if self.ended or self._token is not None:
            state = "has ended" if self.ended else "is open already"
            raise located(ProtocolError(f"this context {state}: make another one with session.context()"))
        try:
            with SHIELD:
                self._parent = open_from(self._contexts.innermost())
                self._token = self._contexts.enter(self)
                SHIELD.hold(self)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    @ends_block
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with SHIELD:
            SHIELD.let_go(self)
            self.finalize()

    def finalize(self) -> None:
        """End the context now, from any thread: its tensors are released, its names are gone. Ending it twice is fine.

        What its block makes afterwards belongs to the context around it. Raises nothing if the session has ended.
        """
        outbox = self._contexts.outbox
        with SHIELD:
            self.ended, self._limit = True, ENDED
            token, self._token = self._token, None
            if token is not None:
                self._contexts.leave(self, token)
            self._names.clear()
            self._release_all()
        outbox.rouse()

    def _release_all(self) -> None:
        held = self._held()
        gone = Ended(user_lines() if held else [])
        for handle in held:
            handle._let_go(gone)
        self._handles.clear()

    # -- what it holds ---------------------------------------------------------------------------------------------

    def _hold(self, handle: Tensor) -> None:
        """Hold a handle from now on. Called for each one that is made while this is the innermost context."""
        handle._holder = handles = self._handles
        handles.append(ref(handle))
        if len(handles) > self._limit:
            self._tidy(handle)

    def _held(self) -> list[Tensor]:
        handles = self._handles
        return [handle for each in list(handles) if (handle := each()) is not None and handle._holder is handles]

    def _tidy(self, newest: Tensor) -> None:
        """Sweep the list; once ended, have the nearest open parent hold the newest handle."""
        if self.ended:
            heir = open_from(self._parent)
            self._contexts.pass_over(self, heir)
            hand(newest, heir)
        elif self._sweeping.acquire(blocking=False):
            try:
                self._sweep()
            finally:
                self._sweeping.release()

    def _sweep(self) -> None:
        handles = self._handles
        entries = handles[:]
        handles[: len(entries)] = [
            each for each in entries if (handle := each()) is not None and handle._holder is handles
        ]
        self._limit = 2 * len(handles) + SLACK
        if self.ended:  # meanwhile, and what has come since found a limit again
            self.finalize()

    def keep(self, kept: Kept) -> Kept:
        """Hand tensors to the context around this one, or to the session, and return them: `return c.keep(loss)`.

        Takes a tensor, or dicts, lists, tuples, sets and dataclasses of tensors and plain values, nested at will.
        """
        self._check_open()
        heir = open_from(self._parent)
        for tensor in [self._own(tensor) for tensor in tensors_in(kept)]:
            hand(tensor, heir)
        return kept

    def stats(self) -> dict[str, Any]:
        """How many `tensors` it holds, the `bytes` of their elements where known, and its own `names`.

        Views count like other tensors, although they share memory.
        """
        held = [handle for handle in self._held() if not handle._released]
        nbytes = sum(meta.nbytes for handle in held if type(meta := handle._meta) is Meta)
        return {"tensors": len(held), "bytes": nbytes, "names": sorted(self._names)}

    # -- names -----------------------------------------------------------------------------------------------------

    def __setitem__(self, name: str, tensor: Tensor) -> None:
        """Name a tensor. If a context inside this one holds it, this one does from now on."""
        self._check_open()
        check_name(name)
        hand(self._own(tensor), self)
        self._names[name] = tensor

    def __getitem__(self, name: str) -> Tensor:
        """The tensor of that name, here or in the nearest context around this one that has it; MetadataKeyError."""
        self._check_open()
        check_name(name)
        for context in around(self):
            found = context._names.get(name)
            if found is not None:
                return self._own(found)
        known = ", ".join(self._all_names()) or "none"
        raise located(MetadataKeyError(f"there is no {name!r} in this context or around it (names: {known})"))

    def __delitem__(self, name: str) -> None:
        """Take a name of this very context away; handles to its tensor stay."""
        self._check_open()
        check_name(name)
        if self._names.pop(name, None) is None:
            raise located(MetadataKeyError(f"this context itself has no name {name!r}"))

    def __contains__(self, name: object) -> bool:
        """Does `c[name]` find a tensor?"""
        self._check_open()
        return any(name in context._names for context in around(self))

    def __iter__(self) -> Iterator[str]:
        """The names that `c[name]` finds."""
        return iter(self.names())

    def names(self) -> list[str]:
        """The names that `c[name]` finds, sorted: its own, and those of the contexts around it."""
        self._check_open()
        return self._all_names()

    def _all_names(self) -> list[str]:
        return sorted({name for context in around(self) for name in list(context._names)})

    # -- checks ----------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self.ended or self._token is None:
            state = "has ended" if self.ended else "is not open yet: open it with a with block"
            raise located(ProtocolError(f"this context {state}"))

    def _own(self, tensor: Any) -> Tensor:
        if isinstance(tensor, Tensor) and tensor._core.contexts is not self._contexts:
            raise located(foreign(tensor))
        core: Any = getattr(tensor, "_core", None)
        return own(core, tensor)

    def __repr__(self) -> str:
        held = self.stats()
        state = "ended" if self.ended else "not open yet" if self._token is None else "open"
        names = f", names {', '.join(held['names'])}" if held["names"] else ""
        count = f"{held['tensors']} tensor{'s' * (held['tensors'] != 1)}"
        return f"<tensord.Context {state}, {count}, {size(held['bytes'])}{names}>"


make_public(Context)


def around(context: Context | None) -> Iterator[Context]:
    """The open ones of this context and of those around it, from the inside out."""
    while context is not None:
        if not context.ended:
            yield context
        context = context._parent


def open_from(context: Context | None) -> Context | None:
    """This context, or the nearest one around it that is open."""
    return next(around(context), None)


def hand(handle: Tensor, heir: Context | None) -> None:
    """Have the handle live as long as the heir; None: as long as the program has it.

    It stays where it is if nothing holds it, or a context that will not end before the heir: one around it.
    """
    holder = getattr(handle, "_holder", None)
    if holder is None or any(holder is each._handles for each in around(heir)):
        return
    if heir is None:
        handle._holder = None
    else:
        heir._hold(handle)


def check_name(name: Any) -> None:
    """MetadataError unless it is printable text, which can stand in errors and tables."""
    if not isinstance(name, str):
        raise located(MetadataTypeError(f"a name is a string, not {type(name).__name__}"))
    try:
        check_names((name,))
    except MetadataError as error:
        raise located(error) from None


def tensors_in(kept: Any) -> list[Tensor]:
    """The tensors in a nested structure, in any order. MetadataTypeError for what may hide tensors from this search."""
    found: list[Tensor] = []
    seen: set[int] = set()  # containers, which may contain themselves
    pending = [kept]
    while pending:
        one = pending.pop()
        parts = parts_of(one)
        if isinstance(one, Tensor):
            found.append(one)
        elif parts is not None:
            if id(one) not in seen:
                seen.add(id(one))
                pending += parts
        elif one is kept or not isinstance(one, LEAVES):
            kinds = "a tensor, or dicts, lists, tuples, sets and dataclasses of tensors"
            raise located(MetadataTypeError(f"keep: takes {kinds}, not {type(one).__name__}"))
    return found


def parts_of(container: Any) -> Iterable[Any] | None:
    """What is in a container; None if it is none."""
    if isinstance(container, Mapping):
        return container.values()
    if isinstance(container, list | tuple | set | frozenset):
        return container
    if is_dataclass(container) and not isinstance(container, type):
        return [getattr(container, field.name) for field in fields(container)]
    return None

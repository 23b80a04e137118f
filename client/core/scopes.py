"""Scopes, which implement contexts. A scope releases its tensors when it ends, except kept ones. Scopes form a tree.

A scope is open in the thread, or the asyncio task, that has opened it, as a span is. It holds the handles that are made
there while it is the innermost scope. Source: OCANNL's contexts, whose `finalize` frees the arrays that a context does
not have from its parent.

A scope holds handles weakly: a handle that is dropped inside releases its tensor at once, as anywhere. Its entry in the
scope's list stays until the list is swept, which happens when the list has doubled: the list grows with live handles,
not with history. At the end each live handle is released, and gets the reason. The handle itself refers to the list of
its scope. So moving a handle to another scope is one assignment, and its old entries become meaningless.

While no scope is open, a new handle costs one test whether `opened` is empty. Inside a scope it costs a weak
reference and an entry of the list.

Threads. Any thread may end a scope while others make handles in it. The end of a scope sets the list's limit to a
negative number before it goes through the list, and each new handle is in the list before its thread reads the limit.
So either the end finds the handle in the list, or the handle's thread finds the negative limit, and moves the handle to
the nearest open parent. Until the scope ends, only sweeps shorten the list, one at a time.

Rejected: a range of ids for each scope, without a list. Its end could release the tensors, but not inform the handles,
so each call would have to compare its operands with the ranges; and threads would need ids of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from contextvars import ContextVar, Token
from threading import Lock
from typing import Any, Final, Protocol, TypeAlias
from weakref import ref

from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.types.meta import Meta
from ..locations.frames import Line, describe_lines
from ..locations.locations import user_lines
from ..outbox.outbox import Outbox

SWEEP_MARGIN: Final = 256  # entries that a list may have before it is swept
ENDED_LIMIT: Final = -1  # the limit of an ended scope's list: every new handle finds it exceeded
Handles: TypeAlias = "list[ref[ScopedHandle]]"  # of a scope


class ScopedHandle(Protocol):
    """A handle of a tensor, as far as scopes use one. `_holder`: the list of its scope, if it was made in one."""

    _holder: Handles | None

    @property
    def _id(self) -> int: ...

    @property
    def _meta(self) -> Meta | None: ...

    def _let_go(self, gone: Any) -> None:
        """Release the tensor. `gone`: the reason, which takes the place of the meta."""


class ContextEnd:
    """The reason why a context's tensors are released: the context has ended, at these lines."""

    __slots__ = ("_lines",)

    def __init__(self, lines: Sequence[Line]) -> None:
        self._lines = lines

    def __str__(self) -> str:
        where = describe_lines(self._lines)
        at = f" ({where})" if where else ""
        return f"was released when its context ended{at}; c.keep(tensor) hands one on"


class Scopes:
    """A session's scopes. `opened`: in any thread, oldest first. `innermost`: that of this thread or task; another
    thread may have ended it."""

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self.opened: dict[Scope, None] = {}
        self._variable: ContextVar[Scope | None] = ContextVar("tensord context", default=None)
        self.innermost = self._variable.get

    def enter(self, scope: Scope) -> Token[Scope | None]:
        """Make the scope the innermost one of this thread or task."""
        self.opened[scope] = None
        return self._variable.set(scope)

    def leave(self, scope: Scope, token: Token[Scope | None]) -> None:
        """Make the surrounding scope innermost again. Other threads and tasks inside the scope skip it."""
        self.opened.pop(scope, None)
        if self.innermost() is scope:
            with suppress(ValueError):  # the token is of another copy of the contextvars
                self._variable.reset(token)

    def pass_over(self, scope: Scope, successor: Scope | None) -> None:
        """Make the successor innermost, in place of a scope that another thread has ended."""
        if self.innermost() is scope:
            self._variable.set(successor)


class Scope:
    """One context: its handles, and its names, which keep their tensors alive. `parent`: the surrounding scope, once
    this one is open; `token`: while it is open; `limit`: the number of entries at which `handles` is swept."""

    __slots__ = ("__weakref__", "ended", "handles", "limit", "names", "parent", "scopes", "sweeping", "token")

    def __init__(self, scopes: Scopes) -> None:
        self.scopes = scopes
        self.parent: Scope | None = None
        self.token: Token[Scope | None] | None = None
        self.names: dict[str, ScopedHandle] = {}
        self.sweeping = Lock()
        self.handles: Handles = []
        self.limit = SWEEP_MARGIN
        self.ended = False

    def open(self) -> None:
        """Become the innermost scope of this thread or task. Called in a region."""
        self.parent = open_from(self.scopes.innermost())
        self.token = self.scopes.enter(self)

    def end(self) -> None:
        """End the scope, from any thread: release its tensors, drop its names. Ending it twice is fine."""
        with SHIELD:
            self.ended, self.limit = True, ENDED_LIMIT
            token, self.token = self.token, None
            if token is not None:
                self.scopes.leave(self, token)
            self.names.clear()
            self._release_all()
        self.scopes.outbox.rouse()

    def _release_all(self) -> None:
        held = self._held()
        gone = ContextEnd(user_lines() if held else [])
        for handle in held:
            handle._let_go(gone)
        self.handles.clear()

    def hold(self, handle: ScopedHandle) -> None:
        """Hold a handle. Called for each handle made while this is the innermost scope."""
        handle._holder = handles = self.handles
        handles.append(ref(handle))
        if len(handles) > self.limit:
            self._tidy(handle)

    def _held(self) -> list[ScopedHandle]:
        handles = self.handles
        return [handle for each in list(handles) if (handle := each()) is not None and handle._holder is handles]

    def _tidy(self, newest: ScopedHandle) -> None:
        """Sweep the list; after the end of the scope, move the newest handle to the nearest open parent."""
        if self.ended:
            successor = open_from(self.parent)
            self.scopes.pass_over(self, successor)
            hand_over(newest, successor)
        elif self.sweeping.acquire(blocking=False):
            try:
                self._sweep()
            finally:
                self.sweeping.release()

    def _sweep(self) -> None:
        handles = self.handles
        entries = handles[:]
        handles[: len(entries)] = [
            each for each in entries if (handle := each()) is not None and handle._holder is handles
        ]
        self.limit = 2 * len(handles) + SWEEP_MARGIN
        if self.ended:  # ended during the sweep: the new limit has hidden the end from later handles
            self.end()

    def find(self, name: str) -> ScopedHandle | None:
        """The tensor of that name, in this scope or the nearest surrounding one; None if there is none."""
        return next((each.names[name] for each in around(self) if name in each.names), None)

    def all_names(self) -> list[str]:
        """The names of this scope and of those around it, sorted."""
        return sorted({name for scope in around(self) for name in list(scope.names)})

    def stats(self) -> dict[str, Any]:
        held = [handle for handle in self._held() if handle._id > 0]
        nbytes = sum(meta.nbytes for handle in held if type(meta := handle._meta) is Meta)
        return {"tensors": len(held), "bytes": nbytes, "names": sorted(self.names)}


def around(scope: Scope | None) -> Iterator[Scope]:
    """The open scopes among this one and those around it, innermost first."""
    while scope is not None:
        if not scope.ended:
            yield scope
        scope = scope.parent


def open_from(scope: Scope | None) -> Scope | None:
    """This scope if it is open, else the nearest open one around it."""
    return next(around(scope), None)


def hand_over(handle: ScopedHandle, successor: Scope | None) -> None:
    """Make the successor hold the handle; without one, the handle lives as long as the program keeps it.

    The handle stays in its scope if no scope holds it, or a scope around the successor, which ends later anyway.
    """
    holder = getattr(handle, "_holder", None)
    if holder is None or any(holder is each.handles for each in around(successor)):
        return
    if successor is None:
        handle._holder = None
    else:
        successor.hold(handle)

"""Spans: names for parts of a program. In the trace, instructions carry the names of the spans in which they were
issued.

Open spans belong to a context: a thread, or an asyncio task. A span gets a number, and is sent, when an instruction
first needs it, so an empty span costs nothing. The number is a part of the instruction's location, so instructions cost
the same inside a span and outside, on the wire and in the machine.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Protocol
from weakref import WeakValueDictionary

from ...interpreter.concurrency.blocks import ends_block
from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.errors import ProtocolError
from ...interpreter.wire.locations import LINE_BITS, MAX_SPAN_DEPTH, MAX_SPAN_NAME_LENGTH, SPAN_LIMIT
from ...interpreter.wire.message_kinds import SPAN
from .telemetry import TELEMETRY, TelemetrySpan, begin, end


class Unsent(Protocol):
    """The call sites of a session: messages to send before the next batch, under its lock."""

    lock: AbstractContextManager[bool]
    unsent: list[list[Any]]


class Spans:
    """The spans of one session. `current`: a context's innermost open span, which `get` returns."""

    def __init__(self, locations: Unsent) -> None:
        self._locations = locations
        self._newest = 0
        self._numbered: WeakValueDictionary[int, OpenSpan] = WeakValueDictionary()
        self.current: ContextVar[OpenSpan | None] = ContextVar("tensord span", default=None)
        self.get = self.current.get

    @property
    def used(self) -> bool:
        """Return whether any instruction was issued inside a span."""
        return self._newest > 0

    def bits(self) -> int:
        """The open spans' part of a location, 0 outside of spans."""
        span = self.get()
        return 0 if span is None else span.bits or self.number(span)

    def number(self, span: OpenSpan) -> int:
        """Number the span and send it; returns its part of a location."""
        with self._locations.lock, SHIELD:
            if not span.bits:  # otherwise another thread has numbered it
                self._newest = self._newest % (SPAN_LIMIT - 1) + 1
                former = self._numbered.get(self._newest)
                if former is not None:
                    former.bits = 0  # it is still open, and gets another number when needed
                self._numbered[self._newest] = span
                self._locations.unsent.append([SPAN, self._newest, span.path])
                span.bits = self._newest << LINE_BITS
            return span.bits


class OpenSpan:
    """A span: open while its block runs, in one context at a time. Of a path of more than 32 names, the first 32 count.

    `bits`: its part of a location, 0 until it has a number. `exported`: it is also opened as a span of OpenTelemetry,
    if those are in use.
    """

    __slots__ = ("__weakref__", "_exported", "_opened", "_spans", "_token", "bits", "name", "path")

    def __init__(self, spans: Spans, name: str, *, exported: bool = True) -> None:
        self._spans = spans
        self._exported = exported
        self._opened: TelemetrySpan | None = None
        self._token: Token[OpenSpan | None] | None = None
        self.bits = 0
        self.name = printable(name)
        self.path: tuple[str, ...] = ()

    def __enter__(self) -> None:
        if self._token is not None:
            raise ProtocolError(f"the span {self.name!r} is open already: make another one with session.span")
        outer = self._spans.get()
        path = (*(() if outer is None else outer.path), self.name)[:MAX_SPAN_DEPTH]
        try:
            with SHIELD:
                if path != self.path:
                    self.path, self.bits = path, 0
                self._token = self._spans.current.set(self)
                SHIELD.hold(self)
            if self._exported and TELEMETRY.tracer is not None:
                self._opened = begin(path)
        except BaseException:
            self.__exit__(None, None, None)
            raise

    @ends_block
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with SHIELD:
            SHIELD.let_go(self)
            token, self._token = self._token, None
            opened, self._opened = self._opened, None
            if token is not None:
                with suppress(ValueError):  # closed in another context, which leaves it open in the one that opened it
                    self._spans.current.reset(token)
        if opened is not None:
            end(opened, error)


def printable(name: str) -> str:
    """The name in one line, and not too long."""
    return "".join(letter if letter.isprintable() else " " for letter in name[:MAX_SPAN_NAME_LENGTH])

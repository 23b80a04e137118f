"""A session's reports on itself: counters, and its trace."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from ...interpreter.errors import MetadataTypeError
from ...interpreter.wire.forms import shown
from ..locations.locations import located
from ..locations.spans import OpenSpan
from ..locations.tracebacks import make_public
from ..requests.held import DEFAULT_ROWS, as_object
from ..waiting.steps import Awaiting, LongWork, Steps, on_thread
from .parts import Facet, Parts


class Reports(Facet):
    """Counters, spans and the trace."""

    def stats(self, by: str | None = None) -> dict[str, Any]:
        """Return counters of instructions, memory, transfers, errors and hung kernels. Waits for no result.

        `contexts` has the contents of each open context of this session, oldest first. With
        ``connect(routines="auto")``, `periods` has the repetitions that were recognised and sent as runs.

        :param by: "session", "name", "device" or "location". Then `memory` attributes every byte of the devices'
            memory to a holder, in `rows` that sum up to `total`, and `session` has `freed`, the bytes that the end of
            this session would free. That examines all tensors of the machine.
        :returns: A dict of plain data.
        :raises MetadataError: `by` is another text.
        """
        return on_thread(self._core.outbox, counting(self._core, by))

    def stats_async(self, by: str | None = None) -> Awaiting[dict[str, Any]]:
        """`counters = await session.stats_async()`: see `stats`."""
        return self._awaiting(counting(self._core, by))

    def span(self, name: str) -> AbstractContextManager[None]:
        """`with session.span("step 37"):` instructions issued inside have that name in the trace; spans may be nested.

        A span is open in the thread, or the asyncio task, that opened it. A span costs some microseconds; instructions
        cost the same inside and outside.

        :param name: The name, a string that is not empty.
        :returns: A context manager.
        :raises MetadataError: `name` is not a string, or is empty.
        """
        if not isinstance(name, str) or not name:
            raise located(MetadataTypeError(f"span: expected a name, a string, got {shown(name)}"))
        return OpenSpan(self._core.outbox.locations.spans, name)

    def record(
        self, path: str | os.PathLike[str], *, limit: int = 1 << 30, without: Sequence[str] = ()
    ) -> AbstractContextManager[Any]:
        """`with session.record("bug.rec"):` record this session's work inside the block, for `tensord trace replay`.

        The file contains data: the session's tensors when the block begins, its uploads, and its fetched values.

        :param path: The file to write.
        :param limit: The size in bytes at which the recording ends.
        :param without: Patterns of published names, and of lines (``train.py:12``), whose values are left out.
        :returns: A context manager.
        :raises OSError: The file cannot be written, or the machine has ended; at the end of the block, too.
        :raises MetadataError: `without` is not a list of strings.
        """
        from ..recording.session_recording import SessionRecording

        if not isinstance(without, (list, tuple)) or not all(isinstance(one, str) for one in without):
            raise located(
                MetadataTypeError(f'without= must be a list of patterns, such as ["weights/*"], not {without!r}')
            )
        try:
            where = os.fspath(path)
        except TypeError as error:
            raise located(MetadataTypeError(f"record: {error}")) from None
        query = self._core.answers.query
        number = int(query("stats")["session"]["id"])
        return SessionRecording(query, where, limit=limit, without=list(without), session=number)

    def trace(self) -> Any:
        """Return the trace so far: the records of finished and live instructions.

        :returns: A `Trace`, with `records`, `save(path)`, `graph()` and others.
        """
        return on_thread(self._core.outbox, tracing(self._core))

    def trace_async(self) -> Awaiting[Any]:
        """`trace = await session.trace_async()`: see `trace`."""
        return self._awaiting(tracing(self._core))


make_public(Reports)


# -- the steps ---------------------------------------------------------------------------------------------------------


def counting(core: Parts, by: str | None) -> Steps[dict[str, Any]]:
    """Ask the machine for its counters, and add those of the session."""
    counters: dict[str, Any] = as_lists((yield core.answers.ask("stats")))
    if by is not None:
        memory = as_object(as_lists((yield core.answers.ask("memory", by, DEFAULT_ROWS))))
        counters["session"]["freed"] = memory["freed"].get(str(counters["session"]["id"]), {})
        counters["memory"] = memory
    contexts = [scope.stats() for scope in list(core.opened)]
    return counters | {"contexts": contexts} | core.outbox.stats()


def as_lists(value: Any) -> Any:
    """A plain value with lists in place of tuples, as the wire delivers it."""
    if isinstance(value, dict):
        return {key: as_lists(item) for key, item in value.items()}
    return [as_lists(item) for item in value] if isinstance(value, list | tuple) else value


def tracing(core: Parts) -> Steps[Any]:
    """Ask the machine for the entries of its trace, and make a `Trace` of them."""
    from ..embedded.traces import trace_of

    entries = yield core.answers.ask("trace")
    return (yield LongWork(partial(trace_of, entries), stops=True))

"""Spans of a cluster session: open on the session of each node, also on a session that is opened inside."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING

from ...interpreter.concurrency.blocks import ends_block
from ...interpreter.concurrency.interrupts import SHIELD
from ..core.core import Core
from ..locations.spans import OpenSpan
from ..locations.telemetry import TelemetrySpan, begin, end

if TYPE_CHECKING:
    from .cluster import Cluster


class ClusterSpan:
    """A span on all nodes, in the thread or task that opens it."""

    __slots__ = ("__weakref__", "_cluster", "_opened", "_undo", "name")

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self.name = name
        self._undo = ExitStack()
        self._opened: TelemetrySpan | None = None

    def __enter__(self) -> None:
        spans = self._cluster.spans
        try:
            for core in self._cluster.cores():
                self.join(core)
            spans.set((*spans.get(), self))
            self._opened = begin([span.name for span in spans.get()])
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def join(self, core: Core) -> None:
        """Open the span on that session, too."""
        self._undo.enter_context(OpenSpan(core.outbox.locations.spans, self.name, exported=False))

    @ends_block
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with SHIELD:
            self._cluster.spans.set(tuple(span for span in self._cluster.spans.get() if span is not self))
            opened, self._opened = self._opened, None
            self._undo.pop_all().__exit__(kind, error, traceback)
        if opened is not None:
            end(opened, error)

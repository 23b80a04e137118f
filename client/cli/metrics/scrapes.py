"""Answers to scrapes: the daemon is asked at most once in `FRESH` seconds, however many scrape it.

Theory. Scrapes are tasks of one event loop. One thread asks the daemon and makes the texts; a scrape that finds no
fresh answer starts it, and scrapes that come meanwhile wait for the same answer. So the daemon is asked one question at
a time, and an unresponsive one delays scrapes by the patience of one question at most.

Rejected: questions at intervals, without a scrape (the daemon would work without need); a question for each scrape.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import monotonic
from typing import Any, Final, Protocol, TypeVar

from ....interpreter.errors import TensordError
from ....interpreter.metrics.family import Figures

FRESH: Final = 1.0  # seconds
KINDS: Final = 4  # texts of one answer that are kept
T = TypeVar("T")


class MetricsSource(Protocol):
    """The source of the figures (`daemon_figures.DaemonFigures`)."""

    def figures(self) -> Figures: ...

    def health(self) -> list[str]: ...


class FreshValue:
    """A value that is made again when it is older than `FRESH`, once for all waiting scrapes."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = asyncio.Lock()
        self._made: float | None = None
        self._value: Any = None

    async def get(self, make: Callable[[], Any]) -> Any:
        async with self._lock:
            if self._made is None or self._clock() - self._made >= FRESH:
                self._value = await make()
                self._made = self._clock()
            return self._value


class Scrapes:
    """Fresh answers for scrapers. `render`: makes a content type and a text from figures and the scraper's accepted
    formats."""

    def __init__(
        self,
        source: MetricsSource,
        render: Callable[[Figures, str], tuple[str, bytes]],
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._source = source
        self._render = render
        self._thread = ThreadPoolExecutor(1, "metrics")
        self._figures, self._health = FreshValue(clock), FreshValue(clock)
        self._texts: dict[str, tuple[str, bytes]] = {}
        self._of: Figures | None = None

    async def metrics(self, accept: str) -> tuple[str, bytes]:
        """The content type, and the text."""
        figures = await self._figures.get(partial(self._run, self._source.figures))
        if figures is not self._of:
            self._of, self._texts = figures, {}
        if accept not in self._texts:
            text = await self._run(partial(self._render, figures, accept))
            if self._of is not figures or len(self._texts) >= KINDS:
                return text
            self._texts[accept] = text
        return self._texts[accept]

    async def health(self) -> tuple[str, list[str]]:
        """The daemon's state in words, "healthy" or another, and the reasons."""
        health: tuple[str, list[str]] = await self._health.get(partial(self._run, self._read_health))
        return health

    def _read_health(self) -> tuple[str, list[str]]:
        try:
            reasons = self._source.health()
        except (TensordError, OSError) as error:
            return "unreachable", [error.message if isinstance(error, TensordError) else str(error)]
        return "needs a look" if reasons else "healthy", reasons

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        """End the thread, once its work is done."""
        self._thread.shutdown()

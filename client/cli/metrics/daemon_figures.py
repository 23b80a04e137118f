"""Questions to a daemon, one after the other, on a connection that is kept and made again when the daemon comes back.

The figures cost the daemon's driving thread some microseconds each. Expensive figures are collected rarely: the bytes
of sessions by device need a scan of all tensors, and wait `SCAN_INTERVAL_FACTOR` times as long as the last scan took.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any, Final

from ....interpreter.errors import ConnectionLost, TensordError
from ....interpreter.metrics.bounds import Bounds
from ....interpreter.metrics.family import Figures
from ..daemon.ask import questions
from ..daemon.health import reasons
from ..daemon.reconnecting import Connect, ReconnectingQuestions

MIN_SCAN_INTERVAL: Final = 30.0  # seconds between two collections of the expensive figures, at least
SCAN_INTERVAL_FACTOR: Final = 400  # so the daemon spends a quarter of a percent on these
MAX_ROWS: Final = 10_000  # rows


class DaemonFigures:
    """Asks one daemon. `tell`: gets a line for each change. Not thread-safe."""

    def __init__(
        self,
        address: str | None,
        bounds: Bounds,
        tell: Callable[[str], None],
        *,
        clock: Callable[[], float] = monotonic,
        connect: Connect = questions,
    ) -> None:
        self._bounds = bounds
        self._tell = tell
        self._clock = clock
        self._connection = ReconnectingQuestions(address, connect)
        self._why = ""  # why the daemon does not answer; "" while it does
        self._due = 0.0
        self._held: Sequence[tuple[int, str, int]] = ()
        self._kernels: tuple[int, int] | None = None

    def figures(self) -> Figures:
        """The daemon's figures; empty ones if the daemon does not answer."""
        began = self._clock()
        try:
            machine, *sessions = self.ask("metrics")
            took = self._clock() - began
            if self._clock() >= self._due:
                self._look_around(machine)
        except (TensordError, OSError) as error:
            self._changed(error.message if isinstance(error, TensordError) else str(error))
            return Figures(bounds=self._bounds)
        self._changed("")
        return Figures(machine, sessions, took, self._kernels, self._held, self._bounds)

    def health(self) -> list[str]:
        """The problems that need an operator; ConnectionLost if the daemon does not answer."""
        return [f"{found.check}: {found.message} ({found.advice})" for found in reasons(self.ask("status"))]

    def ask(self, what: str, *arguments: Any) -> Any:
        """The answer to a question."""
        return self._connection.ask(what, *arguments)

    def close(self) -> None:
        """End the connection, if there is one."""
        self._connection.close()

    def _look_around(self, machine: Any) -> None:
        """The expensive figures: the bytes of sessions by device, and the directory of compiled kernels."""
        began, rows = self._clock(), ()  # type: tuple[float, Sequence[Any]]
        with suppress(ConnectionLost):  # there are so many tensors that the answer takes longer than we wait
            *rows, _ = self.ask("memory", "session", MAX_ROWS)
        ended = self._clock()
        self._due = ended + max(MIN_SCAN_INTERVAL, SCAN_INTERVAL_FACTOR * (ended - began))
        self._held = [
            (int(row["key"]) if row["key"].isdigit() else 0, device, nbytes)
            for row in rows
            for device, nbytes in row["devices"].items()
        ]
        self._kernels = kernels_in(machine["kernels"]) if self._connection.where.startswith("ipc://") else None

    def _changed(self, why: str) -> None:
        if bool(why) != bool(self._why):
            self._tell(f"the daemon does not answer: {why}" if why else "the daemon answers again")
        self._why = why


def kernels_in(directory: str) -> tuple[int, int] | None:
    """The number of kernels in a directory on this machine, and their bytes; None without a directory."""
    if not directory:
        return None
    from ....streams.cuda.kernel_cache import cached_kernels

    cached = cached_kernels(Path(directory))
    return cached.kernels, cached.nbytes

"""A trace: the records of one recording, in the order of their admission, and what can be asked of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ...interpreter.errors import ProtocolError
from .record import Record

if TYPE_CHECKING:
    from .graph import Graph
    from .verify import Problem


class Trace:
    """Records sorted by admission. `dropped` is how many the ring had lost before the oldest of them, `base_tick` the
    tick before which records may be missing, `devices` the names of the machine's devices (by default those that
    the records mention).

    The tools import this class, so the methods that lead to them import late.
    """

    __slots__ = ("_by_id", "base_tick", "devices", "dropped", "records")

    def __init__(
        self, records: Iterable[Record], *, devices: Iterable[str] = (), dropped: int = 0, base_tick: int = 0
    ) -> None:
        self.records = tuple(sorted(records, key=lambda record: (record.admitted, record.id)))
        self.devices = tuple(devices) or tuple(sorted({record.device for record in self.records}))
        self.dropped = dropped
        self.base_tick = base_tick
        self._by_id = {record.id: record for record in self.records}

    def __len__(self) -> int:
        return len(self.records)

    def find(self, instruction: int) -> Record | None:
        """The record of an instruction, or None: it was lost from the ring, or never was."""
        return self._by_id.get(instruction)

    def require(self, instruction: int) -> Record:
        """The record of an instruction. Raises ProtocolError, saying which ids there are."""
        record = self._by_id.get(instruction)
        if record is None:
            raise ProtocolError(f"the trace has no instruction #{instruction}: {self._extent()}")
        return record

    def _extent(self) -> str:
        if not self.records:
            return "it is empty"
        lost = f", and lost {self.dropped} before them" if self.dropped else ""
        return f"it holds {len(self)} between #{min(self._by_id)} and #{max(self._by_id)}{lost}"

    def save(self, path: str | Path) -> None:
        """Write the trace to a file; raises OSError."""
        from .file import save

        save(self, path)

    @staticmethod
    def load(path: str | Path) -> Trace:
        """Read a trace from a file. Raises OSError, or ProtocolError naming the line if the file is damaged."""
        from .file import load

        return load(path)

    def graph(self) -> Graph:
        """The logical DAG, for people."""
        from .graph import build

        return build(self)

    def verify(self) -> list[Problem]:
        """Everything in which the records contradict each other; empty if the engine did its work."""
        from .verify import verify

        return verify(self)

"""The texts and streams of a view, each stored once, and rows of numbers that refer to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from .....interpreter.opcodes import Opcode, traits_of
from ...record import Record, times
from ..advice.finding import FORCED
from ..graphs.graph import Dependence, Mark
from ..recorded.derived import operands_text, touched
from ..recorded.text import compiles, status, stream_name

Row: TypeAlias = list[int | None]

KINDS: Final = {"kernel": "kernel", "routine": "kernel", "transfer": "transfer", "copy": "transfer", "link": "transfer"}
_SAME: Final = frozenset({"collective", "access", "release", "barrier"})


def kind_of(record: Record) -> str:
    """The kind of an instruction, which determines its colour on the page."""
    if record.opcode == Opcode.TRANSFER and record.op.startswith(FORCED):
        return "eviction"
    category = traits_of(record.opcode).category
    return category if category in _SAME else KINDS.get(category, "other")


class PageTables:
    """Texts and streams by number. Text 0 is empty. `origin`: the time that becomes 0, in nanoseconds."""

    def __init__(self, origin: int) -> None:
        self.origin = origin
        self._texts: dict[str, int] = {"": 0}
        self._streams: dict[tuple[str, str], int] = {}
        self._known: dict[tuple[object, ...], tuple[int, int]] = {}

    @property
    def texts(self) -> list[str]:
        return list(self._texts)

    @property
    def streams(self) -> list[list[str]]:
        return [[device, stream_name(device, stream)] for device, stream in self._streams]

    def text(self, text: str) -> int:
        """The number of a text."""
        return self._texts.setdefault(text, len(self._texts))

    def time(self, stamp: int) -> int | None:
        """Nanoseconds since the origin; None for a stage that was not reached."""
        return stamp - self.origin if stamp else None

    def row(self, record: Record, *, critical: bool) -> Row:
        """The row of a record, with its fields in the order that the page's scripts expect."""
        about, nbytes = self._about(record)
        return [
            record.id,
            record.session,
            record.caused_by,
            self._stream(record),
            self.text(kind_of(record)),
            self.text(record.op or record.opcode),
            about,
            self.text(f"{status(record)}, compiling" if compiles(record) else status(record)),
            *map(self.time, times(record)),
            self.text(record.location),
            self.text("/".join(record.span)),
            nbytes,
            self.text(record.error),
            int(critical),
        ]

    def edge(self, edge: Dependence) -> Row:
        return [edge.target, edge.source, self.text(edge.reason), self.text(edge.mark)]

    def _stream(self, record: Record) -> int:
        return self._streams.setdefault((record.device, record.stream), len(self._streams))

    def _about(self, record: Record) -> tuple[int, int]:
        """The text of a record's metas, and its bytes. Many records of a trace share these, so they are cached."""
        key = (record.inputs, record.outputs, record.attributes, record.nbytes)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self.text(operands_text(record)), touched(record)
        return found


def own_edges(records: Sequence[Record]) -> Iterator[Dependence]:
    """The edges that the engine made, also to instructions that are not among these records.

    Dependences that were met at admission cannot be derived without the earlier records.
    """
    for record in records:
        for source, reason, copy, elided in record.edges:
            yield Dependence(source, record.id, reason, copy, Mark.ELIDED if elided else Mark.WAITED)


def rows_of(tables: PageTables, records: Iterable[Record], critical: Iterable[int]) -> list[Row]:
    marked = set(critical)
    return [tables.row(record, critical=record.id in marked) for record in records]

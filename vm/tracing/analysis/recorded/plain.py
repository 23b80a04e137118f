"""A record with names for all its fields, for programs."""

from __future__ import annotations

from ...record import Record
from .phases import ran
from .volume import of, operations, touched


def as_dict(record: Record) -> dict[str, object]:
    """Every field, the parts of operands, edges and metas named; also what follows from them: a text of what it is of,
    bytes touched, floating-point operations (0 if unknown), and how long it ran in nanoseconds."""
    fields: dict[str, object] = record._asdict()
    for name in ("operands", "edges", "inputs", "outputs"):
        fields[name] = [part._asdict() for part in getattr(record, name)]
    fields["part"] = None if record.part is None else record.part._asdict()
    return fields | {
        "of": of(record),
        "touched": touched(record),
        "operations": operations(record),
        "ran": ran(record),
    }

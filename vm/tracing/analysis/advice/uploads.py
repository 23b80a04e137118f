"""Uploads in loops: a line uploads values of the same shape and dtype to the same device, at least `OFTEN` times.

Uploads whose tensors are written to do not count. A trace contains no values, so the reader has to decide whether the
values are the same. Cost: all uploads but the first, minus the time in which the device computed at the same time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final

from ...record import Record
from .finding import Evidence, Finding, finding, is_upload, written_by

OFTEN: Final = 8


def uploads_in_loops(evidence: Evidence) -> Iterator[Finding]:
    """Lines that may upload the same value repeatedly."""
    writes = Counter(copy for record in evidence.records for copy in written_by(record))
    groups: dict[tuple[object, ...], list[Record]] = defaultdict(list)
    for record in evidence.records:
        if is_upload(record) and all(writes[copy] == 1 for copy in written_by(record)):
            groups[record.session, record.location, record.device, record.outputs].append(record)
    for records in groups.values():
        if len(records) >= OFTEN:
            yield finding("uploads in a loop", [(record, evidence.exposed(record)) for record in records[1:]])

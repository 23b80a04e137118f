"""Kernels that are compiled, or loaded, in the middle of work.

Cost: the duration of these calls, minus the median duration of the calls of the same op on the same device that did not
compile.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from statistics import median_low

from ...record import Record
from ..recorded.derived import ran
from ..recorded.text import compiles
from .finding import Evidence, Finding, finding


def kernels_compiled(evidence: Evidence) -> Iterator[Finding]:
    """Devices that compile while they work."""
    warm: dict[tuple[str, str], list[int]] = defaultdict(list)
    cold: dict[str, list[Record]] = defaultdict(list)
    for record in evidence.records:
        if compiles(record):
            cold[record.device].append(record)
        else:
            warm[record.op, record.device].append(ran(record))
    usual = {key: median_low(times) for key, times in warm.items()}
    for device, records in cold.items():
        costs = [(record, max(0, ran(record) - usual.get((record.op, device), 0))) for record in records]
        yield finding("compiling", costs)

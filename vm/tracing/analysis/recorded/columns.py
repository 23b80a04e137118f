"""Records as columns, for NumPy and pandas: one row per record.

Texts are objects, numbers are 64-bit integers, times are nanoseconds of the trace's clock (0: never reached).
`blocked`, `queued` and `ran` are the differences of times that the tools show; `of`, `touched` and `operations`
follow from the metas. Operands, edges and metas are only in the records; the column `edges` is the number of edges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ...record import Record
from .derived import blocked, operands_text, operations, queued, ran, touched

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

_TEXT, _NUMBER = "O", "i8"
_TIMES = ("received", "ready", "dispatched", "started", "finished")


COLUMNS: dict[str, tuple[str, Callable[[Record], Any]]] = {
    "id": (_NUMBER, attrgetter("id")),
    "session": (_NUMBER, attrgetter("session")),
    "caused_by": (_NUMBER, attrgetter("caused_by")),
    "opcode": (_TEXT, attrgetter("opcode")),
    "op": (_TEXT, attrgetter("op")),
    "of": (_TEXT, operands_text),
    "status": (_TEXT, attrgetter("status")),
    "device": (_TEXT, attrgetter("device")),
    "stream": (_TEXT, attrgetter("stream")),
    "span": (_TEXT, lambda record: "/".join(record.span)),
    "location": (_TEXT, attrgetter("location")),
    "error": (_TEXT, attrgetter("error")),
    "held": (_TEXT, attrgetter("held")),
    "edges": (_NUMBER, lambda record: len(record.edges)),
    **{name: (_NUMBER, attrgetter(name)) for name in ("admitted", "erased", *_TIMES)},
    "blocked": (_NUMBER, blocked),
    "queued": (_NUMBER, queued),
    "ran": (_NUMBER, ran),
    "nbytes": (_NUMBER, attrgetter("nbytes")),
    "touched": (_NUMBER, touched),
    "operations": (_NUMBER, operations),
    "work": (_NUMBER, attrgetter("work")),
    "used": (_NUMBER, attrgetter("used")),
}


def to_numpy(records: Sequence[Record]) -> NDArray[np.void]:
    """The records as a structured array with the fields of `COLUMNS`."""
    import numpy as np

    found = np.empty(len(records), [(name, kind) for name, (kind, _) in COLUMNS.items()])
    for name, (_, value) in COLUMNS.items():
        found[name] = [value(record) for record in records]
    return found


def to_pandas(records: Sequence[Record]) -> pd.DataFrame:
    """The records as a DataFrame with the columns of `COLUMNS`. Raises ImportError if pandas is not installed."""
    try:
        import pandas as pd
    except ImportError:
        raise ImportError("to_pandas needs pandas, which is not installed; to_numpy does not need it") from None
    return pd.DataFrame({name: [value(record) for record in records] for name, (_, value) in COLUMNS.items()})

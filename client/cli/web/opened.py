"""A trace file that is shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from ....interpreter.types.sizes import size
from .source import Polled, UnknownError

LARGEST: Final = 64 << 20  # bytes of a file that are read; as records they take some ten times as many

Row = dict[str, Any]


class OpenedTrace:
    """A file. Raises OSError, or ProtocolError if it is damaged, or no trace that this version reads. `note`: the
    omitted part, "" if there is none.
    """

    live = False

    def __init__(self, file: Path, largest: int = LARGEST) -> None:
        from ....vm.tracing.analysis.files.trace_file import load_newest
        from ....vm.tracing.analysis.page.view import DaemonState, view_of
        from ....vm.tracing.analysis.trace import Trace

        self._file = file
        self._trace, total = load_newest(file, Trace, largest)
        self.note = ""
        if len(self._trace) < total:
            left = (
                f"{total - len(self._trace):,} older records are left out, since the file has more than {size(largest)}"
            )
            self.note = f"{left}; its checksum was not compared"
        self._view: Row = view_of(self._trace, file.name, DaemonState(of=total, note=self.note))
        self._text = json.dumps(self._view, separators=(",", ":"))

    def about(self) -> Row:
        return {"run": 1, "message": " ".join(filter(None, (str(self._file), self.note)))}

    def poll(self) -> Polled:
        raise UnknownError("a file has no new records")

    def history(self) -> str:
        return self._text

    def refresh(self) -> None: ...

    def rest(self) -> None: ...

    def why(self, instruction: int) -> str:
        if self._trace.find(instruction) is None:
            raise UnknownError(f"{self._file.name} has no record of #{instruction}")
        return self._trace.why(instruction)

    def tensor(self, id_: int, session: int) -> Row:
        for row in self._view["tensors"]:
            if (row["id"], row["session"]) == (id_, session):
                where = dict.fromkeys(row["where"], "valid")
                return {"tensor": {**row, "residency": where, "holders": [{"session": session, "id": id_}]}}
        raise UnknownError(f"{self._file.name} has no copy {id_} of session {session} among its largest")

    def advice(self) -> Row:
        return {"advice": self._view["advice"], "records": len(self._trace), "missed": self._trace.dropped}

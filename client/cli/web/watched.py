"""A daemon that is watched: samples of its newest records, and of its tensors and sessions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from ....interpreter.errors import ProtocolError
from ..daemon.ask import questions
from ..daemon.reconnecting import Connect, ReconnectingQuestions
from .pace import PollingPace, rare_pause
from .source import Polled, UnknownError
from .window import Window

if TYPE_CHECKING:
    from ....vm.tracing.analysis.files.parts import RingSnapshot
    from ....vm.tracing.analysis.trace import Trace

TENSORS: Final = 500

Row = dict[str, Any]


class WatchedDaemon:
    """Successive daemons at an address. A view counts time from the first record of its daemon."""

    live = True

    def __init__(
        self, address: str | None, *, clock: Callable[[], float] = monotonic, connect: Connect = questions
    ) -> None:
        self._clock = clock
        self._connection = ReconnectingQuestions(address, connect)
        self._greeted = 0  # the number of the connection on which the daemon has identified itself
        self._daemon: tuple[object, ...] = ()
        self._run = 0
        self._due = self._rarely = 0.0
        self._tensors: Sequence[Row] = ()
        self._sessions: Sequence[Row] = ()
        self._names: dict[int, str] = {}
        self._limits: dict[str, int] = {}
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._window = Window()
        self._pace = PollingPace()
        self._since = 0
        self._origin: int | None = None
        self._rarely = 0.0

    def greet(self) -> None:
        """Ask the daemon to identify itself, if the connection is new. Ids and times of another daemon begin anew.
        ProtocolError if it keeps no trace."""
        status = self._connection.ask("status")
        if not status["trace"]["enabled"]:
            raise ProtocolError("this daemon keeps no trace; start it with tracing on")
        if self._daemon != (status["pid"], self._connection.where):
            self._daemon = status["pid"], self._connection.where
            self._run += 1
            self._begin_anew()
        self._limits = {name: row["limit"] or 0 for name, row in status["devices"].items()}
        self._greeted = self._connection.made

    def about(self) -> Row:
        return {"run": self._run, "message": f"watching {self._connection.where}"}

    def poll(self) -> Polled:
        """A view of the news."""
        picture = self._sample()
        began = self._clock()
        rows = self._look_around(picture.records) if began >= self._rarely else (None, None)
        count = self._window.add(picture)
        pause = self._pace.after(picture.spent / 1e9, full=count + picture.live > len(picture.records))
        self._due = self._clock() + pause
        return Polled(self._view(_trace_of(picture), count, picture.live, *rows), pause)

    def _sample(self) -> RingSnapshot:
        from ....vm.tracing.analysis.files.parts import read_parts

        while True:
            if not self._connection.is_open or self._greeted != self._connection.made:
                self.greet()
            picture = read_parts([self._connection.ask("recent", self._since, self._pace.most)])
            if self._greeted == self._connection.made:  # otherwise another daemon may have answered
                self._since = picture.tick
                return picture

    def _look_around(self, records: Sequence[Any]) -> tuple[Sequence[Row], Sequence[Row]]:
        """Figures that need a scan of all tensors and sessions of the daemon, and so are asked for rarely."""
        began = self._clock()
        tensors, sessions = self._connection.ask("tensors", TENSORS), self._connection.ask("sessions")
        ended = self._clock()
        self._rarely = ended + rare_pause(ended - began)
        running = Counter(record.session for record in records if record.started and not record.erased)
        self._tensors = tensors
        self._names = {row["id"]: row["name"] for row in sessions}
        known = self._window.counts()
        self._sessions = [session_row(row, known[row["id"]], running[row["id"]]) for row in sessions if not row["asks"]]
        return self._tensor_rows(), self._sessions

    def _tensor_rows(self) -> list[Row]:
        return [tensor_row(row, self._names.get(row["session"], "")) for row in self._tensors]

    def _view(
        self, trace: Trace, of: int, live: int, tensors: Sequence[Row] | None, sessions: Sequence[Row] | None
    ) -> str:
        from ....vm.tracing.analysis.page.view import DaemonState, live_view, origin_of

        if self._origin is None:
            self._origin = origin_of(trace)
        known = DaemonState(of, live, self._limits, tensors, sessions, self._run)
        view = live_view(trace, self._connection.where, self._origin, known)
        return json.dumps(view, separators=(",", ":"))

    def history(self) -> str | None:
        trace = self._window.trace()
        if trace is None:
            return None
        rows = self._tensor_rows(), self._sessions
        return self._view(trace, self._window.finished + trace.dropped, self._window.live, *rows)

    def refresh(self) -> None:
        if self._clock() >= self._due:
            self.poll()

    def rest(self) -> None:
        self._connection.close()

    def why(self, instruction: int) -> str:
        trace = self._known()
        if trace.find(instruction) is None:
            raise UnknownError(f"#{instruction} is not among the newest {len(trace)} records that were shown")
        return trace.why(instruction, depth=4)

    def tensor(self, id_: int, session: int) -> Row:
        """A tensor, and the other holders of its storage."""
        row = next((row for row in self._tensors if (row["id"], row["session"]) == (id_, session)), None)
        if row is None:
            raise UnknownError(f"tensor {id_} of session {session} is not among the {TENSORS} largest")
        others = [
            {"session": one["session"], "id": one["id"]}
            for one in self._tensors
            if one["storage"] and one["storage"] == row["storage"]
        ]
        return {"tensor": {**row, "holders": others or [{"session": session, "id": id_}]}}

    def advice(self) -> Row:
        from ....vm.tracing.analysis.page.sums import advice_on

        trace = self._known()
        return {"advice": advice_on(trace), "records": len(trace), "missed": trace.dropped}

    def _known(self) -> Trace:
        trace = self._window.trace()
        if trace is None:
            raise UnknownError("nothing was recorded yet")
        return trace


def _trace_of(picture: RingSnapshot) -> Trace:
    from ....vm.tracing.analysis.trace import Trace

    return Trace(picture.records, devices=picture.devices, taken=picture.taken, memory=picture.memory)


def tensor_row(row: Mapping[str, Any], name: str) -> Row:
    """A tensor of the daemon, as the page lists it. `name`: of the session that holds it."""
    return {
        "session": row["session"],
        "id": row["id"],
        "name": ", ".join(row["names"]),
        "holder": f"session {row['session']} {name}".rstrip() if row["session"] else "names alone",
        "bytes": row["storage_bytes"],
        "of": row["of"],
        "where": [device for device, state in row["residency"].items() if state == "valid"],
        "location": row["location"],
        "error": row["error"],
    }


def session_row(row: Mapping[str, Any], records: int, running: int) -> Row:
    """A session of the daemon, as the page lists it. `records`: its known records; `running`: its running
    instructions."""
    return {
        "id": row["id"],
        "name": row["name"],
        "records": records,
        "running": running,
        "waiting": max(0, row["live"] + row["pending"] - running),
        "bytes": row["bytes"],
    }

"""Records what a daemon does: polls for newly finished instructions, and writes their records to a file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....interpreter.errors import ConnectionLost, ProtocolError, TensordError
from ..daemon.health import PATIENCE
from ..drawing.figures import count, duration, plural, size
from ..drawing.terminal import StatusLine

if TYPE_CHECKING:
    from ....vm.tracing.analysis.files.parts import RingSnapshot
    from ....vm.tracing.analysis.files.trace_writer import TraceWriter
    from ....vm.tracing.record import RunRecord
    from ...recording.recorder import ValueRecorder

_PAUSE = 0.05  # seconds between two polls while little happens
_PROGRESS = 0.2  # seconds between two progress lines
_NEVER = 1 << 62  # a tick that no machine reaches


class Stop:
    """A signal handler: the first signal sets `asked`, the second one raises KeyboardInterrupt."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self, *_: object) -> None:
        """Handle a signal."""
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def sleep(self, duration: float) -> None:
        """Sleep for `duration` seconds, or until a signal comes."""
        until = time.monotonic() + duration
        while not self.asked and (rest := until - time.monotonic()) > 0:
            time.sleep(min(rest, 0.05))


class TraceRecorder:
    """Polls a daemon for newly finished instructions, and writes their records to a file."""

    def __init__(self, session: Any, output: Path, *, show: bool) -> None:
        from ....vm.tracing.analysis.files.trace_writer import TraceWriter

        self.session = session
        self.named = output  # the file's name in messages
        self.line = StatusLine() if show else None
        self.until: float | None = None  # when the recording ends, even if the daemon does not answer
        self.last = self.ask(_NEVER, live=False, routines=0)
        if not self.last.enabled:
            raise ProtocolError("this daemon does not trace: start it with tracing on")
        self.before = self.last.retired
        self.base_tick = 0
        self.routines = {routine.number: routine for routine in self.last.routines}
        self.runs: list[RunRecord] = []
        self.lost = 0
        self.shown = 0.0
        self.values: ValueRecorder | None = None
        self.file: TraceWriter = TraceWriter(output, self.last.devices)

    def ask(self, since: int, *, live: bool, routines: int | None = None) -> RingSnapshot:
        """Ask for the records of instructions that finished after the tick `since`, with `live` also of live ones,
        and for routines that changed after that tick, or after `routines`."""
        from ....vm.tracing.analysis.files.parts import read_parts

        known = since if routines is None else routines
        rest = None if self.until is None else max(self.until - time.monotonic(), 0.0) + PATIENCE
        return read_parts([self.session._core.answers.query("trace", since, live, known, timeout=rest)])

    def run(self, stop: Stop, length: float | None) -> None:
        """Record until a signal comes, or for `length` seconds.

        TensordError if the recording ends early; the file is complete even then.
        """
        began = time.monotonic()
        self.until = None if length is None else began + length
        with self.file:
            try:
                while not (stop.asked or self.is_full()) and (length is None or time.monotonic() - began < length):
                    busy = self.take(live=False) > self.last.capacity // 8
                    self.progress(time.monotonic() - began)
                    rest = _PAUSE if length is None else min(_PAUSE, began + length - time.monotonic())
                    stop.sleep(0 if busy else rest)
                self.take(live=True)
            except KeyboardInterrupt:
                return
            except Exception as error:
                raise self.ended_early(error) from error
            finally:
                self.finish()

    def take(self, *, live: bool) -> int:
        """Write the new records. Returns the number of newly finished instructions."""
        if self.values is not None:
            self.values.take()
        picture = self.ask(self.last.tick, live=live)
        finished = picture.finished
        missed = picture.retired - self.last.retired - finished
        if missed > 0:
            self.lost += missed
            self.base_tick = min((r.erased for r in picture.records if r.erased), default=picture.tick)
        self.last = picture
        self.routines |= {routine.number: routine for routine in picture.routines}
        self.runs += picture.runs
        self.file.add(picture.records)
        return finished

    def is_full(self) -> bool:
        """Return whether a recording of values has reached its limit."""
        return self.values is not None and self.values.full

    def finish(self) -> None:
        """Complete the file. Instructions that finished before the recording do not count as lost."""
        from ....vm.tracing.analysis.recorded.records import Records

        if self.line is not None:
            self.line.clear()
        about = Records(
            (),
            dropped=self.lost,
            before=self.before,
            base_tick=self.base_tick,
            taken=self.last.taken,
            memory=self.last.memory,
            routines=self.routines.values(),
            runs=self.runs,
        )
        self.file.finish(about)

    def ended_early(self, error: Exception) -> TensordError:
        """The error that ended the recording, with a note on the records in the file."""
        what = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        contents = f"{self.named} holds the {plural(self.file.records, 'record')} before that"
        kind = ConnectionLost if isinstance(error, ConnectionLost) else TensordError
        return kind(f"the recording ended early: {what}. {contents}, and is a complete trace")

    def progress(self, elapsed: float) -> None:
        """Redraw the progress line, at most every `_PROGRESS` seconds."""
        if self.line is not None and time.monotonic() - self.shown > _PROGRESS:
            self.shown = time.monotonic()
            text = f"{plural(self.file.records, 'record')}, {count(self.lost)} lost, {size(self.file.nbytes)}"
            self.line.draw(f"{text}, {duration(round(elapsed, 1))}; Ctrl-C ends it")

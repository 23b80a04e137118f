"""`tensord trace dump` and `trace record`: what a running daemon does, saved as a trace file.

The daemon keeps the last 16,384 finished instructions. `dump` saves those; `record` polls for newly finished ones, so
that a file can hold more. Instructions that the daemon drops between two polls are lost and counted.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ....interpreter.errors import ConnectionLost, ProtocolError, TensordError
from ..daemon.ask import connected
from ..daemon.health import PATIENCE
from ..drawing.figures import count, duration, plural, size
from ..drawing.terminal import Line
from ..line import options
from ..line.output import in_json, print_json
from .source import load

if TYPE_CHECKING:
    from ....vm.tracing.analysis.files.parts import Picture
    from ....vm.tracing.analysis.files.recording import Recording
    from ....vm.tracing.analysis.trace import Trace
    from ....vm.tracing.inside import RunRecord
    from ....vm.tracing.record import Record

_PAUSE = 0.05  # seconds between two polls while little happens
_PROGRESS = 0.2  # seconds between two progress lines
_NEVER = 1 << 62  # a tick that no machine reaches
_UNITS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}


def seconds(text: str) -> float | None:
    """A duration in seconds; None for a text that is none."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h)?", text.strip())
    return None if found is None else float(found[1]) * _UNITS[found[2] or "s"]


class Seconds(click.ParamType[float]):
    """A duration: `10s`, `500ms`, `2min`, `1h`, or seconds without a unit."""

    name = "time"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The duration in seconds. BadParameter if it is none."""
        found = seconds(value)
        if found is None:
            self.fail(f"{value!r} is no duration; write it like 10s, 500ms or 2min", param, ctx)
        return found


class Since(click.ParamType["float | int"]):
    """Where a dump begins: a float is seconds before it is taken (`10s`), an integer an instruction (`4711`)."""

    name = "time|id"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> float | int:
        """The number. BadParameter if the text is neither a duration with its unit nor an id."""
        if value.removeprefix("#").isdecimal():
            return int(value.removeprefix("#"))
        found = seconds(value)
        if found is None or value.strip()[-1].isdecimal():
            self.fail(f"{value!r} is neither a time like 10s, 500ms or 2min, nor the id of an instruction", param, ctx)
        return found


@click.command()
@click.option("-o", "--output", type=options.FILE, default="tensord.trace", help="The file to write.")
@click.option("--session", type=int, help="Only this session, with what the machine planned for it.")
@click.option("--since", type=Since(), help="Only what ended in that time, such as 10s; or from this instruction on.")
@options.address
@options.as_json
def dump(output: Path, session: int | None, since: float | None, address: str | None) -> None:
    """Save the trace that the daemon has in its ring, or a part of it.

    The ring holds the last 16,384 finished instructions, unless configured otherwise; the live ones are saved, too.

    Example: tensord trace dump -o run.trace --since 10s
    """
    trace = _part(load(None, address), session, since)
    trace.save(output)
    written = output.stat().st_size if output.is_file() else 0
    report(output, len(trace), trace.dropped, written, which="older ones ")


def _part(trace: Trace, session: int | None, since: float | None) -> Trace:
    """What a dump is of."""
    from ....vm.tracing.analysis.recorded.filter import Filter, since_instruction, since_time

    found: Sequence[Record] = trace.records
    if since is not None:
        found = since_instruction(trace, since) if isinstance(since, int) else since_time(trace, round(since * 1e9))
    if session is not None:
        mine = {record.id for record in Filter(session=session).select(trace.records)}
        found = [record for record in found if record.id in mine]
    return trace if found is trace.records else trace.only(found)


@click.command()
@click.option("-o", "--output", type=options.FILE, required=True, help="The file to write.")
@options.address
@click.option("--for", "length", type=Seconds(), help="Stop after this time, such as 10s or 2min.")
@click.option(
    "--detail",
    type=click.IntRange(min=1),
    is_flag=False,
    flag_value=1,
    help="Time each call inside of a routine's runs, of every Nth run: --detail=10.",
)
@options.as_json
def record(output: Path, address: str | None, length: float | None, detail: int | None) -> None:
    """Record what the daemon does, until Ctrl-C.

    Or until the given time is over. The file is complete however the recording ends.

    Example: tensord trace record -o run.trace --for 10s
    """
    if output.exists() and not output.is_file():
        raise ProtocolError(f"{output} is no regular file; record into one, or use `tensord trace dump`")
    with connected(address) as session, _stop_signals() as stop:
        recorder = Recorder(session, output, show=not in_json())
        if detail is not None:
            session._core.answers.query("detail", detail, True)
        recorder.run(stop, length)
    report(output, recorder.file.records, recorder.lost, output.stat().st_size)


def report(output: Path, records: int, lost: int, written: int, which: str = "") -> None:
    """Say what a file has now."""
    if in_json():
        print_json({"file": str(output), "records": records, "lost": lost, "bytes": written})
        return
    missing = f"; {count(lost)} {which}lost" if lost else ""
    click.echo(f"{plural(records, 'record')} in {output}, {size(written)}{missing}")


class Stop:
    """Set by the first signal; the second signal raises KeyboardInterrupt."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self, *_: object) -> None:
        """The signal handler."""
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def sleep(self, duration: float) -> None:
        """Sleep for `duration` seconds, or until asked to stop."""
        until = time.monotonic() + duration
        while not self.asked and (rest := until - time.monotonic()) > 0:
            time.sleep(min(rest, 0.05))


@contextmanager
def _stop_signals() -> Iterator[Stop]:
    """Have SIGINT, SIGTERM and SIGHUP end the recording instead of the process."""
    stop = Stop()
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Recorder:
    """Polls a daemon for newly finished instructions, and writes their records to a file."""

    def __init__(self, session: Any, output: Path, *, show: bool) -> None:
        from ....vm.tracing.analysis.files.recording import Recording

        self.session = session
        self.line = Line() if show else None
        self.until: float | None = None  # when it is to end, whether the daemon answers or not
        self.last = self.ask(_NEVER, live=False, routines=0)
        if not self.last.enabled:
            raise ProtocolError("this daemon keeps no trace; start it with tracing on")
        self.before = self.last.retired
        self.base_tick = 0
        self.routines = {routine.number: routine for routine in self.last.routines}
        self.runs: list[RunRecord] = []
        self.lost = 0
        self.shown = 0.0
        self.file: Recording = Recording(output, self.last.devices)

    def ask(self, since: int, *, live: bool, routines: int | None = None) -> Picture:
        """The records of instructions that finished since that tick, and with `live` of the live ones; and what is new
        of routines since that tick, or since another one."""
        from ....vm.tracing.analysis.files.parts import read_parts

        known = since if routines is None else routines
        rest = None if self.until is None else max(self.until - time.monotonic(), 0.0) + PATIENCE
        return read_parts([self.session._core.answers.query("trace", since, live, known, timeout=rest)])

    def run(self, stop: Stop, length: float | None) -> None:
        """Record until asked to stop, or for `length` seconds. TensordError if it ends early; the file is complete."""
        began = time.monotonic()
        self.until = None if length is None else began + length
        with self.file:
            try:
                while not stop.asked and (length is None or time.monotonic() - began < length):
                    busy = self.take(live=False) > self.last.capacity // 8
                    self.progress(time.monotonic() - began)
                    rest = _PAUSE if length is None else min(_PAUSE, began + length - time.monotonic())
                    stop.sleep(0 if busy else rest)
                self.take(live=True)
            except KeyboardInterrupt:
                self.finish()
            except Exception as error:
                self.finish()
                raise self.ended_early(error) from error
            else:
                self.finish()

    def take(self, *, live: bool) -> int:
        """Write the new records; returns the number of newly finished instructions."""
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

    def finish(self) -> None:
        """Complete the file; instructions that finished before the recording began are no losses."""
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
        """The error, with a sentence about what the file holds."""
        what = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        kept = f"{self.file.path} holds the {plural(self.file.records, 'record')} until then"
        kind = ConnectionLost if isinstance(error, ConnectionLost) else TensordError
        return kind(f"the recording ended early: {what}. {kept}, and is a whole trace")

    def progress(self, elapsed: float) -> None:
        """Update the progress line, if the last update is old enough."""
        if self.line is not None and time.monotonic() - self.shown > _PROGRESS:
            self.shown = time.monotonic()
            text = f"{plural(self.file.records, 'record')}, {count(self.lost)} lost, {size(self.file.nbytes)}"
            self.line.draw(f"{text}, {duration(round(elapsed, 1))}; Ctrl-C ends it")

"""`tensord trace dump` and `trace record`: save what a running daemon does in a trace file.

The daemon keeps the last 16,384 finished instructions. `dump` saves these; `record` polls for newly finished ones,
so its file can hold more. Instructions that the daemon drops between two polls are lost, and their number is
recorded.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ....interpreter.errors import ProtocolError
from ....interpreter.whole_file import partial_of
from ..daemon.ask import connected
from ..drawing.figures import count, plural, size
from ..line import options
from ..line.options import in_json, print_json
from .recorded_values import ByteSize, ValueOptions, facts_of, print_values, recording_values
from .recorder import Stop, TraceRecorder
from .source import all_nodes, load

if TYPE_CHECKING:
    from ....vm.tracing.analysis.trace import Trace
    from ....vm.tracing.record import Record
    from ...recording.recorder import ValueRecorder


_UNITS: Final = {"ms": 1e-3, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}


def seconds(text: str) -> float | None:
    """Parse a duration, to seconds. None if the text is not a duration."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h)?", text.strip())
    return None if match is None else float(match[1]) * _UNITS[match[2] or "s"]


class Seconds(click.ParamType[float]):
    """A duration: `10s`, `500ms`, `2min`, `1h`, or seconds without a unit."""

    name = "time"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The duration in seconds. BadParameter if the text is not a duration."""
        converted = seconds(value)
        if converted is None:
            self.fail(f"{value!r} is not a duration; write it like 10s, 500ms or 2min", param, ctx)
        return converted


class Since(click.ParamType["float | int"]):
    """The beginning of a dump: a float is a number of seconds before the dump (`10s`), an integer is an instruction
    (`4711`)."""

    name = "time|id"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> float | int:
        """The number. BadParameter if the text is neither a duration with a unit nor an id."""
        if value.removeprefix("#").isdecimal():
            return int(value.removeprefix("#"))
        converted = seconds(value)
        if converted is None or value.strip()[-1].isdecimal():
            self.fail(f"{value!r} is neither a time like 10s, 500ms or 2min, nor the id of an instruction", param, ctx)
        return converted


@click.command()
@click.option("-o", "--output", type=options.FILE, default="tensord.trace", help="The file to write.")
@click.option(
    "--session", type=int, help="Only this session, with the transfers and copies that the machine planned for it."
)
@click.option(
    "--since",
    type=Since(),
    help="Only instructions that ended in the last 10s, for example; or those from this instruction on.",
)
@options.address
@all_nodes
@options.as_json
def dump(output: Path, session: int | None, since: float | None, address: str | None) -> None:
    """Save the daemon's recent trace, or a part of it.

    The daemon keeps the last 16,384 finished instructions, unless configured otherwise. Live instructions are saved,
    too.

    Example: tensord trace dump -o run.trace --since 10s
    """
    trace = _part(load(None, address), session, since)
    trace.save(output)
    written = output.stat().st_size if output.is_file() else 0
    report(output, len(trace), trace.dropped, written, which="older ones ")


def _part(trace: Trace, session: int | None, since: float | None) -> Trace:
    from ....vm.tracing.analysis.recorded.filter import Filter, since_instruction, since_time

    records: Sequence[Record] = trace.records
    if since is not None:
        records = since_instruction(trace, since) if isinstance(since, int) else since_time(trace, round(since * 1e9))
    if session is not None:
        mine = {record.id for record in Filter(session=session).select(trace.records)}
        records = [record for record in records if record.id in mine]
    return trace if records is trace.records else trace.only(records)


@click.command()
@click.option("-o", "--output", type=options.FILE, required=True, help="The file to write.")
@options.address
@click.option("--for", "length", type=Seconds(), help="Stop after this time, such as 10s or 2min.")
@click.option(
    "--detail",
    type=click.IntRange(min=1),
    is_flag=False,
    flag_value=1,
    help="Record the time of each call inside a routine, in every Nth run: --detail=10.",
)
@click.option(
    "--values", is_flag=True, help="Record messages and values, too, for `trace replay`. The file then holds your data."
)
@click.option(
    "--session",
    "sessions",
    type=int,
    multiple=True,
    help="Only the values of this session; may be given several times.",
)
@click.option(
    "--limit",
    type=ByteSize(),
    default=1 << 30,
    show_default="1GiB",
    help="The largest size of a recording with values; it ends when the file has this size.",
)
@click.option(
    "--without",
    multiple=True,
    metavar="NAME",
    help="Leave out the values of tensors with this name or from this line, or a pattern such as 'weights/*'.",
)
@options.as_json
def record(output: Path, address: str | None, length: float | None, detail: int | None, **chosen: Any) -> None:
    """Record what the daemon does, until Ctrl-C.

    With --for, the recording ends after that time. The file is complete however the recording ends.

    Example: tensord trace record -o run.trace --for 10s
    """
    if output.exists() and not output.is_file():
        raise ProtocolError(f"{output} is not a regular file; record into one, or use `tensord trace dump`")
    values = ValueOptions(**chosen)
    if not values.values and (values.sessions or values.without):
        raise click.BadParameter("--session and --without need --values")
    with connected(address) as session, _stop_signals() as stop:
        written = partial_of(output) if values.values else output
        recorder = TraceRecorder(session, written, show=not in_json())
        recorder.named = output
        if detail is not None:
            session._core.answers.query("detail", detail, True)
        with recording_values(session, recorder, output, values) as written_values:
            recorder.run(stop, length)
    report(output, recorder.file.records, recorder.lost, output.stat().st_size, values=written_values)


def report(
    output: Path, records: int, lost: int, written: int, which: str = "", values: ValueRecorder | None = None
) -> None:
    if in_json():
        print_json({"file": str(output), "records": records, "lost": lost, "bytes": written, **facts_of(values)})
        return
    missing = f"; {count(lost)} {which}lost" if lost else ""
    click.echo(f"{plural(records, 'record')} in {output}, {size(written)}{missing}")
    print_values(output, values)


@contextmanager
def _stop_signals() -> Iterator[Stop]:
    """Make SIGINT, SIGTERM and SIGHUP end the recording instead of the process."""
    stop = Stop()
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

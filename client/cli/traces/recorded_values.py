"""`tensord trace record --values`: records messages and values with the records, and warns that the file holds data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..drawing.figures import plural, size
from ..line.options import in_json
from .recorder import TraceRecorder

if TYPE_CHECKING:
    from ....interpreter.recordings.reader import RecordingReader
    from ...recording.recorder import ValueRecorder


class ByteSize(click.ParamType[int]):
    """A number of bytes, such as `64MiB` or `1GiB`."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number of bytes. BadParameter if the text is not a size."""
        if isinstance(value, int):
            return value
        from ....streams.options import parse_size

        try:
            return parse_size(int(value) if value.isdecimal() else value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@dataclass(frozen=True)
class ValueOptions:
    """The options of the command about values: whether to record them, of which sessions, how many bytes, which not."""

    values: bool
    sessions: Sequence[int]
    limit: int
    without: Sequence[str]


@contextmanager
def recording_values(
    session: Any, recorder: TraceRecorder, output: Path, chosen: ValueOptions
) -> Iterator[ValueRecorder | None]:
    """Record values to `output` in a `with` block, then append the trace that the recorder has written."""
    if not chosen.values:
        yield None
        return
    from ...recording.recorder import ValueRecorder

    traced = recorder.file.path
    try:
        values = ValueRecorder(
            session._core.answers.query, output, chosen.sessions, limit=chosen.limit, without=chosen.without
        )
        recorder.values = values
        if not in_json():
            click.echo(f"{output} will contain data: the values that sessions have, upload and fetch", err=True)
        try:
            yield values
            values.end()
        finally:
            with traced.open("rb") if traced.exists() else BytesIO() as trace:
                values.complete(trace)
    except BaseException:
        recorder.file.abandon()
        raise
    finally:
        traced.unlink(missing_ok=True)


def facts_of(values: ValueRecorder | None) -> dict[str, Any]:
    """Facts about the recorded values, for `--json`."""
    if values is None:
        return {}
    return {"values": values.values, "values_lost": values.lost, "notes": values.file.notes, "full": values.full}


def print_values(output: Path, values: ValueRecorder | None) -> None:
    """Print the content of a recording."""
    if values is None:
        return
    for note in dict.fromkeys(values.file.notes):
        click.echo(f"note: {note}")
    lost = f", {values.lost} of them lost or left out" if values.lost else ""
    click.echo(f"{output} holds data: {plural(values.values, 'value')}{lost}. `tensord trace replay {output}` runs it")


def print_contents(file: Path) -> None:
    """Print the content of a file, if it is a recording with values."""
    from ....interpreter.recordings.chunks import MAGIC
    from ....interpreter.recordings.reader import RecordingReader

    with file.open("rb") as opened:
        if opened.read(len(MAGIC)) != MAGIC:
            return
    with RecordingReader(file) as reader:
        click.echo(holding(reader))


def holding(reader: RecordingReader) -> str:
    there = len(reader.values.keys() - reader.lost.keys())
    return (
        f"{reader.path} holds data: {plural(there, 'value')}, {size(reader.nbytes())}; "
        f"{plural(reader.messages, 'message')} of {plural(len(reader.sessions), 'session')}, for `tensord trace replay`"
    )

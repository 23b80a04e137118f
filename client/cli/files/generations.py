"""The generations in a directory of checkpoints, as `tensord restore --list` and the doctor see them. No daemon is
asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ....interpreter.errors import TensordError
from ..drawing.figures import count, moment, plural, size, some
from ..drawing.progress import Waiting, waiting
from ..drawing.tables import Column, print_table
from ..line.output import tell

if TYPE_CHECKING:
    from ....interpreter.checkpoints.reader import CheckpointReader


def list_generations(directory: Path, number: int, *, deep: bool) -> bool:
    """List the generations, or one of them; is all of it whole? `deep`: also all bytes of the values."""
    from ....interpreter.checkpoints.reader import CheckpointReader

    with CheckpointReader.open(directory) as reader, waiting("reading the checkpoint") as shown:
        if number:
            reader.generation(number)  # raises that there is none
        found = [row for row in rows_of(reader, shown, deep=deep) if number in (0, row["generation"])]
    tell(found, show_generations)
    return not any(row["error"] or row["failed"] for row in found)


def rows_of(reader: CheckpointReader, shown: Waiting, *, deep: bool) -> Iterator[dict[str, Any]]:
    """Each generation, the newest one last. One that is collected meanwhile is none."""
    for number in reader.generations():
        row: dict[str, Any] = {"generation": number, "written": None, "names": 0, "tensors": 0, "routines": 0}
        row |= {"bytes": 0, "error": "", "failed": {}}
        try:
            found = reader.generation(number)
            row |= {"written": found.written / 1e9, "names": len(found.tensors) + len(found.routines)}
            row |= {"tensors": len(found.tensors), "routines": len(found.routines), "bytes": found.nbytes}
            row["failed"] = reader.verify(found, deep=deep, progress=shown.told)
        except TensordError as error:
            row["error"] = error.message
        if not (row["error"] or row["failed"]) or number in reader.generations():
            yield row


def show_generations(found: Sequence[dict[str, Any]]) -> None:
    """Show a table of generations, and what is damaged in them."""
    print_table(COLUMNS, found, empty="no generation was ever finished here")
    for one in found:
        if one["failed"]:
            show_failed(one["failed"], f"of generation {one['generation']} damaged")


def _of_whole(name: str, text: Callable[[Any], str]) -> Column:
    """A column that is empty for a generation that cannot be read."""
    return Column(name, lambda one: "" if one["error"] else text(one))


COLUMNS: Final = (
    Column("generation>", itemgetter("generation")),
    _of_whole("written", lambda one: moment(one["written"])),
    _of_whole("names>", lambda one: count(one["names"])),
    _of_whole("routines>", lambda one: some(count, one["routines"])),
    _of_whole("bytes>", lambda one: size(one["bytes"])),
    Column("damaged", lambda one: one["error"] or some("{:,} of them".format, len(one["failed"])), folds=True),
)


def show_failed(failed: Mapping[str, str], what: str) -> None:
    """Show a table of names, with what is wrong with each."""
    columns = (Column("name", itemgetter(0), folds=True), Column("what is wrong", itemgetter(1), folds=True))
    print_table(columns, sorted(failed.items()), caption=f"{plural(len(failed), 'name')} {what}")

"""The generations in a directory of checkpoints, as `tensord restore --list` and the doctor see them. No daemon is
asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....interpreter.errors import TensordError
from ..drawing.figures import count, moment, plural, size
from ..drawing.progress import Waiting, waiting
from ..line.output import print_json

if TYPE_CHECKING:
    from ....interpreter.checkpoints.reader import CheckpointReader


def list_generations(directory: Path, number: int, *, deep: bool, as_json: bool) -> bool:
    """List the generations, or one of them; is all of it whole? `deep`: also all bytes of the values."""
    from ....interpreter.checkpoints.reader import CheckpointReader

    with CheckpointReader.open(directory) as reader, waiting("reading the checkpoint") as shown:
        if number:
            reader.generation(number)  # raises that there is none
        found = [row for row in rows_of(reader, shown, deep=deep) if number in (0, row["generation"])]
    if as_json:
        print_json(found)
    else:
        show_generations(found)
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


def show_generations(found: list[dict[str, Any]]) -> None:
    """Show a table of generations, and what is damaged in them."""
    from ..drawing.tables import print_table

    print_table(
        ("generation>", "written", "names>", "routines>", "bytes>", "damaged"),
        [_row(one) for one in found],
        folded=("damaged",),
        empty="no generation was ever finished here",
    )
    for one in found:
        if one["failed"]:
            show_failed(one["failed"], f"of generation {one['generation']} damaged")


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    if one["error"]:
        return (str(one["generation"]), "", "", "", "", one["error"])
    damaged = f"{count(len(one['failed']))} of them" if one["failed"] else ""
    routines = count(one["routines"]) if one["routines"] else ""
    written = moment(one["written"])
    return (str(one["generation"]), written, count(one["names"]), routines, size(one["bytes"]), damaged)


def show_failed(failed: Mapping[str, str], what: str) -> None:
    """Show a table of names, with what is wrong with each."""
    from ..drawing.tables import print_table

    print_table(("name", "what is wrong"), sorted(failed.items()), caption=f"{plural(len(failed), 'name')} {what}")

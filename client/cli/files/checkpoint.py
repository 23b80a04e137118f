"""`tensord checkpoint` and `tensord restore`: write published values to a directory of checkpoints, and publish them
again.
"""

# ruff: noqa: T201
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import click

from ....interpreter.errors import TensordError
from ..daemon.ask import connected
from ..drawing.figures import count, duration, moment, plural, size, some
from ..drawing.tables import Column, print_table
from ..drawing.terminal import ProgressBar, waiting
from ..line import options
from ..line.options import tell

if TYPE_CHECKING:
    from ....interpreter.checkpoints.reader import CheckpointReader
    from ...files.checkpoints import Checkpointing
    from ...session.session import Session


POLL: Final = 0.25  # seconds between two checks of a checkpoint's progress


@click.command()
@click.argument("directory", type=options.FILE)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--keep", type=click.IntRange(min=0), default=2, help="How many generations to keep; 0 for all.")
@options.address
@options.as_json
def checkpoint(directory: Path, names: tuple[str, ...], keep: int, address: str | None) -> None:
    """Write all published values, or these names, to a directory of checkpoints.

    All values are of one moment, and no session has to wait. Values that have not changed since the last checkpoint
    in that directory are not written again. Exits with 1 if a value could not be written.

    Example: tensord checkpoint /var/lib/tensord
    """
    with connected(address) as session, waiting("writing the checkpoint") as shown:
        began = monotonic()
        report = followed(session, session.checkpoint(directory, names or None, keep=keep), shown)
        report["seconds"] = monotonic() - began
    tell(report, show_written)
    if report["failed"]:
        raise click.exceptions.Exit(1)


def followed(session: Session, writing: Checkpointing, shown: ProgressBar) -> dict[str, Any]:
    """Wait for a checkpoint and show its progress."""
    path = str(writing.directory.resolve())
    while True:
        try:
            return writing.wait(POLL)
        except TimeoutError:
            for one in session._core.answers.query("checkpoints"):
                if one["directory"] == path:
                    shown.update(one["written"], one["bytes"])


def show_written(report: Mapping[str, Any]) -> None:
    gone = f"; {plural(report['collected'], 'older generation')} removed" if report["collected"] else ""
    print(
        f"generation {report['generation']}: {plural(report['names'], 'name')}, {size(report['written'])} written, "
        f"{size(report['kept'])} kept, in {duration(report['seconds'])}{gone}"
    )
    if report["note"]:
        print(report["note"])
    show_failed(report["failed"], "not written, so the value of the last checkpoint stays, if there is one")


@click.command()
@click.argument("directory", type=options.FILE)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--generation", type=click.IntRange(min=0), default=0, help="The generation; 0 for the last one.")
@click.option("--deep", is_flag=True, help="Read every value and compare its checksum before anything is published.")
@click.option("--strict", is_flag=True, help="Exit with 1 if anything is damaged.")
@click.option("--list", "listing", is_flag=True, help="List the generations; needs no daemon.")
@options.address
@options.as_json
def restore(
    directory: Path,
    names: tuple[str, ...],
    *,
    generation: int,
    deep: bool,
    strict: bool,
    listing: bool,
    address: str | None,
) -> None:
    """Publish the values of a checkpoint, or these names of it.

    Values are read when they are first needed. Names that are published already are replaced. Damaged values are
    listed, and the others are published.

    Example: tensord restore /var/lib/tensord --list
    Example: tensord restore /var/lib/tensord weights
    """
    if listing:
        if names:
            raise click.UsageError("--list shows whole generations: leave out the names")
        whole = list_generations(directory, generation, deep=deep)
    else:
        with connected(address) as session, waiting("reading the checkpoint" if deep else "restoring"):
            began = monotonic()
            report = session.restore(directory, names or None, generation=generation, deep=deep)
            report["seconds"] = monotonic() - began
        tell(report, show_restored)
        whole = not (report["failed"] or report["notes"])
    if strict and not whole:
        raise click.exceptions.Exit(1)


def show_restored(report: Mapping[str, Any]) -> None:
    for number, why in report["notes"].items():
        print(f"generation {number} is damaged, and an older one is restored: {why}")
    print(
        f"generation {report['generation']} of {moment(report['written'])}: "
        f"{plural(report['names'], 'name')} published, {size(report['bytes'])} in the generation, "
        f"in {duration(report['seconds'])}"
    )
    devices: dict[str, list[str]] = {}
    for name, device in report["moved"].items():
        devices.setdefault(device, []).append(name)
    for device, moved in devices.items():
        some = ", ".join(moved[:3]) + (", ..." if len(moved) > 3 else "")
        print(f"{device} is missing here: {plural(len(moved), 'name')} came to the first device ({some})")
    show_failed(report["failed"], "not restored")


def list_generations(directory: Path, number: int, *, deep: bool) -> bool:
    """List the generations, or one of them; returns whether they are undamaged. `deep`: read every byte of the values,
    too."""
    from ....interpreter.checkpoints.reader import CheckpointReader

    with CheckpointReader.open(directory) as reader, waiting("reading the checkpoint") as shown:
        if number:
            reader.generation(number)  # raises if there is none
        found = [row for row in rows_of(reader, shown, deep=deep) if number in (0, row["generation"])]
    tell(found, show_generations)
    return not any(row["error"] or row["failed"] for row in found)


def rows_of(reader: CheckpointReader, shown: ProgressBar, *, deep: bool) -> Iterator[dict[str, Any]]:
    """Each generation, newest last, without those that are collected meanwhile."""
    for number in reader.generations():
        row: dict[str, Any] = {"generation": number, "written": None, "names": 0, "tensors": 0, "routines": 0}
        row |= {"bytes": 0, "error": "", "failed": {}}
        try:
            generation = reader.generation(number)
            row |= {"written": generation.written / 1e9, "names": len(generation.tensors) + len(generation.routines)}
            row |= {
                "tensors": len(generation.tensors),
                "routines": len(generation.routines),
                "bytes": generation.nbytes,
            }
            row["failed"] = reader.verify(generation, deep=deep, progress=shown.update)
        except TensordError as error:
            row["error"] = error.message
        if not (row["error"] or row["failed"]) or number in reader.generations():
            yield row


def show_generations(generations: Sequence[dict[str, Any]]) -> None:
    print_table(COLUMNS, generations, empty="no generation was ever finished here")
    for row in generations:
        if row["failed"]:
            show_failed(row["failed"], f"of generation {row['generation']} damaged")


def _of_whole(name: str, text: Callable[[Any], str]) -> Column:
    """A column that is empty for an unreadable generation."""
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
    columns = (Column("name", itemgetter(0), folds=True), Column("what is wrong", itemgetter(1), folds=True))
    print_table(columns, sorted(failed.items()), caption=f"{plural(len(failed), 'name')} {what}")

"""The check of `tensord doctor --checkpoints DIR`: generations, damaged values, orphans, and the writing process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from ....interpreter.checkpoints.lock import holder
from ....interpreter.checkpoints.reader import CheckpointReader, Orphan
from ....interpreter.errors import TensordError
from ..drawing.figures import duration, moment, plural, size
from ..drawing.terminal import waiting
from ..files.checkpoint import rows_of
from .findings import CheckResult, fail, listed, note, ok, warn

SHOWN: Final = 5  # damaged names of a generation, and orphans


def check_checkpoints(directory: Path, *, deep: bool = False) -> Iterator[CheckResult]:
    """A directory of checkpoints. `deep`: every byte of the values is read."""
    try:
        reader = CheckpointReader.open(directory)
    except TensordError as error:
        yield fail("checkpoints", error.message, "name the directory that `tensord checkpoint` writes to")
        return
    with reader:
        with waiting("reading the checkpoints") as shown:
            rows = list(rows_of(reader, shown, deep=deep))
        whole = [row for row in rows if not row["error"]]
        if whole:
            last = whole[-1]
            message = f"generation {last['generation']} of {moment(last['written'])} in {directory}: "
            yield ok("checkpoints", message + f"{plural(last['names'], 'name')}, {size(last['bytes'])}")
        elif not rows:
            yield note("checkpoints", f"{directory} has no generation yet", f"tensord checkpoint {directory}")
        for row in rows:
            name = f"generation {row['generation']}"
            if row["error"]:
                before = max((one["generation"] for one in whole if one["generation"] < row["generation"]), default=0)
                instead = f"generation {before} is restored in its place" if before else "there is no older one"
                yield fail(name, row["error"], f"{instead}; tensord checkpoint {directory}, while the values are there")
            elif row["failed"]:
                names = sorted(row["failed"])
                message = f"{plural(len(names), 'value')} damaged: {listed(names, SHOWN)} ({row['failed'][names[0]]})"
                yield fail(name, message, "the other names can be restored; write these again, and take a checkpoint")
        writer = holder(directory)
        if writer is not None:
            yield note("lock", f"{directory} is being written by {writer}")
        unreadable = len(whole) < len(rows)
        yield from check_orphans(reader.orphans(), writer=writer, unreadable=unreadable, directory=directory)


def check_orphans(
    orphans: Sequence[Orphan], *, writer: str | None, unreadable: bool, directory: Path
) -> Iterator[CheckResult]:
    if not orphans:
        return
    each = [f"{one.name} ({size(one.nbytes)}, {duration(one.age)} old)" for one in orphans]
    total = sum(one.nbytes for one in orphans)
    message = f"{plural(len(orphans), 'file')} of {size(total)} that no generation refers to: {listed(each, SHOWN)}"
    if writer is not None:
        yield note("orphans", message, f"{writer} may be writing them: run the command again when it is done")
    elif unreadable:
        advice = "a generation that cannot be read may need them, so they are kept: remove the file of that generation"
        yield warn("orphans", message, advice)
    else:
        yield warn("orphans", message, f"the next checkpoint removes them: tensord checkpoint {directory}")

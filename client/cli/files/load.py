"""`tensord load`: publishes the tensors of a file, or lists them."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ..daemon.ask import connected
from ..drawing.figures import plural, shape, size
from ..drawing.tables import Column, print_table
from ..drawing.terminal import waiting
from ..line import options
from ..line.options import tell

if TYPE_CHECKING:
    from ....interpreter.files.header import FileHeader, TensorEntry


@click.command()
@click.argument("file", type=options.FILE)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--as", "prefix", default="", show_default=False, metavar="PREFIX", help="A prefix for each name.")
@click.option("--device", help="The device of the tensors. Default: the first one.")
@click.option("--raw", is_flag=True, help="Load dtypes that tensord lacks, such as bfloat16, as unsigned integers.")
@click.option("--own", is_flag=True, help="Copy each value when it is read, so that the file may change afterwards.")
@click.option("--list", "listing", is_flag=True, help="List the file's tensors; needs no daemon.")
@options.address
@options.as_json
def load(
    file: Path,
    names: tuple[str, ...],
    *,
    prefix: str,
    device: str | None,
    raw: bool,
    own: bool,
    listing: bool,
    address: str | None,
) -> None:
    """Publish the tensors of a safetensors, .npz or .npy file, or these names of it.

    The values are read when they are first needed. Exits with 1 if a tensor is of a dtype that tensord lacks; the
    others are published.

    Example: tensord load model.safetensors --list
    Example: tensord load model.safetensors --as model/ --device cuda:0
    """
    if listing and (prefix or device or own):
        raise click.UsageError("--list publishes nothing: leave out --as, --device and --own")
    header = described(file, raw=raw)
    entries = [header.entry(name) for name in dict.fromkeys(names)] or list(header.entries.values())
    there = [entry for entry in entries if entry.meta is not None]
    failed = {entry.name: entry.error for entry in entries if entry.meta is None}
    if not listing and there:
        with connected(address) as session, waiting("publishing the tensors"):
            tensors = session.load(file, [entry.name for entry in there], device=device, own=own, raw=raw)
            session.publish({prefix + name: tensor for name, tensor in tensors.items()})
    rows = [row_of(entry, "" if listing else prefix) for entry in (entries if listing else there)]
    answer = {"tensors": rows} if listing else {"published": rows, "failed": failed}
    tell({"file": str(file), "format": header.format.value, **answer}, show_entries if listing else show_published)
    if failed and not listing:
        raise click.exceptions.Exit(1)


def described(file: Path, *, raw: bool) -> FileHeader:
    from ....interpreter.files.describe import describe
    from ....interpreter.files.open_file import open_path

    with open_path(file) as opened:
        return describe(opened, raw=raw)


def row_of(entry: TensorEntry, prefix: str) -> dict[str, Any]:
    """A tensor of the file under its published name."""
    meta = entry.meta
    return {
        "name": prefix + entry.name,
        "shape": None if meta is None else list(meta.shape),
        "dtype": None if meta is None else meta.dtype.name,
        "bytes": entry.nbytes,
        "error": entry.error,
    }


COLUMNS: Final = (
    Column("name", itemgetter("name"), folds=True),
    Column("what", lambda row: shape(row["shape"], row["dtype"])),
    Column("bytes>", lambda row: size(row["bytes"])),
    Column("remark", itemgetter("error"), folds=True),
)


def show_entries(answer: Mapping[str, Any]) -> None:
    rows, form = answer["tensors"], answer["format"]
    caption = f"{form}: {plural(len(rows), 'tensor')}, {size(sum(row['bytes'] for row in rows))}"
    print_table(COLUMNS, rows, caption=caption, empty=f"{form}: no tensors")


def show_published(answer: Mapping[str, Any]) -> None:
    caption = f"{plural(len(answer['published']), 'name')} published; the values are read when they are first needed"
    print_table(COLUMNS, answer["published"], caption=caption, empty="nothing is published")
    columns = (Column("name", itemgetter(0), folds=True), Column("reason", itemgetter(1), folds=True))
    print_table(columns, sorted(answer["failed"].items()))

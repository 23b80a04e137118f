"""`tensord load`: tensors of a file, published; or what is in the file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..daemon.ask import connected
from ..drawing.figures import plural, shape, size
from ..drawing.progress import waiting
from ..line import options
from ..line.output import print_json

if TYPE_CHECKING:
    from ....interpreter.files.header import Entry, FileHeader


@click.command()
@click.argument("file", type=options.FILE)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--as", "prefix", default="", show_default=False, metavar="PREFIX", help="Stands before each name.")
@click.option("--device", help="Where they are to be; by default the first device.")
@click.option("--raw", is_flag=True, help="Dtypes that tensord lacks, bfloat16 for one, as unsigned integers.")
@click.option("--own", is_flag=True, help="Once a value is read, the file may change.")
@click.option("--list", "listing", is_flag=True, help="List what is in the file; needs no daemon.")
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
    as_json: bool,
) -> None:
    """Publish the tensors of a safetensors, .npz or .npy file, or these of them.

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
    if as_json:
        told = {"tensors": rows} if listing else {"published": rows, "failed": failed}
        print_json({"file": str(file), "format": header.format.value, **told})
    elif listing:
        show_entries(rows, header)
    else:
        show_published(rows, failed)
    if failed and not listing:
        raise click.exceptions.Exit(1)


def described(file: Path, *, raw: bool) -> FileHeader:
    """What is in the file."""
    from ....interpreter.files.describe import describe
    from ....interpreter.files.open_file import open_path

    with open_path(file) as opened:
        return describe(opened, raw=raw)


def row_of(entry: Entry, prefix: str) -> dict[str, Any]:
    """A tensor of the file, under the name that it gets."""
    meta = entry.meta
    return {
        "name": prefix + entry.name,
        "shape": None if meta is None else list(meta.shape),
        "dtype": None if meta is None else meta.dtype.name,
        "bytes": entry.nbytes,
        "error": entry.error,
    }


def show_entries(rows: Sequence[dict[str, Any]], header: FileHeader) -> None:
    """Show what is in a file."""
    from ..drawing.tables import print_table

    print_table(
        ("name", "what", "bytes>", "remark"),
        [(row["name"], shape(row["shape"], row["dtype"]), size(row["bytes"]), row["error"]) for row in rows],
        caption=f"{header.format.value}: {plural(len(rows), 'tensor')}, {size(sum(row['bytes'] for row in rows))}",
        folded=("name", "remark"),
        empty=f"{header.format.value}: no tensors",
    )


def show_published(rows: Sequence[dict[str, Any]], failed: dict[str, str]) -> None:
    """Show what is published, and what is not."""
    from ..drawing.tables import print_table

    print_table(
        ("name", "what", "bytes>"),
        [(row["name"], shape(row["shape"], row["dtype"]), size(row["bytes"])) for row in rows],
        caption=f"{plural(len(rows), 'name')} published; the values are read when they are first needed",
        folded=("name",),
        empty="nothing is published",
    )
    if failed:
        print_table(
            ("name", "why it is not published"),
            sorted(failed.items()),
        )

"""`tensord evict`: moves tensors from their devices to the tiers below. They come back when they are needed."""

# ruff: noqa: T201
from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import click

from ..drawing.figures import plural, size
from ..drawing.terminal import waiting
from ..line import options
from ..line.options import tell
from .ask import asking


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@options.address
@click.option(
    "--session", type=click.IntRange(min=0), default=0, help="Only tensors that this session made; 0 for all sessions."
)
@click.option("--device", default="", show_default=False, help="Only tensors on this device.")
@options.as_json
def evict(names: tuple[str, ...], address: str | None, session: int, device: str) -> None:
    """Move tensors from their devices to the host, now.

    Moves the tensors published under these names, or all tensors that a session made or that a device has. Pinned
    tensors, and those that a client reads in place, stay. Values do not change: the next use brings a value back.

    Example: tensord evict weights
    Example: tensord evict --device cuda:0
    """
    if not names and not session and not device:
        raise click.UsageError("say which tensors: names, --session or --device")
    with waiting("evicting"):
        left = evicted(address, names, session, device)
    tell(left, show_evicted)


def show_evicted(left: Sequence[Mapping[str, Any]]) -> None:
    for one in left:
        print(f"{one['device']} -> {one['to']}: {plural(one['values'], 'value')}, {size(one['bytes'])}")
    if not left:
        print("nothing was evicted: these tensors are pinned, read in place, or not on a device with a tier below it")


def evicted(address: str | None, names: tuple[str, ...], session: int, device: str) -> list[dict[str, Any]]:
    """Evict piece by piece; returns the values that have left each device."""
    values: Counter[tuple[str, str]] = Counter()
    nbytes: Counter[tuple[str, str]] = Counter()
    more = True
    with asking(address) as ask:
        while more:
            answer = ask("evict", names, session, device)
            for row in answer["left"]:
                way = (row["device"], row["to"])
                values[way] += row["values"]
                nbytes[way] += row["bytes"]
            more = answer["more"]
    return [{"device": way[0], "to": way[1], "values": values[way], "bytes": nbytes[way]} for way in values]

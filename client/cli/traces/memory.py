"""`tensord trace memory`: shows each device's peak of memory and what occupied it, and draws memory over time."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ....interpreter.errors import ProtocolError
from ....interpreter.types.device_names import own_name
from ..drawing.figures import count, size, some
from ..drawing.tables import Column, print_table
from ..line import options
from ..line.options import in_json, print_json
from .source import about_source, load, selects, source

if TYPE_CHECKING:
    from ....vm.tracing.analysis.recorded.filter import Filter
    from ....vm.tracing.analysis.sums.memory import DeviceMemory

BY: Final = ("copy", "op", "location", "span", "session", "name")  # how a table is grouped; `copy`: not at all


@click.command()
@source
@options.address
@click.option("--by", type=click.Choice(BY), default="copy", help="Group the memory in use at the peak by this.")
@click.option("--device", default="", show_default=False, help="Only this device.")
@selects
@options.rows(12)
@click.option(
    "-o", "--output", type=options.FILE, help="Draw memory over time into this file: .svg, or .png with matplotlib."
)
@options.as_json
def memory(
    file: Path | None,
    *,
    address: str | None,
    by: str,
    device: str,
    chooses: Filter,
    limit: int,
    output: Path | None,
) -> None:
    """Show each device's peak of memory, and the ops and lines that had allocated it.

    Example: tensord trace memory run.trace --by location -o memory.svg
    """
    from ....vm.tracing.analysis.sums.memory import extent
    from ....vm.tracing.analysis.sums.memory import memory as over_time

    trace = load(file, address)
    device = own_name(device, trace.devices) if device else ""
    every = over_time(trace, chooses)
    usages = [one for one in every if device in {"", one.device}]
    if device and device not in trace.devices:
        raise ProtocolError(f"the trace has no device {device!r}: it has {', '.join(trace.devices) or 'none'}")
    if output is not None:
        draw(usages, output)
    if in_json():
        print_json({**about_source(file), "taken": trace.taken, "devices": [_plain(one, by) for one in usages]})
    else:
        for usage in usages:
            _show(usage, by, limit, extent(every)[0], now=None if chooses else trace.memory.used.get(usage.device))
        if not usages:
            click.echo("no memory was in use" if not chooses else "none of the chosen records made a copy in memory")


def draw(usages: Sequence[DeviceMemory], output: Path) -> None:
    """Draw memory over time into a file.

    Its suffix decides the format; ProtocolError if it is neither .svg nor .png.
    """
    from ....interpreter.whole_file import write_whole
    from ....vm.tracing.analysis.sums.memory_picture import to_svg

    if output.suffix == ".svg":
        write_whole(output, to_svg(usages))
    elif output.suffix == ".png":
        write_whole(output, to_png(usages))
    else:
        raise ProtocolError(f"{output}: the file's name must end in .svg or .png")


def to_png(usages: Sequence[DeviceMemory]) -> bytes:
    """The picture as a PNG, drawn by matplotlib. ProtocolError if matplotlib is not installed."""
    from io import BytesIO

    from ....vm.tracing.analysis.sums.memory import extent

    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ProtocolError("a .png needs matplotlib, which is not installed; write a .svg") from None
    begin, end = extent(usages)
    figure = Figure(figsize=(9, 2.4 * max(1, len(usages))), layout="constrained")
    for number, usage in enumerate(usages, 1):
        axes = figure.add_subplot(len(usages), 1, number)
        curve = [*usage.curve, (end, usage.curve[-1][1])]
        times, amounts = [(time - begin) / 1e9 for time, _ in curve], [amount / 2**20 for _, amount in curve]
        axes.fill_between(times, amounts, step="post", alpha=0.4)
        axes.axvline((usage.at - begin) / 1e9, color="red", linestyle="--")
        axes.set(
            title=f"{usage.device}, peak {size(usage.peak)}",
            xlabel="s",
            ylabel="MiB",
            xlim=(0, max(1, end - begin) / 1e9),
        )
    drawn = BytesIO()
    figure.savefig(drawn, format="png", dpi=120)
    return drawn.getvalue()


def _show(usage: DeviceMemory, by: str, limit: int, begin: int, *, now: int | None) -> None:
    from ....vm.tracing.analysis.recorded.text import duration

    rest = f", {size(now)} when the trace was taken" if now is not None else ""
    since = duration(max(0, usage.at - begin))
    click.echo(f"{usage.device}: peak {size(usage.peak)}, {since} after the first record{rest}")
    (_show_copies if by == "copy" else _show_holders)(usage, by, limit)


def _show_copies(usage: DeviceMemory, _by: str, limit: int) -> None:
    from ....vm.tracing.analysis.sums.memory import CopyLifetime

    shown = usage.standing[: limit or None]
    more = len(usage.standing) - len(shown)
    rest = size(sum(stay.nbytes for stay in usage.standing[len(shown) :]))
    other = [CopyLifetime(0, usage.device, usage.other, 0, 0, "other", 0, "")] if usage.other else []
    caption = f"and {count(more)} smaller, {rest} together" if more else ""
    print_table(COPIES, [*shown, *other], caption=caption)


COPIES: Final = (
    Column("copy>", lambda stay: stay.copy or "", spare=1),
    Column("bytes>", lambda stay: size(stay.nbytes)),
    Column("made by", attrgetter("op")),
    Column("session>", lambda stay: stay.session or "", spare=2),
    Column("names", lambda stay: ", ".join(stay.names), folds=True),
    Column("location", attrgetter("location"), folds=True),
)


def _show_holders(usage: DeviceMemory, by: str, limit: int) -> None:
    from ....vm.tracing.analysis.sums.memory import holder_of

    holders = usage.holders(holder_of(usage, by))
    columns = (
        Column(by, attrgetter("key"), folds=True),
        Column("copies>", lambda holder: some(count, holder.count)),
        Column("bytes>", lambda holder: size(holder.nbytes)),
        Column("of the peak>", lambda holder: f"{holder.nbytes / usage.peak:.0%}"),
    )
    caption = "these are the tensors' names when the trace was taken" if by == "name" else ""
    print_table(columns, holders[: limit or None], caption=caption)


def _plain(usage: DeviceMemory, by: str) -> dict[str, object]:
    from dataclasses import asdict

    from ....vm.tracing.analysis.sums.memory import holder_of

    row = {"device": usage.device, "peak": usage.peak, "at": usage.at, "other": usage.other, "curve": usage.curve}
    if by == "copy":
        return row | {"standing": [stay._asdict() for stay in usage.standing]}
    return row | {"holders": [asdict(holder) for holder in usage.holders(holder_of(usage, by))]}

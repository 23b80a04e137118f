"""`tensord trace replay`: runs a recording again, and compares every result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ..drawing.figures import plural
from ..drawing.tables import Column, print_table
from ..line import options
from ..line.options import in_json, print_json
from .replay_options import MACHINE, MAP, NO_SIDE, PLUGINS, RECORDING, WITHIN, Machine, load, pairs, plain, quiet

if TYPE_CHECKING:
    from ....interpreter.recordings.reader import RecordingReader
    from ...replay.player import Player
    from ...replay.sides import Spec


@click.command()
@RECORDING
@click.option(
    "--devices",
    metavar="LIST",
    help="Run on these devices in this process: cpu:0,sim:0. They replace the recorded ones, in order.",
)
@click.option("--address", help="Run on the daemon at this address.")
@click.option("--engine", type=click.Choice(("vm", "serial")), default="vm", help="The engine in this process.")
@MAP
@click.option(
    "--against",
    type=Machine(),
    help=f"Compare each result with that of this machine, by default serial: {MACHINE}. none: only fetched values.",
)
@click.option(
    "--speed",
    type=click.Choice(("fast", "recorded")),
    default="fast",
    help="Run as fast as possible, or at the recorded speed, which compares only fetched values.",
)
@WITHIN
@PLUGINS
@options.rows(20)
@options.as_json
def replay(
    file: Path,
    *,
    devices: str | None,
    address: str | None,
    engine: str,
    mapping: Sequence[str],
    against: Any,
    speed: str,
    within: float | None,
    plugins: Sequence[str],
    limit: int,
) -> None:
    """Run a recording again, on other devices or another machine, and compare every result.

    Results are compared with the values that were fetched in the recording and, op by op, with a second machine. Exits
    with 1 if anything differs.

    Example: tensord trace replay bug.rec --devices cpu:0
    """
    from ...replay.sides import Spec, spec_of

    if address is not None and devices is not None:
        raise click.BadParameter("--address and --devices exclude each other: give one of them")
    chosen = spec_of(address or (f"{engine}={devices}" if devices else engine))
    if against is None:
        against = NO_SIDE if speed == "recorded" else Spec("serial", "serial")
    specs = [chosen] if against == NO_SIDE else [chosen, against]
    load(plugins)
    player, reader = _play(file, specs, pairs(mapping), within, paced=speed == "recorded")
    if in_json():
        print_json(_summary(file, player, reader) | {"findings": [plain(one) for one in player.findings]})
    else:
        _show(player, reader, limit)
    if player.differing:
        raise click.exceptions.Exit(1)


def _play(
    file: Path, specs: Sequence[Spec], given: dict[str, str], within: float | None, *, paced: bool
) -> tuple[Player, RecordingReader]:
    from ....interpreter.recordings.reader import RecordingReader
    from ...replay.bisect import bound_for, opened_sides
    from ...replay.player import Player
    from ...replay.script import check_ops

    with quiet(), RecordingReader(file) as reader:
        check_ops(reader)
        with opened_sides(reader, specs, given) as sides:
            player = Player(reader, sides, within=bound_for(sides, within), paced=paced)
            player.play()
            return player, reader


def _summary(file: Path, player: Player, reader: RecordingReader) -> dict[str, Any]:
    return {
        "file": str(file),
        "sides": [side.spec.text for side in player.sides],
        "steps": player.steps,
        "compared": player.compared,
        "fetched": player.fetched,
        "unknown": player.unknown,
        "lost": len(reader.lost),
        "notes": notes_of(reader),
        "differing": player.differing,
    }


def notes_of(reader: RecordingReader) -> list[str]:
    """Notes about a recording: the missing parts, and the reasons."""
    lost = [f"{plural(len(reader.lost), 'value')} missing: other values replace them"] if reader.lost else []
    ended = [reader.ended] if reader.ended else []
    return [*dict.fromkeys(reader.notes), *lost, *ended]


def _show(player: Player, reader: RecordingReader, limit: int) -> None:
    for note in notes_of(reader):
        click.echo(f"note: {note}")
    differ = "differs" if player.differing == 1 else "differ"
    differing = f"{plural(player.differing, 'result')} {differ}" if player.differing else "no difference"
    sides = " and ".join(side.spec.text for side in player.sides)
    click.echo(f"{differing}: {plural(player.steps, 'step')} on {sides}")
    if len(player.sides) > 1:
        click.echo(f"{plural(player.compared, 'result')} compared, op by op")
    unknown = f"; {player.unknown} could not be" if player.unknown else ""
    click.echo(f"{plural(player.fetched, 'fetched value')} compared with the recording{unknown}")
    shown = player.findings[: limit or None]
    if shown:
        more = player.differing - len(shown)
        print_table(COLUMNS, shown, caption=f"and {more} more; --limit 0 lists {len(player.findings)}" if more else "")


COLUMNS: Final = (
    Column("step>", lambda one: str(one.step.number)),
    Column("session>", lambda one: str(one.step.session), spare=2),
    Column("op", lambda one: one.op),
    Column("difference", lambda one: one.difference.text, folds=True),
    Column("from", lambda one: one.against, folds=True),
    Column("location", lambda one: one.line, folds=True),
    Column("span", lambda one: one.span, folds=True, spare=1),
)

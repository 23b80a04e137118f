"""`tensord trace replay` and `trace bisect`: run a recording again, compare, and find the first op that differs."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ..drawing.figures import plural
from ..drawing.tables import Column, print_table
from ..line import options
from ..line.options import in_json, print_json

if TYPE_CHECKING:
    from ....interpreter.recordings.reader import Reader
    from ...replay.bisect import Found, Operand
    from ...replay.player import Finding, Player
    from ...replay.sides import Spec

NO_SIDE: Final = "none"
_MACHINE: Final = "vm, serial, devices such as cpu:0,sim:0, or a daemon's address"

_FILE: Final = click.argument("file", type=options.FILE, help="A recording, of `trace record --values`.")
_MAP: Final = click.option(
    "--map", "mapping", multiple=True, metavar="OLD=NEW", help="Run what was on device OLD on NEW; may be repeated."
)
_WITHIN: Final = click.option(
    "--within",
    type=click.FloatRange(0),
    metavar="ROUNDINGS",
    help="Floats may differ by so many roundings of the largest element; by default 0, and 64 where there is a GPU.",
)
_PLUGINS: Final = click.option("--plugins", multiple=True, metavar="NAME", help="Load this plugin; may be repeated.")


class Machine(click.ParamType["Spec"]):
    """A machine on which a recording runs."""

    name = "machine"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The machine; BadParameter for other texts."""
        from ....interpreter.errors import MetadataError
        from ...replay.sides import Spec, spec_of

        if isinstance(value, Spec) or value == NO_SIDE:
            return value
        try:
            return spec_of(value)
        except MetadataError as error:
            self.fail(error.message, param, ctx)


@click.command()
@_FILE
@click.option(
    "--devices",
    metavar="LIST",
    help="On these devices of this process: cpu:0,sim:0. They stand for those recorded, in order.",
)
@click.option("--address", help="On the daemon at this address.")
@click.option("--engine", type=click.Choice(("vm", "serial")), default="vm", help="The engine of this process.")
@_MAP
@click.option(
    "--against",
    type=Machine(),
    help=f"Compare each result with that of this machine, by default serial: {_MACHINE}; none: only what was fetched.",
)
@click.option(
    "--speed",
    type=click.Choice(("fast", "recorded")),
    default="fast",
    help="How fast: as fast as possible, or as it was recorded, which compares only what was fetched.",
)
@_WITHIN
@_PLUGINS
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

    With what was fetched while it was recorded, and, op by op, with a second machine. Exits with 1 if anything differs.

    Example: tensord trace replay bug.rec --devices cpu:0
    """
    from ...replay.sides import Spec, spec_of

    if address is not None and devices is not None:
        raise click.BadParameter("--address and --devices exclude each other: give one of them")
    chosen = spec_of(address or (f"{engine}={devices}" if devices else engine))
    if against is None:
        against = NO_SIDE if speed == "recorded" else Spec("serial", "serial")
    specs = [chosen] if against == NO_SIDE else [chosen, against]
    _load(plugins)
    player, reader = _play(file, specs, _pairs(mapping), within, paced=speed == "recorded")
    if in_json():
        print_json(_summary(file, player, reader) | {"findings": [_plain(one) for one in player.findings]})
    else:
        _show(player, reader, limit)
    if player.differing:
        raise click.exceptions.Exit(1)


def _play(
    file: Path, specs: Sequence[Spec], given: dict[str, str], within: float | None, *, paced: bool
) -> tuple[Player, Reader]:
    from ....interpreter.recordings.reader import Reader
    from ...replay.bisect import bound_for, opened_sides
    from ...replay.player import Player
    from ...replay.script import check_ops

    with _quiet(), Reader(file) as reader:
        check_ops(reader)
        with opened_sides(reader, specs, given) as sides:
            player = Player(reader, sides, within=bound_for(sides, within), paced=paced)
            player.play()
            return player, reader


@contextmanager
def _quiet() -> Iterator[None]:
    """Failures that nobody waits for were the recorded program's, and are not logged again."""
    logger = logging.getLogger("tensord")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _load(plugins: Sequence[str]) -> None:
    from ...embedded.local import load_plugins

    load_plugins(list(plugins))


def _pairs(mapping: Sequence[str]) -> dict[str, str]:
    pairs = [one.partition("=") for one in mapping]
    for old, equals, new in pairs:
        if not (old and equals and new):
            raise click.BadParameter(f"--map is OLD=NEW, such as cuda:0=cpu:0, not {old + equals + new!r:.60}")
    return {old: new for old, _, new in pairs}


def _summary(file: Path, player: Player, reader: Reader) -> dict[str, Any]:
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


def notes_of(reader: Reader) -> list[str]:
    """What is to be said of a recording: what it lacks, and why."""
    lost = [f"{plural(len(reader.lost), 'value')} missing: others take their place"] if reader.lost else []
    ended = [reader.ended] if reader.ended else []
    return [*dict.fromkeys(reader.notes), *lost, *ended]


def _show(player: Player, reader: Reader, limit: int) -> None:
    for note in notes_of(reader):
        click.echo(f"note: {note}")
    differing = f"{plural(player.differing, 'result')} differ" if player.differing else "no difference"
    sides = " and ".join(side.spec.text for side in player.sides)
    click.echo(f"{differing}: {plural(player.steps, 'step')} on {sides}")
    if len(player.sides) > 1:
        click.echo(f"{plural(player.compared, 'result')} compared, op by op")
    unknown = f"; {player.unknown} could not be" if player.unknown else ""
    click.echo(f"{plural(player.fetched, 'fetched value')} compared with what was recorded{unknown}")
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


def _plain(one: Finding) -> dict[str, Any]:
    """A finding for JSON."""
    return {
        "step": one.step.number,
        "session": one.step.session,
        "op": one.op,
        "location": one.line,
        "span": one.span,
        "against": one.against,
        **one.difference._asdict(),
    }


@click.command()
@_FILE
@click.option("--first", type=Machine(), default="vm", help=f"One machine: {_MACHINE}.")
@click.option("--second", type=Machine(), default="serial", help="The other one, likewise.")
@_MAP
@_WITHIN
@click.option(
    "--at", type=click.IntRange(min=1), default=None, help="Look at this step, instead of the first that differs."
)
@click.option("--save", type=options.FILE, help="Write the op's operands and both results here, as NumPy's .npz.")
@_PLUGINS
@options.as_json
def bisect(
    file: Path,
    *,
    first: Any,
    second: Any,
    mapping: Sequence[str],
    within: float | None,
    at: int | None,
    save: Path | None,
    plugins: Sequence[str],
) -> None:
    """Find the first op of a recording whose result differs between two machines.

    Two lists of devices, the two engines, or daemons of two versions. Exits with 1 if there is one.

    Example: tensord trace bisect bug.rec --first sim:0 --second serial
    """
    from ...replay.bisect import bisect as find

    _load(plugins)
    with _quiet():
        found = find(file, [first, second], _pairs(mapping), within=within, at=at or 0)
    if found is not None and save is not None:
        _save(found, save)
    if in_json():
        print_json({"file": str(file), "first": first.text, "second": second.text, "found": found and _facts(found)})
    elif found is None:
        click.echo(f"no result differs between {first.text} and {second.text}")
    else:
        click.echo("\n".join(_lines(found, file, (first.text, second.text), mapping, save)))
    if found is not None:
        raise click.exceptions.Exit(1)


def _facts(found: Found) -> dict[str, Any]:
    """What was found, for JSON."""
    operands = [{"of": _shape(one), "device": one.device, "equal": one.equal} for one in found.operands if one.device]
    more = {"device": found.device, "attributes": found.attributes, "inside": found.inside, "operands": operands}
    return _plain(found.finding) | more


def _lines(found: Found, file: Path, texts: tuple[str, str], mapping: Sequence[str], save: Path | None) -> list[str]:
    finding = found.finding
    head = f"the first difference is step {finding.step.number}, of session {finding.step.session}: {finding.op}"
    facts = [
        ("on", found.device),
        ("attributes", found.attributes),
        ("line", finding.line),
        ("span", finding.span),
        ("inside", found.inside),
        *((one.name, _operand(one)) for one in found.operands),
        ("differs", f"{texts[0]} and {texts[1]}: {finding.difference.text}"),
        ("largest", _largest(finding)),
    ]
    shown = [f"  {name:11} {text}" for name, text in facts if text]
    if save is not None:
        return [head, *shown, f"  {'saved':11} {save}: operands and both results"]
    mapped = "".join(f" --map {one}" for one in mapping)
    command = f"tensord trace bisect {file} --first {texts[0]} --second {texts[1]}{mapped} --at {finding.step.number}"
    return [head, *shown, "to look further, save its operands and both results:", f"  {command} --save first.npz"]


def _largest(finding: Finding) -> str:
    size, roundings = finding.difference.size, finding.difference.roundings
    return "" if size is None else f"{size:.6g}, {roundings:.3g} roundings of the largest element"


def _operand(one: Operand) -> str:
    if not one.device:
        return repr(one.values[0])
    return f"{_shape(one)} on {one.device}, {'equal' if one.equal else 'not equal'} on both sides"


def _shape(one: Operand) -> str:
    from ...replay.differences import shown

    value = one.values[0]
    return value if isinstance(value, str) else shown(value) if one.device else repr(value)


def _save(found: Found, path: Path) -> None:
    """Write operands and results: `operand_0_first`, `result_first` and so on."""
    import io

    import numpy as np

    from ....interpreter.whole_file import write_whole

    arrays: dict[str, Any] = {}
    named: list[tuple[str, Sequence[Any]]] = [
        (f"operand_{place}", one.values) for place, one in enumerate(found.operands)
    ]
    for name, values in (*named, ("result", found.results)):
        for side, value in zip(("first", "second"), values, strict=True):
            if not isinstance(value, str):
                arrays[f"{name}_{side}"] = value
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    write_whole(path, buffer.getvalue())

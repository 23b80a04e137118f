"""`tensord trace bisect`: finds the first op of a recording whose result differs between two machines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..line import options
from ..line.options import in_json, print_json
from .replay_options import MACHINE, MAP, PLUGINS, RECORDING, WITHIN, Machine, load, pairs, plain, quiet

if TYPE_CHECKING:
    from ...replay.bisect import ComparedOperand, FirstDifference
    from ...replay.player import ValueDifference


@click.command()
@RECORDING
@click.option("--first", type=Machine(), default="vm", help=f"One machine: {MACHINE}.")
@click.option("--second", type=Machine(), default="serial", help="The other one, likewise.")
@MAP
@WITHIN
@click.option(
    "--at", type=click.IntRange(min=1), default=None, help="Compare this step, instead of the first that differs."
)
@click.option("--save", type=options.FILE, help="Write the op's operands and both results here, as NumPy's .npz.")
@PLUGINS
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

    The machines may be two lists of devices, the two engines, or daemons of two versions. Exits with 1 if a result
    differs.

    Example: tensord trace bisect bug.rec --first sim:0 --second serial
    """
    from ...replay.bisect import bisect as find

    load(plugins)
    with quiet():
        difference = find(file, [first, second], pairs(mapping), within=within, at=at or 0)
    if difference is not None and save is not None:
        _save(difference, save)
    if in_json():
        print_json(
            {"file": str(file), "first": first.text, "second": second.text, "found": difference and _facts(difference)}
        )
    elif difference is None:
        click.echo(f"no result differs between {first.text} and {second.text}")
    else:
        click.echo("\n".join(_lines(difference, file, (first.text, second.text), mapping, save)))
    if difference is not None:
        raise click.exceptions.Exit(1)


def _facts(difference: FirstDifference) -> dict[str, Any]:
    """The finding as JSON."""
    operands = [
        {"of": _shape(one), "device": one.device, "equal": one.equal} for one in difference.operands if one.device
    ]
    more = {
        "device": difference.device,
        "attributes": difference.attributes,
        "inside": difference.inside,
        "operands": operands,
    }
    return plain(difference.finding) | more


def _lines(
    difference: FirstDifference, file: Path, texts: tuple[str, str], mapping: Sequence[str], save: Path | None
) -> list[str]:
    finding = difference.finding
    head = f"the first difference is step {finding.step.number}, of session {finding.step.session}: {finding.op}"
    facts = [
        ("on", difference.device),
        ("attributes", difference.attributes),
        ("line", finding.line),
        ("span", finding.span),
        ("inside", difference.inside),
        *((one.name, _operand(one)) for one in difference.operands),
        ("differs", f"{texts[0]} and {texts[1]}: {finding.difference.text}"),
        ("largest", _largest(finding)),
    ]
    shown = [f"  {name:11} {text}" for name, text in facts if text]
    if save is not None:
        return [head, *shown, f"  {'saved':11} {save}: operands and both results"]
    mapped = "".join(f" --map {one}" for one in mapping)
    command = f"tensord trace bisect {file} --first {texts[0]} --second {texts[1]}{mapped} --at {finding.step.number}"
    return [head, *shown, "to examine it, save its operands and both results:", f"  {command} --save first.npz"]


def _largest(finding: ValueDifference) -> str:
    size, roundings = finding.difference.size, finding.difference.roundings
    return "" if size is None else f"{size:.6g}, {roundings:.3g} roundings of the largest element"


def _operand(operand: ComparedOperand) -> str:
    if not operand.device:
        return repr(operand.values[0])
    return f"{_shape(operand)} on {operand.device}, {'equal' if operand.equal else 'not equal'} on both sides"


def _shape(operand: ComparedOperand) -> str:
    from ...replay.differences import shown

    value = operand.values[0]
    return value if isinstance(value, str) else shown(value) if operand.device else repr(value)


def _save(difference: FirstDifference, path: Path) -> None:
    """Write the operands and results of both machines, named `operand_0_first`, `result_first` and so on."""
    import io

    import numpy as np

    from ....interpreter.whole_file import write_whole

    arrays: dict[str, Any] = {}
    named: list[tuple[str, Sequence[Any]]] = [
        (f"operand_{position}", one.values) for position, one in enumerate(difference.operands)
    ]
    for name, values in (*named, ("result", difference.results)):
        for side, value in zip(("first", "second"), values, strict=True):
            if not isinstance(value, str):
                arrays[f"{name}_{side}"] = value
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    write_whole(path, buffer.getvalue())

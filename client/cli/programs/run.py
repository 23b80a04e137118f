"""`tensord run`: runs a program's text, or a published routine, once, with arrays from files and to files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ....interpreter.errors import MetadataError, ProtocolError
from ...transport.seeking import running_daemon
from ..line import options
from ..line.options import in_json, print_json

if TYPE_CHECKING:
    from ....interpreter.programs.program import Program
    from ...linking.linking import LinkedProgram
    from ...session.session import Session


@click.command()
@click.argument("program", type=options.FILE, required=False)
@click.option("--name", metavar="NAME", help="Run the published routine of this name instead of a text.")
@click.option(
    "--input", "inputs", multiple=True, metavar="NAME=FILE", help="The value of a parameter, from a .npy file."
)
@click.option(
    "--tensor", "tensors", multiple=True, metavar="NAME=FILE", help="The value of a captured tensor, from a .npy file."
)
@click.option("--number", "numbers", multiple=True, metavar="NAME=VALUE", help="A number that the program takes.")
@click.option("--device", "devices", multiple=True, metavar="SLOT=DEVICE", help="A slot's device, such as d0=sim:0.")
@click.option(
    "--output", "outputs", multiple=True, type=options.FILE, help="The file for a result, in the order of the results."
)
@click.option(
    "--times", type=click.IntRange(min=1), default=1, help="Run the program this many times; the last results are kept."
)
@click.option("--passes", metavar="NAMES", help="Passes to apply to the text: names separated by commas, all, or none.")
@click.option("--report", is_flag=True, help="Print the compiled form of the program.")
@click.option("--source", is_flag=True, help="Print the compiled form with the source of generated kernels.")
@click.option(
    "--address", envvar="TENSORD_ADDRESS", show_envvar=True, help="A daemon's address. Default: this process."
)
@options.as_json
def run(
    *,
    program: Path | None,
    name: str | None,
    inputs: Sequence[str],
    tensors: Sequence[str],
    numbers: Sequence[str],
    devices: Sequence[str],
    outputs: Sequence[Path],
    times: int,
    passes: str | None,
    report: bool,
    source: bool,
    address: str | None,
) -> None:
    """Run a program from its text: str(routine.program(...)), or written by hand (docs/programs.md).

    Results without an --output are printed. The program runs on the daemon at --address, else in this process. With
    --name a published routine runs on the daemon, with the devices and captured tensors of its publisher.

    Example: tensord run step.txt --input x=x.npy --number rate=0.1 --output y.npy
    """
    from ..daemon.patient import program_session

    if (program is None) == (name is None):
        raise click.UsageError("name the file of a program, or the published routine with --name")
    if name is not None and (tensors or devices or passes):
        raise click.UsageError("--name runs a linked routine: leave out --tensor, --device and --passes")
    given, captured, slots = pairs(inputs, "input"), pairs(tensors, "tensor"), pairs(devices, "device")
    parsed = None if program is None else parsed_from(program)
    if parsed is not None:
        check(parsed, given, captured, outputs)
    # A published routine is found only on a daemon: without an address, on the running one.
    where = address or (None if name is None else running_daemon())
    with program_session(where, slots.values()) as session:
        if parsed is None:
            linked, homes = looked_up(session, str(name))
            parsed = linked.program
            check(parsed, given, None, outputs)
        else:
            linked, homes = linked_on(session, parsed, slots, captured, names_in(passes))
        arguments = loaded(session, parsed.parameters, given, homes)
        values = {name: number(name, text) for name, text in pairs(numbers, "number").items()}
        for _ in range(times):
            found = linked(*arguments.values(), **values)
        arrays = session.fetch(found)
        description = linked.report(source=source) if report or source else None
    for array, path in zip(arrays, outputs, strict=False):
        save(array, path)
    tell(parsed, arrays, outputs, description)


def parsed_from(file: Path) -> Program:
    from ....interpreter.programs.program import Program

    try:
        return Program.parse(file.read_text("utf-8"))
    except UnicodeDecodeError:
        raise MetadataError(f"{file} is not the text of a program; str(routine.program(...)) makes one") from None
    except ProtocolError as error:
        raise MetadataError(f"{file}: {error.message}") from None


def check(program: Program, given: dict[str, str], captured: dict[str, str] | None, outputs: Sequence[Path]) -> None:
    """Check that the given files are those the program needs. `captured` is None if its tensors are bound already."""
    if program.callbacks:
        raise MetadataError(
            "the program calls Python functions (effect), which do not exist in this process: use print instead"
        )
    check_names(given, [source.name for source in program.parameters], "input")
    if captured is not None:
        check_names(captured, [source.name for source in program.captured], "tensor")
    if len(outputs) > len(program.results):
        raise click.UsageError(
            f"--output is given {len(outputs)} times, but the program has {len(program.results)} results"
        )


def linked_on(
    session: Session, program: Program, slots: dict[str, str], captured: dict[str, str], passes: list[str]
) -> tuple[LinkedProgram, dict[str, str]]:
    """The program linked to its captured tensors, and the device of each slot."""
    homes = {f"d{n}": slots.get(f"d{n}") or session.devices[0] for n in range(program.devices)} | slots
    tensors = loaded(session, program.captured, captured, homes)
    return session.link(program, devices=homes, tensors=tensors, passes=passes), homes


def looked_up(session: Session, name: str) -> tuple[LinkedProgram, dict[str, str]]:
    """The routine of that name as a function of positional tensors and named numbers, and the device of each slot."""
    from ...linking.linked_routine import LinkedRoutine
    from ...linking.linking import LinkedProgram

    found = session.lookup(name)
    linked = found.flat if isinstance(found, LinkedRoutine) else found
    if not isinstance(linked, LinkedProgram):
        raise MetadataError(f"{name} is the name of a tensor, not of a routine; `tensord names` lists them")
    return linked, {f"d{n}": device for n, device in enumerate(linked.devices)}


def pairs(given: Sequence[str], what: str) -> dict[str, str]:
    """`NAME=VALUE` texts as a dict, in their order."""
    values: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise click.BadParameter(f"--{what} {text!r} is not NAME=VALUE")
        if name in values:
            raise click.BadParameter(f"--{what} names {name} twice")
        values[name] = value
    return values


def names_in(passes: str | None) -> list[str]:
    """The names between commas; all passes by default."""
    return ["all"] if passes is None else [name.strip() for name in passes.split(",") if name.strip()]


def check_names(given: dict[str, str], wanted: Sequence[str], what: str) -> None:
    """Check that every name is given, and no other."""
    for name in wanted:
        if name not in given:
            raise click.UsageError(f"the program needs --{what} {name or 'NAME'}=FILE")
    for name in given:
        if name not in wanted:
            raise click.BadParameter(f"the program has no {what} {name}; it has {', '.join(wanted) or 'none'}")


def loaded(session: Session, sources: Sequence[Any], files: dict[str, str], homes: dict[str, str]) -> dict[str, Any]:
    """The arrays of the files as tensors by name, on the devices that the program gives them."""
    tensors = {}
    for source in sources:
        array = array_in(files[source.name])
        tensors[source.name] = session.asarray(array, device=homes[f"d{source.device}"])
    return tensors


def array_in(path: str) -> Any:
    """The array of a .npy file. Nothing in it is unpickled."""
    from ....interpreter.files.npy import ARRAY_NAME, MAGIC, read_npy
    from ....interpreter.files.open_file import open_path
    from ....interpreter.files.values import read_array

    with open_path(path) as file:
        if file.peek(0, min(file.size, len(MAGIC))) != MAGIC:
            raise MetadataError(f"{path} is not a .npy file; numpy.save writes one")
        entry = read_npy(file, raw=False)[ARRAY_NAME]
        if entry.meta is None:
            raise MetadataError(f"{path} is not a .npy file of numbers: it {entry.error}")
        return read_array(file, entry)


def save(array: Any, path: Path) -> None:
    """Write the array to a .npy file of exactly that name."""
    import numpy as np

    with path.open("wb") as file:
        np.save(file, array)


def number(name: str, text: str) -> Any:
    """A number as Python writes it."""
    for kind in (int, float, complex):
        try:
            return kind(text)
        except ValueError:
            continue
    raise click.BadParameter(f"--number {name}: {text!r} is not a number")


def tell(program: Program, arrays: Sequence[Any], outputs: Sequence[Path], report: Any) -> None:
    rows = [
        {"shape": list(array.shape), "dtype": array.dtype.name, "file": str(outputs[n]) if n < len(outputs) else None}
        for n, array in enumerate(arrays)
    ]
    if in_json():
        values = [array.tolist() if row["file"] is None else None for array, row in zip(arrays, rows, strict=True)]
        results = [{**row, "values": value} for row, value in zip(rows, values, strict=True)]
        print_json({"program": program.digest, "results": results, "report": report})
        return
    for value, array, row in zip(program.results, arrays, rows, strict=True):
        where = f"-> {row['file']}" if row["file"] else f"=\n{array}"
        click.echo(f"%{value} {array.dtype.name}{list(array.shape)} {where}")
    if report is not None:
        click.echo(str(report))

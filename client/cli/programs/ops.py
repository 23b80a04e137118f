"""`tensord ops`: the available ops, from the table of their definitions; no daemon is asked."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ..drawing.figures import plural
from ..drawing.tables import Column, print_table
from ..line import options
from ..line.options import in_json, print_json, tell

if TYPE_CHECKING:
    from ....interpreter.schema.op_table import Description

UNKNOWN = 2  # the exit code for an unknown op
_LABEL_WIDTH = 14


@click.command()
@click.argument("name", required=False, help="Describe only this op.")
@options.as_json
def ops(name: str | None) -> None:
    """List all ops, or describe one in detail.

    Exits with 2 if there is no such op.

    Example: tensord ops matmul
    """
    from ....interpreter.op_descriptions import read_table

    described = read_table()
    if name is None:
        # `with_lacks` imports CuPy, which takes long: only for JSON, and for a single op.
        found = described.values()
        tell([with_lacks(op) for op in found] if in_json() else found, _list)
    elif name in described:
        tell(with_lacks(described[name]), _describe)
    else:
        _fail_unknown(name, described)


def _fail_unknown(name: str, names: Iterable[str]) -> NoReturn:
    from ....interpreter.schema.suggestions import similar

    hint = similar(name, names)
    error = f"unknown op {name!r}{hint}"
    if in_json():
        print_json({"error": error})
    else:
        click.echo(f"tensord: {error}{'' if hint else '; `tensord ops` lists all'}", err=True)
    raise click.exceptions.Exit(UNKNOWN)


# -- all of them -------------------------------------------------------------------------------------------------------


def _list(ops: Collection[Description]) -> None:
    from ....interpreter.schema.op_table import by_family, shown

    wraps = sys.stdout.isatty()  # in a pipe, a line is as long as necessary
    columns = (
        Column("op", itemgetter("name")),
        Column("operands", lambda op: ", ".join(map(shown, op["operands"])), wraps),
        Column("what it does", itemgetter("summary"), wraps),
    )
    for family, members in by_family(ops).items():
        print_table(columns, members, title=family)
    click.echo(f"{plural(len(ops), 'op')}; `tensord ops NAME` describes one")


# -- one ---------------------------------------------------------------------------------------------------------------


def with_lacks(op: Description) -> Description:
    """The description with "lacks": installed array module -> the function of the op that it lacks, or None."""
    cupy = _cupy()
    if cupy is None:
        return {**op, "lacks": {}}
    from ....interpreter.schema.opdef import lacks

    return {**op, "lacks": {"cupy": lacks(cupy, op["ufunc"], op["needs"])}}


def _cupy() -> Any:
    """CuPy, or None if the import fails; `tensord doctor` says why."""
    with suppress(Exception):
        import cupy

        return cupy
    return None


def _describe(op: Description) -> None:
    click.echo(f"{op['name']}: {op['summary']}\n")
    for label, text in _lines(op):
        click.echo(f"  {label:<{_LABEL_WIDTH}}{text}")


def _lines(op: Description) -> Iterator[tuple[str, str]]:
    yield "family", op["family"]
    yield from _labelled("operands", _operand_texts(op) or ["none"])
    yield from _labelled("attributes", _attribute_texts(op) or ["none"])
    yield "gives", _gives(op)
    if op["view"]:
        yield "memory", "its operand's, where strides can express it, until one of the two is written"
    elif op["elementwise"]:
        yield "memory", "may be that of an operand, with out="
    elif op["partial"]:
        yield "memory", "out= is its first operand, of which only a part is written"
    if op["composite"]:
        yield "composite", "on a device without a kernel for it, it is made of other ops"
    if op["whole"] is not None:
        yield "global tensors", f"each device computes the whole op: {op['whole']}"
    yield "devices", _devices(op)


def _labelled(label: str, texts: list[str]) -> Iterator[tuple[str, str]]:
    """The texts, of which the first has the label."""
    yield from zip([label, *[""] * len(texts)], texts, strict=False)


def _operand_texts(op: Description) -> list[str]:
    from ....interpreter.schema.op_table import operands_by_dtypes

    groups = [(", ".join(names), first) for names, first in operands_by_dtypes(op)]
    width = max((len(names) for names, _ in groups), default=0)
    return [f"{names:<{width}}  {_accepted(first)}" for names, first in groups]


def _accepted(operand: Description) -> str:
    takes, dtypes = operand["takes"], operand["dtypes"]
    return takes if not dtypes or dtypes[-1] in takes else f"{takes}: {', '.join(dtypes)}"


def _attribute_texts(op: Description) -> list[str]:
    width = max((len(attribute["name"]) for attribute in op["attributes"]), default=0)
    return [
        f"{a['name']:<{width}}  {'required' if a['required'] else repr(a['default']) + ' by default'}"
        for a in op["attributes"]
    ]


def _gives(op: Description) -> str:
    if op["dynamic"]:
        known = "of a shape that the data decide" if op["results"] == 1 else "of shapes that the data decide"
    else:
        known = f"{'shape and dtype' if op['results'] == 1 else 'shapes and dtypes'} known at the call"
    return f"{plural(op['results'], 'tensor')}, {known}"


def _devices(op: Description) -> str:
    """The devices that have a kernel for the op, and what happens on the others."""
    elsewhere = "it is made of other ops" if op["composite"] else "it runs on a cpu device"
    missing = op["lacks"].get("cupy")
    if op["library"]:
        return f'those whose process has {op["library"]}, or on cuda that of CuPy: pip install "tensord[special]"'
    if missing:
        return f"cpu and sim; CuPy has no {missing}, so that for cuda {elsewhere}"
    if op["lacks"] or not op["needs"]:
        return "all"
    return f"cpu and sim, and cuda where CuPy has {' and '.join(op['needs'])}; else {elsewhere}"

"""The options by which every command that lists records selects them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ...vm.tracing.analysis.filter import Filter

Op = Annotated[str, typer.Option(help="Only this op or opcode; a pattern such as 'mat*'.", show_default=False)]
Location = Annotated[
    str, typer.Option(help="Only what was issued at a line with this in it: train.py:9.", show_default=False)
]
SpanName = Annotated[
    str, typer.Option("--span", help="Only what was issued in the span of this name or path.", show_default=False)
]
SessionId = Annotated[int | None, typer.Option("--session", help="Only this session.", show_default=False)]
Slowest = Annotated[int | None, typer.Option(min=1, help="Only so many, those that ran longest.", show_default=False)]


def chosen(op: str, location: str, span: str, session: int | None, slowest: int | None) -> Filter:
    """The filter that these options ask for."""
    from ...vm.tracing.analysis.filter import Filter

    return Filter(op, location, span, session, slowest)


def no_records(chooses: Filter) -> str:
    """A sentence for a table that has no rows: `no records match --span nonsense`."""
    from dataclasses import asdict

    given = " ".join(f"--{name} {value}" for name, value in asdict(chooses).items() if value not in {"", None})
    return f"no records match {given}" if given else "no records"

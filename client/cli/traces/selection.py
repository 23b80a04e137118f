"""The options by which every command that lists records selects them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce, wraps
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from ....vm.tracing.analysis.recorded.filter import Filter

_text: Final = partial(click.option, default="", show_default=False)
_OPTIONS: Final = (
    _text("--op", help="Only this op or opcode; a pattern such as 'mat*'."),
    _text("--location", help="Only what was issued at a line with this in it: train.py:9."),
    _text("--span", help="Only what was issued in the span of this name or path; 'step */forward' is any step's."),
    click.option("--session", type=int, help="Only this session, with what the machine planned for it."),
    click.option("--slowest", type=click.IntRange(min=1), help="Only so many, those that ran longest."),
)


def selects(command: Callable[..., None]) -> Callable[..., None]:
    """Give the command these options, which it gets as one filter, `chooses`."""

    @wraps(command)
    def with_filter(
        *, op: str, location: str, span: str, session: int | None, slowest: int | None, **others: Any
    ) -> None:
        from ....vm.tracing.analysis.recorded.filter import Filter

        command(chooses=Filter(op, location, span, session, slowest), **others)

    return reduce(lambda so_far, option: option(so_far), reversed(_OPTIONS), with_filter)


def no_records(chooses: Filter) -> str:
    """A sentence for a table that has no rows: `no records match --span nonsense`."""
    from dataclasses import asdict

    given = " ".join(f"--{name} {value}" for name, value in asdict(chooses).items() if value not in {"", None})
    return f"no records match {given}" if given else "no records"

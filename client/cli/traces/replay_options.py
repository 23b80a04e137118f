"""Options, the choice of machines, and a difference as JSON, for both `trace replay` and `trace bisect`."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from ..line import options

if TYPE_CHECKING:
    from ...replay.player import ValueDifference

NO_SIDE: Final = "none"
MACHINE: Final = "vm, serial, devices such as cpu:0,sim:0, or a daemon's address"

RECORDING: Final = click.argument("file", type=options.FILE, help="A recording, of `trace record --values`.")
MAP: Final = click.option(
    "--map", "mapping", multiple=True, metavar="OLD=NEW", help="Run on device NEW what ran on OLD; may be repeated."
)
WITHIN: Final = click.option(
    "--within",
    type=click.FloatRange(0),
    metavar="ROUNDINGS",
    help="Floats may differ by so many roundings of the largest element. Default: 0, and 64 if a GPU takes part.",
)
PLUGINS: Final = click.option("--plugins", multiple=True, metavar="NAME", help="Load this plugin; may be repeated.")


class Machine(click.ParamType[Any]):
    """A machine on which a recording runs."""

    name = "machine"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The machine. BadParameter if the text does not name one."""
        from ....interpreter.errors import MetadataError
        from ...replay.sides import Spec, spec_of

        if isinstance(value, Spec) or value == NO_SIDE:
            return value
        try:
            return spec_of(value)
        except MetadataError as error:
            self.fail(error.message, param, ctx)


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress the log of unhandled failures in a `with` block, since they belong to the recorded program."""
    logger = logging.getLogger("tensord")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def load(plugins: Sequence[str]) -> None:
    """Load plugins by name."""
    from ...embedded.local import load_plugins

    load_plugins(list(plugins))


def pairs(mapping: Sequence[str]) -> dict[str, str]:
    """Recorded device -> the device that replaces it. BadParameter if a text is not OLD=NEW."""
    parts = [one.partition("=") for one in mapping]
    for old, equals, new in parts:
        if not (old and equals and new):
            raise click.BadParameter(f"--map is OLD=NEW, such as cuda:0=cpu:0, not {old + equals + new!r:.60}")
    return {old: new for old, _, new in parts}


def plain(difference: ValueDifference) -> dict[str, Any]:
    """A difference as JSON."""
    return {
        "step": difference.step.number,
        "session": difference.step.session,
        "op": difference.op,
        "location": difference.line,
        "span": difference.span,
        "against": difference.against,
        **difference.difference._asdict(),
    }

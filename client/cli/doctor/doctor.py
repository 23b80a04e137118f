"""`tensord doctor`: finds common problems and says what to do about each. Works without a running daemon."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Final

import click

from ..drawing.figures import plural
from ..drawing.tables import Column, print_table
from ..line import options
from ..line.options import tell
from .daemon import check_daemon, check_invariants
from .findings import CheckResult, Level, guarded
from .gpu import NAME as KERNELS
from .gpu import check_gpu, check_kernels, has_cuda
from .system import SYSTEM


@click.command()
@options.address
@options.as_json
@click.option(
    "--deep",
    is_flag=True,
    help="Check the invariants of the running daemon, too. The daemon serves no client during the check.",
)
@click.option(
    "--checkpoints", type=options.FILE, help="Check this directory of checkpoints; with --deep, every byte of them."
)
def doctor(address: str | None, *, deep: bool, checkpoints: Path | None) -> None:
    """Find common problems, and say what to do.

    Exits with 1 if something is wrong; warnings alone do not count.

    Example: tensord doctor
    Example: tensord doctor --deep
    Example: tensord doctor --checkpoints /var/lib/tensord
    """
    findings = list(examine(address))
    if checkpoints is not None:
        from .checkpoints import check_checkpoints

        findings += guarded("checkpoints", lambda: check_checkpoints(checkpoints, deep=deep))
    if deep:
        findings += guarded("invariants", lambda: check_invariants(address))
    tell([finding._asdict() for finding in findings], show_findings)
    if any(finding.level is Level.FAIL for finding in findings):
        raise click.exceptions.Exit(1)


def examine(address: str | None) -> Iterator[CheckResult]:
    """All findings. A check that raises becomes a finding, too."""
    of_daemon = list(guarded("daemon", lambda: check_daemon(address)))
    yield from of_daemon
    for check in (*SYSTEM, check_gpu):
        yield from guarded(check.__name__.removeprefix("check_").replace("_", " "), check)
    if has_cuda() and not any(finding.check == KERNELS for finding in of_daemon):
        yield from guarded(KERNELS, check_kernels)


def show_findings(findings: Sequence[Mapping[str, str]]) -> None:
    levels = Counter(finding["level"] for finding in findings)
    wrong, doubtful = levels[Level.FAIL], levels[Level.WARN]
    bad = f"{plural(wrong, 'problem')}, {plural(doubtful, 'warning')}"
    print_table(COLUMNS, findings, caption=bad if wrong or doubtful else "nothing is wrong")


COLUMNS: Final = (
    Column("", itemgetter("level")),
    Column("check"),
    Column("found", itemgetter("message"), folds=True),
    Column("what to do", itemgetter("advice"), folds=True),
)

"""`tensord warm`: compiles the kernels of ops before programs wait for them."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ....interpreter.errors import MetadataError
from ....interpreter.types.device_names import kind_of
from ....interpreter.wire.addresses import find_daemon, is_local
from ..drawing.figures import count, duration, plural
from ..drawing.tables import Column, print_table
from ..drawing.terminal import waiting
from ..line import options
from ..line.options import tell

if TYPE_CHECKING:
    from ....interpreter.schema.sample_calls import Wish
    from ...session.session import Session
    from .warming import WarmedCalls

DEFAULT_DEVICE = "cuda:0"  # the device of this process, if there is no daemon
_SHAPE = re.compile(r"\d+(x\d+)*")


@click.command()
@click.argument("ops", nargs=-1, metavar="[OP]...")
@click.option("--all", "everything", is_flag=True, help="Every op.")
@click.option("--dtype", "dtypes", multiple=True, help="Only for operands of this dtype; may be given several times.")
@click.option(
    "--shape", "shapes", multiple=True, metavar="NxM", help="The shape of an operand, in the order of the operands."
)
@click.option("--attribute", "attributes", multiple=True, metavar="NAME=VALUE", help="An attribute; the value is JSON.")
@click.option("--device", "devices", multiple=True, help="On this device; by default on each cuda device.")
@click.option("--config", type=options.FILE, help="Also compile the ops that this configuration lists.")
@click.option(
    "--address",
    envvar="TENSORD_ADDRESS",
    show_envvar=True,
    help="A daemon's address. Default: the running daemon, else this process.",
)
@options.as_json
def warm(
    *,
    ops: Sequence[str],
    everything: bool,
    dtypes: Sequence[str],
    shapes: Sequence[str],
    attributes: Sequence[str],
    devices: Sequence[str],
    config: Path | None,
    address: str | None,
) -> None:
    """Compile the kernels of these ops ahead of their first use.

    OP is a name, a name with dtypes (matmul:float32,float64), or a pattern ('log*'). Each op is called with small
    operands of each dtype: on the running daemon, or, without one, in this process, which fills the directory of
    kernels that a daemon reads. An op that also needs a shape or attributes is reported and left out. Ctrl-C ends the
    command, and the kernels compiled so far stay. Exits with 1 if a call has failed, or if an op that was named was
    left out.

    Example: tensord warm add matmul:float32
    Example: tensord warm sum --shape 64x1024 --attribute axis=1
    Example: tensord warm --all --dtype float32
    Example: tensord warm --config tensord.toml
    """
    from .warming import WarmedCalls

    if (everything and ops) or not (everything or ops or config):
        raise click.UsageError("name ops, or give --all, or a --config that lists ops")
    wishes = [wished(op, dtypes, shapes, attributes) for op in (*ops, *["*"] * everything)]
    listed, cache = listed_in(config)
    wishes += listed
    with session_for(address, devices, cache) as session, waiting("compiling", count) as shown:
        directory = directory_for(session)
        before = kernels_in(directory)
        warming = WarmedCalls(session)
        warming.run(wishes, devices or compiling(session), shown)
    tell(report_of(warming, directory, before), show)
    if warming.interrupted:
        raise KeyboardInterrupt
    named = {wish.op for wish in wishes if not wish.is_pattern}
    if any(one.error for one in warming.called) or any(one.op in named for one in warming.skipped):
        raise click.exceptions.Exit(1)


def report_of(warming: WarmedCalls, directory: Path | None, before: int) -> dict[str, Any]:
    """The report on compiled kernels. `before`: the number of kernels in the directory when the warming began."""
    kernels = kernels_in(directory)
    return {
        "called": [one._asdict() for one in warming.called],
        "skipped": [one._asdict() for one in warming.skipped],
        "interrupted": warming.interrupted,
        "directory": str(directory or ""),
        "kernels": kernels,
        "new": kernels - before,
    }


def wished(op: str, dtypes: Sequence[str], shapes: Sequence[str], attributes: Sequence[str]) -> Wish:
    from ....interpreter import ops as _ops  # noqa: F401 - fills the registry
    from ....interpreter.schema.sample_calls import wish_of

    name, _, own = op.partition(":")
    given = dict(map(attribute, attributes))
    table = {
        "op": name,
        "dtypes": own.split(",") if own else list(dtypes),
        "shapes": list(map(shape, shapes)),
        "attributes": given,
    }
    return wish_of(table)


def listed_in(config: Path | None) -> tuple[list[Wish], Path | None]:
    """The ops that a configuration lists, and its directory of compiled kernels, if set."""
    if config is None:
        return [], None
    from ....interpreter.schema.sample_calls import wish_of
    from ....vm.service.settings.config import load

    found = load(config)
    return [wish_of(entry) for entry in found.warm], found.kernel_cache


def shape(text: str) -> list[int]:
    """`64x1024` as lengths."""
    if not _SHAPE.fullmatch(text):
        raise click.BadParameter(f"--shape {text!r} is not like 64x1024")
    return list(map(int, text.split("x")))


def attribute(text: str) -> tuple[str, Any]:
    """`NAME=VALUE`: a value that is no JSON is a text."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise click.BadParameter(f"--attribute {text!r} is not NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def session_for(address: str | None, devices: Sequence[str], cache: Path | None) -> AbstractContextManager[Session]:
    """A session with the daemon at the address, or the one that runs, else in this process."""
    from ....streams.cuda import kernel_cache
    from ..daemon.patient import program_session

    where, named = address or find_daemon(), devices or [DEFAULT_DEVICE]
    if where is None and any(map(compiles, named)):
        kernel_cache.store_kernels_in(kernel_cache.directory_of(cache))
    return program_session(where, named)


def compiles(device: str) -> bool:
    """Return whether kernels of a device of that name are compiled at their first call."""
    from ....streams.catalogue import KINDS

    kind = KINDS.get(kind_of(device))
    return kind is not None and kind.compiles


def compiling(session: Session) -> list[str]:
    """The devices whose kernels are compiled."""
    names = [name for name in session.devices if compiles(name)]
    if not names:
        raise MetadataError(
            f"none of the devices {', '.join(session.devices)} compiles kernels: name another one (--device)"
        )
    return names


def directory_for(session: Session) -> Path | None:
    """The directory of compiled kernels; None if there is none, or if it is on another machine."""
    from ....streams.cuda import kernel_cache

    status = session._core.answers.query("status")
    if is_local(status["address"]) and any(map(compiles, session.devices)):
        return kernel_cache.directory_of()
    found = Path(status["kernels"])
    return found if status["kernels"] and found.is_dir() else None  # otherwise it is on another machine


def kernels_in(directory: Path | None) -> int:
    from ....streams.cuda import kernel_cache

    return 0 if directory is None else kernel_cache.cached_kernels(directory).kernels


# -- for people --------------------------------------------------------------------------------------------------------


def show(report: dict[str, Any]) -> None:
    rows = [row(list(calls)) for _, calls in groupby(report["called"], key=itemgetter("device", "op"))]
    seconds = sum(one["seconds"] for one in report["called"])
    cache = f"; {report['directory']} has {plural(report['kernels'], 'kernel')}, {count(report['new'])} of them new"
    print_table(
        COLUMNS,
        rows,
        caption=f"{plural(len(report['called']), 'call')} of {plural(len(rows), 'op')} in {duration(seconds)}"
        f"{cache if report['directory'] else ''}{', interrupted' if report['interrupted'] else ''}",
        empty="nothing was compiled",
    )
    reasons = defaultdict(list)
    for one in report["skipped"]:
        reasons[one["reason"].removeprefix(f"{one['op']} ")].append(one["op"])
    rows = [{"reason": reason, "ops": ", ".join(names)} for reason, names in reasons.items()]
    if rows:
        print_table(LEFT_OUT, rows, title="not called:")


def row(calls: Sequence[dict[str, Any]]) -> dict[str, str]:
    """The calls of one op on one device."""
    times = [one["seconds"] for one in calls]
    failed = [one for one in calls if one["error"]]
    more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
    return {
        "op": calls[0]["op"],
        "device": calls[0]["device"],
        "calls": count(len(calls)),
        "took": duration(sum(times)),
        "longest": duration(max(times)),
        "failed": f"{failed[0]['call']}: {failed[0]['error']}{more}" if failed else "",
    }


COLUMNS = (
    Column("op"),
    Column("device"),
    Column("calls>"),
    Column("took>"),
    Column("longest>", spare=1),
    Column("failed", folds=True),
)
LEFT_OUT = (Column("ops", folds=True), Column("reason", folds=True))

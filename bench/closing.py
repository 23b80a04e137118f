"""The longest wait of a session while another session with 100,000 tensors ends, until all of them are released.

The machine releases the tensors in portions, between which it serves other sessions. Embedded, another thread closes
the session; through a daemon, another process does. The tensors are on the host only; or on three tiers, each of
them full: the accelerator, which is their home, the host, and the store. In that case, the waiting session has ops
on both devices. Its first ops use memory that it has; as soon as tensors are being released, each op needs some
more.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import cycle
from typing import Any, TypeAlias

import numpy as np

import tensord as td
from examples.own_daemon import own_daemon
from tensord.streams.disk.spill import whole_pages

from .checkpoints import directory
from .latency import sample
from .measure import Row, Settings, median
from .partner import Partner
from .small_ops import LENGTH

TENSORS = 100_000
WARM_UP = 1_000
NBYTES = 4 * LENGTH  # of a tensor
CHUNK = 50  # ops between two checks of how many tensors are left
TIERS = 3  # on which values may be at the same time
FEW = 50  # tensors of the waiting session, besides the results of its ops

Machine: TypeAlias = list[dict[str, Any]]
# `Begin` makes tensors in the other session; one `End` closes that session, the other one waits for its end.
Begin: TypeAlias = Callable[[int], None]
End: TypeAlias = Callable[[], None]


def measure(settings: Settings) -> list[Row]:
    """Milliseconds of the longest op with its result until all tensors are released, against the longest of as many
    ops alone."""
    count = settings.size(TENSORS, 1_000)
    with directory() as folder:
        return [
            measure_close(settings, "longest beside a close", count, [{"name": "cpu:0", "blas_threads": 1}]),
            measure_close(settings, "with three tiers", count, three_tiers(count, str(folder.resolve()))),
        ]


def three_tiers(count: int, directory: str) -> Machine:
    """A machine whose two devices each hold a third of the tensors, and whose store holds the rest."""
    share = NBYTES * count // 3
    store = {"name": "store:0", "directory": directory, "quota": 2 * whole_pages(NBYTES) * count // 3}
    return [{"name": "cpu:0", "blas_threads": 1, "memory": share}, {"name": "sim:0", "memory": share}, store]


def measure_close(settings: Settings, name: str, count: int, machine: Machine) -> Row:
    """Measure while another session with `count` tensors is closed."""
    row = Row(name, "ms", None, None, 20.0, 2.0, baseline_name="alone")
    if settings.baseline_only:
        return row
    row.runs = {"ours": [], "baseline": [], "ops": []}
    lay: dict[str, int] = {}
    with neighbour(settings, machine) as (session, begin, end, await_end):
        ones = np.ones(LENGTH, np.float32)
        tensors = cycle([session.asarray(ones, device=device) for device in session.devices])

        made: list[td.Tensor] = []

        def op() -> object:
            tensor = next(tensors)
            return (tensor + tensor).numpy()

        def op_that_needs_memory() -> object:
            tensor = next(tensors)
            made.append(tensor + tensor)
            return made[-1].numpy()

        for turn in settings.turns:
            begin(count if turn else WARM_UP)
            lay = held(session)
            sample(op, CHUNK)
            settings.collect()
            end()
            beside = [float(sample(op, CHUNK).max())]
            while sum(held(session).values()) > FEW + TIERS * len(made):
                beside.append(float(sample(op_that_needs_memory, CHUNK).max()))
            await_end()
            settings.collect()
            alone = [float(sample(op, CHUNK).max()) for _ in beside]
            made.clear()
            if turn > 0:
                row.runs["ours"].append(max(beside) / 1e3)
                row.runs["baseline"].append(max(alone) / 1e3)
                row.runs["ops"].append(len(beside) * CHUNK)
    row.ours, row.baseline = median(row.runs, "ours"), median(row.runs, "baseline")
    where = ", ".join(f"{number:,} on {device}" for device, number in lay.items())
    row.note = f"{median(row.runs, 'ops'):,.0f} ops of the other session until {where} were released"
    return row


def held(session: td.Session) -> dict[str, int]:
    """The number of tensors of that size on each tier that has any; in the store each takes a page."""
    devices = session.stats()["devices"]
    sizes = {name: whole_pages(NBYTES) if name.startswith("store:") else NBYTES for name in devices}
    return {name: device["allocated"] // sizes[name] for name, device in devices.items() if device["allocated"]}


@contextmanager
def neighbour(settings: Settings, machine: Machine) -> Iterator[tuple[td.Session, Begin, End, End]]:
    """The waiting session, and three functions for another session: make many tensors, close it, wait for its end."""
    if settings.through_daemon:
        with (
            own_daemon(config=config_of(machine)) as daemon,
            td.connect(daemon.address) as session,
            Partner("client", daemon.address) as other,
        ):
            other.hear()
            yield session, lambda count: told(other, f"hold {count}"), lambda: other.tell("leave"), lambda: heard(other)
        return
    with td.connect("local:closing", devices=machine) as session:
        here = Here()
        yield session, here.begin, here.end, here.await_end


def config_of(machine: Machine) -> str:
    """A daemon's configuration with that machine."""
    return f"devices = [{', '.join(map(table, machine))}]"


def table(options: Mapping[str, Any]) -> str:
    """Options as an inline table of TOML."""
    return f"{{{', '.join(f'{name} = {json.dumps(value)}' for name, value in options.items())}}}"


def told(other: Partner, line: str) -> None:
    """Tell another process to do something, and wait until it has done so."""
    other.ask(line)


def heard(other: Partner) -> None:
    """Wait until another process has finished its order."""
    other.hear()


class Here:
    """Another session on the machine of this process, closed by a thread."""

    def begin(self, count: int) -> None:
        """Make the tensors."""
        self.session = td.connect("local:closing")
        self.tensors = small_tensors(self.session, count)
        self.thread = threading.Thread(target=self.session.close)

    def end(self) -> None:
        """Let the thread close the session."""
        self.thread.start()

    def await_end(self) -> None:
        """Wait until it is closed. Its handles are dropped only then, since their cost is not the machine's."""
        self.thread.join()
        self.tensors.clear()


def small_tensors(session: td.Session, count: int) -> list[td.Tensor]:
    """`count` small tensors, whose home is the machine's last device."""
    x = session.asarray(np.ones(LENGTH, np.float32), device=session.devices[-1])
    tensors = [x + x for _ in range(count)]
    session.sync()
    return tensors

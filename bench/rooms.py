"""`python -m bench.rooms`: the number of rooms (folders) that a piece of work passes through.

`--list TRIP` prints the calls, indented. A profiler counts the Python calls of six trips, on all threads of the
machine. An *entry* is a call into another folder. An *upward* call goes to a higher floor or room, in the order of
the import contracts in `pyproject.toml`, which docs/architecture.md draws. Callers outside of the package are
skipped. Locations are known and plans are made before a trip is counted. Threads take turns differently each time,
so the smallest counts are reported.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import tomllib
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

import numpy as np

import tensord as td
from tensord.vm.service.access.listen_address import listen_guards
from tensord.vm.service.daemon import Service
from tensord.vm.service.process.notify import Notifier
from tensord.vm.service.process.signals import Signals
from tensord.vm.service.settings.config import Config

ROOT: Final = Path(__file__).resolve().parent.parent
FLOORS: Final = ("client/", "vm/", "streams/", "interpreter/")
WARM: Final = 12  # runs of a trip before it is counted
STEADY: Final = 40  # a trip has been counted after so many runs without a smaller count
LENGTH: Final = 16
LARGE: Final = 1 << 20  # elements; a device holds two and a half such tensors

Step = Callable[[], object]


class Counts(NamedTuple):
    """The counts of a trip."""

    calls: int
    files: int
    entries: int
    upwards: int


class ProfiledCall(NamedTuple):
    """One call: its depth, its file and name, and the file of its caller."""

    depth: int
    path: str
    name: str
    source: str


@dataclass
class Profiler:
    """Records the calls of the package's functions while it is `on`, on all threads that start in a block of
    `watching`."""

    on: bool = False
    calls: list[ProfiledCall] = field(default_factory=list)

    def note(self, frame: FrameType, event: str, _argument: object) -> None:
        """The profile function."""
        if event != "call" or not self.on:
            return
        path = path_of(frame.f_code.co_filename)
        if path:
            depth, source = callers(frame)
            self.calls.append(ProfiledCall(depth, path, frame.f_code.co_name, source))

    @contextmanager
    def watching(self, *, caller: bool) -> Iterator[None]:
        """Profile the threads that start in the block; with `caller`, also the calling thread."""
        threading.setprofile(self.note)
        if caller:
            sys.setprofile(self.note)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def take(self, step: Step, prepare: Step) -> list[ProfiledCall]:
        """The calls of one step."""
        prepare()
        self.calls = []
        self.on = True
        try:
            step()
        finally:
            self.on = False
        return self.calls


@cache
def path_of(file: str) -> str:
    """The path of a file of the package, from its root; "" for any other file."""
    path = Path(file).resolve()
    inside = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else ""
    return inside if inside.startswith(FLOORS) else ""


def callers(frame: FrameType) -> tuple[int, str]:
    """The number of callers of a frame that are in the package, and the file of the nearest one."""
    depth, source, outer = 0, "", frame.f_back
    while outer is not None:
        path = path_of(outer.f_code.co_filename)
        if path:
            depth, source = depth + 1, source or path
        outer = outer.f_back
    return depth, source


def is_entry(call: ProfiledCall) -> bool:
    """Whether the call goes into another folder."""
    return Path(call.path).parent != Path(call.source).parent


@cache
def layers() -> Mapping[str, Mapping[str, int]]:
    """For each container, the rank of each layer in it, from the contracts of import-linter. 0 is the highest."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    ranks: dict[str, dict[str, int]] = {}
    for contract in contracts:
        if contract["type"] == "layers":
            for container in contract.get("containers", ["tensord"]):
                within = ranks.setdefault(container, {})
                for rank, layer in enumerate(contract["layers"]):
                    names = [name.strip().removeprefix(f"{container}.") for name in layer.split("|")]
                    within |= dict.fromkeys(names, rank)
    return ranks


@cache
def is_upward(path: str, source: str) -> bool:
    """Whether a call from one file to another goes to a higher floor or room."""
    target, origin = (["tensord", *Path(name).with_suffix("").parts] for name in (path, source))
    shared = 0
    while shared < min(len(target), len(origin)) and target[shared] == origin[shared]:
        shared += 1
    ranks = layers().get(".".join(target[:shared]), {})
    if shared == min(len(target), len(origin)):
        return False
    ours, theirs = ranks.get(target[shared]), ranks.get(origin[shared])
    return ours is not None and theirs is not None and ours < theirs


# The upward calls of a round of the background thread. A busy machine gives it more rounds in the time of one trip.
ROUND: Final = frozenset(("look_around", "idle_flush", "pause"))


def counted(calls: list[ProfiledCall]) -> Counts:
    """The counts of a trip's calls. Upward calls of the background thread's rounds are left out."""
    entries = sum(is_entry(call) for call in calls)
    upwards = sum(is_upward(call.path, call.source) for call in calls if call.source and call.name not in ROUND)
    return Counts(len(calls), len({call.path for call in calls}), entries, upwards)


@dataclass
class Trip:
    """A piece of work on a session: `prepare` is called first, uncounted, then `step`."""

    step: Step
    prepare: Step = lambda: None


def small_op(session: td.Session) -> Trip:
    """A small op and its value."""
    x = session.asarray(np.ones(LENGTH, np.float32))

    def compute_and_read() -> None:
        (x + x).numpy()

    return Trip(compute_and_read, session.sync)


def sim_op(session: td.Session) -> Trip:
    """An op on a `sim` device, and a wait for it."""
    x = session.asarray(np.ones(LENGTH, np.float32), device="sim:0")

    def compute_and_wait() -> None:
        (x + x).wait()

    return Trip(compute_and_wait, session.sync)


def run_of_routine(session: td.Session) -> Trip:
    """A run of a routine, and `item`."""
    x = session.asarray(np.ones(LENGTH, np.float32))
    routine = session.routine(lambda one: session.xp.sum(one * 2 + one))
    return Trip(lambda: routine(x).item(), session.sync)


def evicting_op(session: td.Session) -> Trip:
    """An op on a full `sim` device, whose result evicts another value."""
    values = [session.asarray(np.ones(LARGE, np.float32), device="sim:0") for _ in range(2)]

    def evict() -> None:
        (values[0] + values[0]).wait()

    def fill() -> None:
        values[1] += 1  # brings the value back to the device, which drops its copy elsewhere
        session.sync()

    return Trip(evict, fill)


def checkpoint(session: td.Session) -> Trip:
    """A checkpoint of four names, of which one has changed."""
    folder = tempfile.mkdtemp(prefix="rooms-")
    values = [session.asarray(np.ones(LENGTH, np.float32)) for _ in range(4)]
    for number, value in enumerate(values):
        session.publish(f"rooms {number}", value)

    def prepare() -> None:
        values[0][...] = values[0] + 1
        session.sync()

    return Trip(lambda: session.checkpoint(folder).wait(), prepare)


DELAY: Final = 0.004  # seconds of work on the device, so long that a thread that waits for it sleeps
SIM: Final = {"name": "sim:0", "inline": False, "compute_delay": DELAY, "latency": DELAY}
FULL: Final = {**SIM, "memory": 10 * LARGE}
TRIPS: Final[dict[str, tuple[Callable[[td.Session], Trip], list[str | Mapping[str, object]], bool]]] = {
    "small op": (small_op, ["cpu:0"], False),
    "sim op": (sim_op, ["cpu:0", SIM], False),
    "sim op, daemon": (sim_op, ["cpu:0", SIM], True),
    "run": (run_of_routine, ["cpu:0"], False),
    "eviction": (evicting_op, ["cpu:0", FULL], False),
    "checkpoint": (checkpoint, ["cpu:0"], False),
}


@contextmanager
def serving(devices: list[str | Mapping[str, object]]) -> Iterator[str]:
    """The address of a daemon that runs on a thread of this process."""
    with tempfile.TemporaryDirectory(prefix="rooms-") as folder:
        address = f"ipc://{folder}/socket"
        config = Config(addresses=(address,), devices=tuple(devices))
        heard = Signals()
        service = Service(config, listen_guards(config.listen, None, None), Notifier(), heard)
        thread = threading.Thread(target=service.run)
        thread.start()
        try:
            yield address
        finally:
            heard.request_end("the end of the trips", again=True)
            thread.join()
            service.close()


@contextmanager
def session_of(profiler: Profiler, devices: list[Any], *, daemon: bool) -> Iterator[td.Session]:
    """A session whose machine is profiled: together with the caller, or, as a daemon, alone."""
    if not daemon:
        with profiler.watching(caller=True), td.connect("local", devices=devices) as session:
            yield session
        return
    with profiler.watching(caller=False):
        daemon_of = serving(devices)
        address = daemon_of.__enter__()
    try:
        with td.connect(address) as session:
            yield session
    finally:
        daemon_of.__exit__(None, None, None)


def taken(name: str) -> Generator[list[ProfiledCall], None, None]:
    """The calls of one run of a trip after another."""
    make, devices, daemon = TRIPS[name]
    profiler = Profiler()
    with session_of(profiler, devices, daemon=daemon) as session:
        trip = make(session)
        for _ in range(WARM):
            profiler.take(trip.step, trip.prepare)
        while True:
            yield profiler.take(trip.step, trip.prepare)


def count(name: str, steady: int) -> Counts:
    """The smallest counts of a trip, after `steady` runs without a smaller count."""
    with closing(taken(name)) as takes:
        least, since = counted(next(takes)), 0
        while since < steady:
            found = Counts(*map(min, zip(least, counted(next(takes)), strict=True)))
            least, since = found, since + 1 if found == least else 0
    return least


def listed(calls: list[ProfiledCall]) -> Iterator[str]:
    """The calls in their order: `>` marks an entry, `^` an upward call."""
    least = min(call.depth for call in calls)
    for call in calls:
        mark = "^" if call.source and is_upward(call.path, call.source) else ">" if is_entry(call) else " "
        yield f"{mark} {'  ' * (call.depth - least)}{call.path}:{call.name}"


def main() -> None:
    """Print the table, or the calls of one trip."""
    parser = argparse.ArgumentParser(prog="python -m bench.rooms", description=__doc__)
    parser.add_argument("--list", choices=TRIPS, help="print the calls of this trip")
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    parser.add_argument(
        "--steady", type=int, default=STEADY, metavar="N", help=f"stop after N runs without a smaller count ({STEADY})"
    )
    asked = parser.parse_args()
    if asked.list:
        sys.stdout.writelines(f"{line}\n" for line in listed(min(islice(taken(asked.list), STEADY), key=len)))
        return
    by_trip = {name: count(name, asked.steady)._asdict() for name in TRIPS}
    if asked.json:
        sys.stdout.write(json.dumps(by_trip))
        return
    for name, counts in by_trip.items():
        text = ", ".join(f"{label} {value}" for label, value in counts.items())
        sys.stdout.write(f"{name}: {text}\n")


if __name__ == "__main__":
    main()

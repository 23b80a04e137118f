"""Random programs over two machines in one process, which send each other values, in random interleavings.

A program is that of one client with a session on each machine. The oracle is one serial machine that plays both nodes,
in the order of the client's program, with `to_device` in place of the links. On the machines a RECV may come before
steps that precede its SEND, so that the two halves of several transfers come in opposite orders; batches, kernels,
reports and the links' steps happen in an order drawn from the seed. The modes:

- early: each node has twice the memory that its steps need one after the other
- tight: exactly that memory, with the halves in one order; full: the same, with the halves in any order, so that memory
  need not suffice
- sims: two devices for each node; cancels, cuts: both sessions are cancelled once, the connection breaks once

`python -m tests.model.nodes --seed 7 --programs 1 --mode early` repeats a program.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tensord.interpreter.errors import CancelledError, DeviceMemoryError, NodeLost, TensordError
from tensord.interpreter.types.meta import Meta
from tensord.interpreter.wire.messages import (
    Call,
    Fetch,
    NamedMessage,
    Release,
    Restart,
    Signature,
    ToDevice,
    Upload,
    encode_message,
)
from tensord.interpreter.wire.node_messages import Recv, Send
from tensord.streams.disk.store import NAME as STORE
from tensord.streams.disk.store import StoreOptions
from tensord.streams.host.cpu import CpuOptions
from tensord.streams.links.in_memory import InMemory, pair
from tensord.streams.sim.sim import SimOptions
from tensord.vm.engine import Engine
from tensord.vm.reporting.invariants import violations
from tensord.vm.serial.engine import SerialEngine

from .streams import ModelCpu, ModelSim, ModelStore, Steering

NODES = ("node0", "node1")
SIZES = (1, 8, 64)  # rows of 2 x 2 matrices: 32 to 2048 bytes
CHECKED = 0.1  # the share of steps after which invariants are checked, since the checks take most of the time
CUT = NodeLost("node 'node1' is lost: the connection broke")


class Made(NamedTuple):
    """A tensor of the program: its number, its node and device, and its number of matrices."""

    number: int
    node: int
    device: str
    rows: int

    @property
    def meta(self) -> Meta:
        return Meta.of((self.rows, 2, 2), np.dtype("float64"))


class Step(NamedTuple):
    """A step on one node. `gives`, `takes`: tensors."""

    kind: str
    takes: tuple[Made, ...] = ()
    gives: Made | None = None
    value: Any = None


@dataclass
class Program:
    """The steps in the client's order, and the steps of each node in the node's order."""

    steps: list[Step] = field(default_factory=list)
    lists: tuple[list[Step], list[Step]] = field(default_factory=lambda: ([], []))
    kept: list[Made] = field(default_factory=list)
    cancels: bool = False
    cuts: bool = False


def make(rnd: random.Random, *, devices: Sequence[str], early: bool) -> Program:
    """A random program."""
    program, numbers = Program(), iter(range(1, 10_000))
    have: list[Made] = []

    def add(step: Step, node: int, back: int = 0) -> None:
        program.steps.append(step)
        steps = program.lists[node]
        steps.insert(max(len(steps) - back, 0), step)

    for _ in range(rnd.randint(8, 30)):
        kind = rnd.choice(("upload", "op", "op", "write", "move", "move", "move", "fail", "release"))
        if kind == "upload" or not have:
            made = Made(next(numbers), rnd.randrange(2), rnd.choice(devices), rnd.choice(SIZES))
            value = rnd.choice((0.0, 1.0, 2.0)) * np.arange(1 + made.rows * 4.0)[1:].reshape(made.rows, 2, 2)
            add(Step("upload", (), made, value), made.node)
            have.append(made)
            continue
        x = rnd.choice(have)
        like = [one for one in have if one.node == x.node and one.rows == x.rows]
        if kind in ("op", "fail"):
            y, made = rnd.choice(like), x._replace(number=next(numbers))
            add(Step("inv" if kind == "fail" else "add", (x,) if kind == "fail" else (x, y), made), x.node)
            have.append(made)
        elif kind == "write":
            add(Step("add", (x, rnd.choice(like)), x), x.node)
        elif kind == "move":
            made = Made(next(numbers), 1 - x.node, rnd.choice(devices), x.rows)
            add(Step("send", (x,), made), x.node)
            back = rnd.randrange(6) if early and rnd.random() < 0.5 else 0
            steps = program.lists[made.node]
            steps.insert(max(len(steps) - back, 0), Step("recv", (x,), made))
            have.append(made)
        else:
            add(Step("release", (x,)), x.node)
            have.remove(x)
    program.kept = have
    return program


def peak_of(steps: Sequence[Step], device: str) -> int:
    """The most bytes that the tensors of a device have at one time, if the steps run one after the other."""
    now = most = 0
    for step in steps:
        if step.kind == "release":
            now -= step.takes[0].meta.nbytes * (step.takes[0].device == device)
        elif step.kind != "send" and step.gives is not None and step.gives not in step.takes:
            now += step.gives.meta.nbytes * (step.gives.device == device)
        most = max(most, now)
    return most


# -- the oracle --------------------------------------------------------------------------------------------------------


class Writer:
    """Messages for a session: ids rise in the order in which its steps define tensors."""

    def __init__(self, device_of: Callable[[Made], str]) -> None:
        self.device_of = device_of
        self.ids: dict[int, int] = {}
        self.signatures = 0

    def new(self, made: Made) -> int:
        return self.ids.setdefault(made.number, len(self.ids) + 1)

    def call(self, op: str, takes: Sequence[Made], gives: Made) -> list[NamedMessage]:
        self.signatures += 1
        metas, written = [one.meta.plain for one in takes], gives in takes
        targets = (gives.meta.plain,) if written else None
        signature = Signature(self.signatures, op, (), metas, self.device_of(takes[0]), targets)
        inputs = [self.ids[one.number] for one in takes]
        return [signature, Call(self.signatures, inputs, (self.new(gives),), 0, 0)]

    def messages(self, step: Step) -> list[NamedMessage]:
        """A step on one node."""
        made = step.gives
        if step.kind == "release":
            return [Release((self.ids[step.takes[0].number],))]
        if made is None:
            raise AssertionError(step)
        transfer = made.number.to_bytes(16)
        if step.kind == "send":
            return [Send(self.ids[step.takes[0].number], NODES[made.node], transfer, 0)]
        if step.kind == "upload":
            return [Upload(self.new(made), made.meta.shape, "float64", self.device_of(made), step.value, 0)]
        if step.kind == "recv":
            source = NODES[1 - made.node]
            return [Recv(self.new(made), made.meta.shape, "float64", self.device_of(made), source, transfer, 0)]
        return self.call(step.kind, step.takes, made)

    def on_one(self, step: Step) -> list[NamedMessage]:
        """A step on the machine that plays both nodes."""
        if step.kind == "send" and step.gives is not None:
            source = self.ids[step.takes[0].number]
            return [ToDevice(source, self.new(step.gives), self.device_of(step.gives), 0)]
        return self.messages(step)


class Outcome(NamedTuple):
    """A value, or an error instead of it."""

    value: Any
    error: TensordError | None


def expected(program: Program, devices: Sequence[str]) -> dict[int, Outcome]:
    """The outcomes on the serial machine, by the tensor's number."""
    engine = SerialEngine({f"{name[:3]}:{node}": () for node in (0, 1) for name in devices})
    answers: dict[int, Outcome] = {}
    session = engine.open_session(lambda request, value, error: answers.update({request: Outcome(value, error)}))
    writer = Writer(lambda made: f"{made.device[:3]}:{made.node}")
    for step in program.steps:
        engine.receive(session, [encode_message(message) for message in writer.on_one(step)])
    for made in program.kept:
        engine.receive(session, [encode_message(Fetch(writer.ids[made.number], made.number, 0, 0))])
    return answers


# -- the machines ------------------------------------------------------------------------------------------------------


class Node:
    """One of the two machines, with the client's session there."""

    def __init__(self, links: InMemory, limits: dict[str, int], rnd: random.Random) -> None:
        self.now = 0
        steering = Steering(self.clock, frozenset(), inline=rnd.random() < 0.5, events=False)
        self.devices: dict[str, Any] = {"cpu:0": ModelCpu("cpu:0", self.sink, CpuOptions(workers=2), steering)}
        if "sim:0" in limits:
            self.devices["sim:0"] = ModelSim("sim:0", self.sink, SimOptions(), steering)
        for name, limit in limits.items():
            self.devices[name].limit = limit
        store: Any = ModelStore(STORE, self.sink, StoreOptions(), steering)
        self.streams = [stream for device in (*self.devices.values(), store) for stream in device.streams]
        self.engine = Engine({**self.devices, STORE: store}, self.clock)
        self.engine.join(links, self.sink)
        self.answers: dict[int, Outcome] = {}
        self.session = self.engine.open_session(
            lambda request, value, error: self.answers.update({request: Outcome(value, error)})
        )
        self.writer = Writer(lambda made: made.device)
        self.waiting: list[list[Any]] = []

    def clock(self) -> int:
        self.now += 1
        return self.now

    def sink(self, tasks: Sequence[Any]) -> None:
        self.engine.finished.extend(tasks)

    def give(self, messages: Sequence[NamedMessage]) -> None:
        self.waiting.append([encode_message(message) for message in messages])

    def choices(self) -> list[Callable[[], object]]:
        """The actions that are possible next."""
        found: list[Callable[[], object]] = []
        if self.waiting:
            found += [self.receive] * 3
        if self.engine.finished or self.engine.pending or self.engine.scheduler.busy:
            found += [self.engine.schedule] * 3
        for stream in self.streams:
            if stream.can_execute():
                found.append(stream.execute)
            if stream.executed:
                found.append(partial(stream.report, 1))
        return found

    def receive(self) -> None:
        self.engine.receive(self.session, self.waiting.pop(0))
        self.engine.schedule()

    def cancel(self) -> None:
        self.engine.cancel(self.session)
        self.waiting.insert(0, [encode_message(Restart(self.session.generation))])


class Run:
    """One program on both machines."""

    def __init__(self, program: Program, limits: Sequence[dict[str, int]], rnd: random.Random) -> None:
        self.rnd, self.program = rnd, program
        self.steps: list[Callable[[], None]] = []
        self.links = pair(*NODES, carry=self.carry)
        self.nodes = [Node(links, limit, rnd) for links, limit in zip(self.links, limits, strict=True)]
        self.broken = 0  # the number of times that waits for memory were ended

    def carry(self, _nbytes: int, step: Callable[[], None]) -> None:
        self.steps.append(step)

    def carry_one(self) -> None:
        self.steps.pop(self.rnd.randrange(len(self.steps)))()

    def go(self, interfering: Sequence[Callable[[], object]] = ()) -> None:
        """Take random actions until none is left, and each interfering action once among them."""
        left = list(interfering)
        for _ in range(100_000):
            choices = [choice for node in self.nodes for choice in node.choices()]
            choices += [self.carry_one] * bool(self.steps)
            if left and (not choices or self.rnd.random() < 0.02):
                left.pop()()
            elif choices:
                self.rnd.choice(choices)()
            elif not self.end_waits():
                self.check_both()
                return
            if self.rnd.random() < CHECKED:
                self.check_both()
        raise AssertionError("the program does not end")

    def check_both(self) -> None:
        """AssertionError if an invariant of either engine is violated."""
        for node in self.nodes:
            if found := violations(node.engine):
                raise AssertionError(found)

    def end_waits(self) -> bool:
        """End waits for memory on both nodes, since no action is left; whether any has ended."""
        ended = [node.engine.break_waits(node.clock()) for node in self.nodes]
        self.broken += any(ended)
        return any(ended)

    def run(self) -> dict[int, Outcome]:
        """The outcomes on the machines, by the tensor's number."""
        for node, steps in zip(self.nodes, self.program.lists, strict=True):
            for step in steps:
                node.give(node.writer.messages(step))
        interfering: list[Callable[[], object]] = [node.cancel for node in self.nodes] if self.program.cancels else []
        if self.program.cuts:
            interfering.append(lambda: self.links[0].exchanges["node1"].cut(CUT))
        self.go(interfering)
        for made in self.program.kept:
            node = self.nodes[made.node]
            node.give([Fetch(node.writer.ids[made.number], made.number, 0, 0)])
        self.go()
        stuck = [one for node in self.nodes for one in node.engine.live.values()]
        if stuck:
            raise AssertionError(f"these instructions wait, and no action is left: {stuck}")
        found = {**self.nodes[0].answers, **self.nodes[1].answers}
        self.close()
        return found

    def close(self) -> None:
        """Close the sessions, and check that no instruction and no memory is left."""
        for node in self.nodes:
            node.engine.close(node.session)
        self.go()
        assert self.links[0].exchanges["node1"].pending() == 0
        for node in self.nodes:
            assert not node.engine.live
            for device in node.engine.tiers.values():
                assert (device.planned, device.backend.allocated, len(device.behind)) == (0, 0, 0), device


# -- programs ----------------------------------------------------------------------------------------------------------

MODES = ("early", "tight", "full", "sims", "cancels", "cuts")


def check(seed: int, mode: str, seen: Counter[str] | None = None) -> list[str]:
    """The problems of one program."""
    rnd = random.Random(f"{mode} {seed}")
    devices = ("cpu:0", "sim:0") if mode == "sims" else ("cpu:0",)
    program = make(rnd, devices=devices, early=mode != "tight")
    program.cancels, program.cuts = mode == "cancels", mode == "cuts"
    want = expected(program, devices)
    peaks = [{name: peak_of(steps, name) for name in devices} for steps in program.lists]
    room = 1 if mode in {"tight", "full"} else 2
    vast = 1 << 20 if mode == "sims" else 64  # there, replicas take memory that the peaks do not count
    limits = [{name: max(nbytes * room, vast) for name, nbytes in one.items()} for one in peaks]
    run = Run(program, limits, rnd)
    try:
        found = run.run()
    except AssertionError as error:
        return [f"{mode} {seed}: {error}"]
    if seen is not None:
        seen["broken"] += run.broken
        seen["full"] += sum(isinstance(one.error, DeviceMemoryError) for one in found.values())
        seen["failed"] += sum(one.error is not None for one in found.values())
        seen["values"] += sum(one.error is None for one in found.values())
        seen["lost"] += sum(isinstance(one.error, NodeLost) for one in found.values())
        seen["cancelled"] += sum(isinstance(one.error, CancelledError) for one in found.values())
        seen["moves"] += sum(step.kind == "send" for step in program.steps)
    excused = {"cuts": (NodeLost,), "cancels": (CancelledError,), "full": (DeviceMemoryError,)}.get(mode, ())
    return [
        f"{mode} {seed}: tensor {made.number} is {found[made.number]}, but {want[made.number]} on the serial machine"
        for made in program.kept
        if not same(found[made.number], want[made.number], excused)
    ]


def same(found: Outcome, want: Outcome, excused: Sequence[type[TensordError]]) -> bool:
    """Whether both are the same value, or errors of the same type. Errors of the `excused` types are always right."""
    if found.error is not None:
        return isinstance(found.error, tuple(excused)) or type(found.error) is type(want.error)
    return want.error is None and np.array_equal(found.value, want.value)


def main() -> None:
    """Run many programs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--mode", choices=MODES)
    chosen = parser.parse_args()
    seen: Counter[str] = Counter()
    wrong = [
        problem
        for mode in ([chosen.mode] if chosen.mode else MODES)
        for seed in range(chosen.seed, chosen.seed + chosen.programs)
        for problem in check(seed, mode, seen)
    ]
    print(*wrong[:20], f"{len(wrong)} wrong; {dict(seen)}", sep="\n")  # noqa: T201
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()

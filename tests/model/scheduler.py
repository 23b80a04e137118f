"""Drives an engine without threads: a seed decides which stream executes or reports next, and when the engine runs.

So the seed repeats the interleaving of a program. `serially` is the strict order: each message is driven to its end
before the next one. The memory that the strict order needs must suffice for any other order.
"""

from __future__ import annotations

import functools
import os
import random
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import length_hint
from typing import Any

import numpy as np

from tensord.interpreter.errors import QuotaError, TensordError
from tensord.interpreter.files.header import FilePiece, TensorEntry
from tensord.interpreter.files.on_wire import encode_entry
from tensord.interpreter.files.open_file import OpenFile
from tensord.interpreter.opcodes import Opcode
from tensord.interpreter.programs.fusion import finding_fusions
from tensord.interpreter.types.meta import Meta
from tensord.interpreter.wire.file_messages import File, Load
from tensord.interpreter.wire.messages import encode_message
from tensord.streams.cuda.options import CudaOptions
from tensord.streams.device import Eviction
from tensord.streams.disk.store import NAME as STORE
from tensord.streams.disk.store import StoreOptions
from tensord.streams.faults import Fault
from tensord.streams.host.cpu import CpuOptions
from tensord.streams.sim.sim import SimOptions
from tensord.vm.admission.cancellation import HANDLES_PER_STEP
from tensord.vm.engine import Engine, may_go_on
from tensord.vm.model.session import HostCallAnswer, VmSession, rest_of_run
from tensord.vm.reporting.invariants import violations
from tensord.vm.reporting.live_trace import routine_entries
from tensord.vm.tracing.analysis.files.parts import RoutineParts
from tensord.vm.tracing.analysis.trace import Trace
from tensord.vm.tracing.flat import SourceLocation, inflate
from tensord.vm.tracing.ring import flatten

from ..streams.fake_cuda.module import installed_gpu
from .accounting import freed_with, missum
from .cuda import ModelCuda
from .expected import whole
from .host_calls import Asked
from .launches import ModelLaunchingSim, Stepped
from .snapshots import SnapshotJob
from .steps import Encoder, Program, Step, World, runs, shares
from .streams import ModelCpu, ModelSim, ModelStore, ModelStream, Steering, failing_inside, sparing

PLENTY = 1 << 20  # bytes; of a GPU, each machine fills them twice
STEPS = 200_000  # the most actions of a program
OP_BY_OP = 1 << 30  # as the patience of an engine: its runs stay unfolded


class Stuck(AssertionError):  # noqa: N818 - what happened
    """Instructions are live, and no action is left."""


class Unsound(AssertionError):  # noqa: N818 - what happened
    """An invariant of the engine is violated."""


class Files:
    """Files with some of the program's uploaded values, which are loaded instead. The program's seed chooses them."""

    def __init__(self, program: Program) -> None:
        made = [(step.session, step.fields[0]) for step in program.steps if step.kind == "UPLOAD"]  # not in a group
        self.loaded = {(session, id_) for session, id_ in made if (program.seed + id_) % 2}
        self.values: list[bytes] = []

    def open(self, reference: Sequence[Any], *, writes: bool) -> OpenFile:  # noqa: ARG002 - nothing is written
        """The file with these values."""
        fd = os.memfd_create("values")
        os.write(fd, self.values[reference[0]])
        return OpenFile(fd, "values")

    def instead_of(self, messages: list[list[Any]], step: Step) -> list[list[Any]]:
        """The messages of a step, with a load in place of a chosen upload."""
        if step.kind != "UPLOAD" or (step.session, step.fields[0]) not in self.loaded:
            return messages
        id_, array, device = step.fields
        payload = np.array(array, order="C")
        entry = TensorEntry(
            "values", Meta.of(payload.shape, payload.dtype), FilePiece(0, payload.nbytes, payload.nbytes)
        )
        self.values.append(payload.tobytes())
        own, digest = (id_ % 3 == 0), (id_ % 5 == 0)
        load = Load(1, (id_,), (encode_entry(entry),), device, own, digest, step.location)
        return [
            *messages[:-1],
            encode_message(File(1, (len(self.values) - 1, "values"), 0)),
            encode_message(load),
            encode_message(File(1, (), 0)),
        ]


class Anything(set[Any]):
    """A set that contains every object, for the operator `in`."""

    def __contains__(self, what: object) -> bool:
        return True


class Habits:
    """The weights of the kinds of actions, drawn once per run."""

    def __init__(self, rng: random.Random) -> None:
        self.execute = rng.choice((1.0, 1.0, 4.0, 0.2))
        self.report = rng.choice((1.0, 1.0, 4.0, 0.1))
        self.schedule = rng.choice((1.0, 3.0, 0.2))
        self.work = 1.0  # of a GPU
        self.between = rng.choice((0, 1, 2, 8))  # actions between two batches, at the most
        self.batch = rng.choice((1, 2, 8, 100))
        self.favour = rng.random() < 0.4  # some streams are slow all the time


class Machine:
    """An engine on model devices, the random order of its actions, and all its answers."""

    def __init__(
        self,
        program: Program,
        seed: int,
        limits: dict[str, int] | None = None,
        *,
        strict: bool = False,
        piece: int = HANDLES_PER_STEP,
    ) -> None:
        world = program.world
        self.peer = world.peer
        self.gpu = installed_gpu()
        self.working: list[Any] = [] if self.gpu is None else [self.gpu]  # devices with work of their own
        self.limited = bool(limits)
        self.strict = strict  # check the engine's invariants, and the reports of memory, after every pass
        self.sorts: Counter[str] = Counter()  # the purposes of bytes that these reports name
        self.in_other_orders: Counter[str] = Counter()  # by device, the most bytes that another order may need more
        self.rng = random.Random(seed)
        self.habits = Habits(self.rng)
        if world.launches:
            self.habits.work = random.Random(-seed).choice((0.1, 1.0, 1.0))
        self.now = 0
        steering = Steering(self.clock, program.failing, inline=world.inline, events=world.events)
        missing = dict(world.missing)
        self.engine: Any = None
        self.devices: dict[str, Any] = {}
        for name in world.devices:
            late, lacks = name in world.late, frozenset(filter(None, [missing.get(name)]))
            limit = (limits or {}).get(name, 0)
            memory, ceiling = (PLENTY, limit) if world.ceilings else (limit or PLENTY, 0)
            if name.startswith("cpu"):
                cpu = CpuOptions(
                    workers=world.workers,
                    memory=memory,
                    late_errors=late,
                    missing=lacks,
                    eviction=Eviction(world.eviction),
                    ceiling=ceiling,
                )
                self.devices[name] = ModelCpu(name, self.sink, cpu, steering)
            elif name.startswith("cuda"):
                self.devices[name] = self.make_cuda(name, world, limit or PLENTY, lacks, steering)
            else:
                sim = SimOptions(
                    memory=memory,
                    compute_streams=world.compute_streams,
                    peer=world.peer,
                    late_errors=late,
                    missing=lacks,
                    eviction=Eviction(world.eviction),
                    ceiling=ceiling,
                )
                if name in world.launches:
                    self.devices[name] = ModelLaunchingSim(name, self.sink, sim, steering, random.Random(seed))
                    self.working.append(self.devices[name])
                else:
                    self.devices[name] = ModelSim(name, self.sink, sim, steering)
        self.files: Files | None = None
        if world.store:
            self.files = Files(program)
            store = StoreOptions(directory=tempfile.gettempdir(), quota=PLENTY)
            self.devices[STORE] = ModelStore(STORE, self.sink, store, steering)
        for name, fault in world.faults:
            self.devices[name].inject(Fault.of(fault))
        self.engine = Engine(self.devices, self.clock)
        self.engine.admission.cancellation.piece = piece
        if seed % 3:
            self.launch_from_the_first_call_on()
        segments = self.engine.admission.routines.segments
        segments.compile = failing_inside(segments.compile, program.failing)
        segments.after_passes = sparing(segments.after_passes, program.failing)
        segments.shared.capacity *= not program.failing  # sessions share no segments if their failing calls differ
        segments.find_fusions = functools.partial(finding_fusions, least=1)  # also with the smallest tensors
        self.errors: list[TensordError] = []
        self.engine.report = lambda _session, error: self.errors.append(error)
        self.streams: list[ModelStream] = [s for d in self.devices.values() for s in d.streams]
        for stream in self.streams:
            if isinstance(stream, Stepped) and seed % 4:
                stream.prompt = True
        self.weights = {s.name: self.rng.choice((0.02, 1.0)) if self.habits.favour else 1.0 for s in self.streams}
        self.encoder = Encoder()
        self.answers: dict[int, dict[int, tuple[Any, Any]]] = {}
        self.asked = Asked()
        self.sessions: list[VmSession] = [self.open(n) for n in range(world.sessions)]
        # If sessions share tensors, or memory is just enough: messages that follow a paused run of one session come
        # before later messages of others in program order.
        self.shares = shares(program)
        self.in_order = runs(program) and (self.shares or world.tight > 0)
        self.engine.admission.routines.patience = world.patience
        self.engine.admission.durable.checkpoints.job = SnapshotJob

    def launch_from_the_first_call_on(self) -> None:
        """Treat all kernels as compiled, since programs have few calls that are alike."""
        for device in self.engine.tiers.values():
            if device.launches is not None:
                device.launches.seen = device.launches.warm = Anything()

    def make_cuda(self, name: str, world: World, memory: int, lacks: frozenset[str], steering: Steering) -> ModelCuda:
        """A device over the installed fake. Freed memory stays in a cache for some seeds; for others it is poisoned."""
        assert self.gpu is not None
        cache = self.rng.choice((0, 1 << 20))
        options = CudaOptions(
            memory=memory, cache=cache, compute_streams=world.compute_streams, peer=world.peer, missing=lacks
        )
        return ModelCuda(name, self.sink, options, steering, self.gpu)

    def open(self, number: int) -> VmSession:
        mine: dict[int, tuple[Any, Any]] = {}
        self.answers[number] = mine

        def reply(request: int, value: Any, error: TensordError | None) -> None:
            if isinstance(value, HostCallAnswer):
                self.asked.take(number, value)
            elif request:
                assert request not in mine, f"request {request} was answered twice"
                mine[request] = (whole(value), error)
                if isinstance(error, QuotaError):  # a request may be refused without any instruction
                    self.errors.append(error)

        session: VmSession = self.engine.open_session(reply, trusted=number % 2 == 1)
        if self.files is not None:
            session.files.open = self.files.open
        session.files.may_store = True
        return session

    def clock(self) -> int:
        self.now += 1
        return self.now

    def sink(self, tasks: Iterable[Any]) -> None:
        self.engine.finished.extend(tasks)

    # -- actions ---------------------------------------------------------------------------------------------------

    def busy(self) -> bool:
        engine = self.engine
        goes_on = any(map(may_go_on, engine.held))
        return bool(engine.pending or goes_on or engine.scheduler.busy or engine.directory.leaving)

    def schedule(self) -> None:
        """One pass of the engine, and the checks of its invariants."""
        self.engine.schedule()
        if self.strict and (broken := violations(self.engine) + missum(self.engine, self.sorts)):
            raise Unsound("; ".join(broken[:5]))

    def act(self) -> bool:
        """Take one random action; False if none is left."""
        choices: list[tuple[float, Any, Any]] = []
        if self.busy():
            choices.append((self.habits.schedule, self.schedule, ()))
        for stream in self.streams:
            weight = self.weights[stream.name]
            if stream.can_execute():
                choices.append((self.habits.execute * weight, stream.execute, ()))
            if stream.executed:
                count = self.rng.randint(1, len(stream.executed))
                choices.append((self.habits.report * weight, stream.report, (count,)))
        if self.asked.calls:
            which, twice = self.rng.randrange(len(self.asked.calls)), self.rng.random() < 0.2
            choices.append((self.habits.report, self.give, (which, twice)))
        choices += [(self.habits.work, device.step, ()) for device in self.working if device.can_step()]
        if not choices:
            return False
        _, action, arguments = self.rng.choices(choices, [c[0] for c in choices])[0]
        action(*arguments)
        return True

    def give(self, which: int, twice: bool) -> None:
        """Answer a host call as its client."""
        self.asked.give(self.engine, self.sessions, which, twice=twice)

    def act_serially(self) -> bool:
        """The strict order: drive all work to its end."""
        while self.busy() or self.asked.calls:
            self.schedule()
            if self.asked.calls:
                self.give(0, False)
        for stream in self.streams:
            if stream.can_execute():
                stream.execute()
            if stream.executed:  # otherwise it was a fence
                stream.report(len(stream.executed))
                return True
        return False

    def drain(self, *, serially: bool = False) -> None:
        """Take actions until no instruction is live."""
        for _ in range(STEPS):
            if not (self.act_serially() if serially else self.act()):
                break
        if self.engine.live or self.engine.held:
            raise Stuck(f"no action is left, but {list(self.engine.live.values())[:8]} are live")

    def admit_all(self, session: VmSession) -> None:
        """Admit all earlier messages before a cancellation, except those that wait for another session's run.

        If sessions share tensors, this session's run must end, too: the cancellation would stop it at a point that
        depends on timing, and others would see the tensors written up to there.
        """
        self.settle([session] if self.shares else [])

    def settle(self, sessions: Iterable[VmSession]) -> None:
        """Take actions until all messages are admitted, except those that wait for runs of other sessions."""
        awaited, engine = set(sessions), self.engine
        while engine.pending or not awaited.isdisjoint(engine.held):
            if engine.pending:
                engine.schedule()
            elif not self.act():
                break

    # -- programs --------------------------------------------------------------------------------------------------

    def run(self, steps: Iterable[Step], *, serially: bool = False) -> None:
        """Run the steps, batch by batch, and drain. `serially`: one by one, also the steps of groups and runs."""
        batch: list[Any] = []
        if serially:
            self.engine.admission.routines.patience = OP_BY_OP
        owner = 0
        for step in ungrouped(steps) if serially else steps:
            outside = step.kind in {"cancel", "close", "await"}
            if batch and (outside or serially or step.session != owner or len(batch) >= self.habits.batch):
                self.send(owner, batch, serially=serially)
                batch = []
            if step.kind == "CHECKPOINT" and serially:
                continue  # a checkpoint waits for memory, so the limits need not count it
            owner = step.session
            if outside:
                self.control(step, serially=serially)
            else:
                messages = self.encoder.messages(step)
                batch += messages if self.files is None else self.files.instead_of(messages, step)
        if batch:
            self.send(owner, batch, serially=serially)
        self.drain(serially=serially)

    def send(self, owner: int, batch: list[Any], *, serially: bool) -> None:
        if serially:
            self.send_serially(self.sessions[owner], batch)
            return
        if self.in_order:
            self.settle(session for session in self.sessions if session is not self.sessions[owner])
        self.engine.receive(self.sessions[owner], batch)
        for _ in range(self.rng.randint(0, self.habits.between)):
            self.act()

    def send_serially(self, session: VmSession, batch: list[Any]) -> None:
        """Drive each message, and each op of a run, to its end."""
        rest = iter(batch)
        while length_hint(rest) or session.unfolding is not None:
            self.engine.take(session, islice(rest, 1) if session.unfolding is None else rest_of_run(session, 1))
            self.engine.scheduler.dispatcher.flush()
            self.drain(serially=True)
            if self.limited:
                away, over = pinned_away(self.engine.tiers), stopping_over(self.engine, self.peer)
                self.in_other_orders |= away + over + brought_in_parts(self.engine)

    def control(self, step: Step, *, serially: bool) -> None:
        session = self.sessions[step.session]
        self.admit_all(session)
        if step.kind == "cancel":
            self.engine.cancel(session)
        elif step.kind == "close":
            self.await_calls(session)
            self.engine.close(session)
        else:
            while step.fields[0] not in self.answers[step.session]:
                if not (self.act_serially() if serially else self.act()):
                    live = list(self.engine.live.values())[:8]
                    raise Stuck(f"no action is left, but request {step.fields[0]} has no answer; live: {live}")

    def await_calls(self, session: VmSession) -> None:
        """Take actions until a session has answered its host calls, since no client can after the session's end."""
        while any(one.opcode is Opcode.HOST_CALL and one.error is None for one in session.live.values()):
            if not self.act():
                raise Stuck("no action is left, but a host call is live")

    def wind_up(self) -> None:
        """End every session, and unpublish every name. Afterwards no value may be left."""
        for session in list(self.engine.directory.sessions.values()):
            self.end(session)
        self.engine.admission.names.unpublish(list(self.engine.directory.names))
        self.drain()

    def close(self) -> None:
        """Close the file of the store."""
        if STORE in self.devices:
            self.devices[STORE].file.close()

    def end(self, session: VmSession) -> None:
        """End a session while no instruction is live; Unsound unless this frees the bytes that were reported before."""
        devices = self.engine.tiers
        said, before = freed_with(self.engine, session), {name: d.backend.allocated for name, d in devices.items()}
        self.engine.close(session)
        self.drain()
        freed = {name: before[name] - device.backend.allocated for name, device in devices.items()}
        if {name: nbytes for name, nbytes in freed.items() if nbytes} != said:
            raise Unsound(f"the end of session {session.id} has freed {freed}, but the report said {said}")

    def trace(self) -> Trace:
        """Records as the virtual machine makes them."""
        engine = self.engine

        def where(session: int, location: int) -> SourceLocation:
            found = engine.directory.sessions.get(session)
            return (
                SourceLocation() if found is None else SourceLocation(found.where(location) or "", found.span(location))
            )

        records = engine.ring.records(where) + [inflate(flatten(one, 0), where) for one in engine.live.values()]
        routines = RoutineParts()
        for known in engine.ring.routines.known.values():
            for entry in filter(None, routine_entries(known, where)):
                routines.add(*entry)
        return Trace(
            records,
            devices=tuple(engine.devices),
            dropped=engine.scheduler.retired - len(engine.ring.entries),
            routines=routines.routines(),
        )


def pinned_away(tiers: dict[str, Any]) -> Counter[str]:
    """The bytes, by device, of values that are pinned there but elsewhere. Pins move no value; but in another order of
    execution the values may be on these devices, and the pins keep them there."""
    return Counter(
        {
            name: sum(max(storage.nbytes, 0) for storage in device.pinned if device not in storage.copies)
            for name, device in tiers.items()
            if device.pinned
        }
    )


def stopping_over(engine: Engine, peer: bool) -> Counter[str]:
    """The bytes of the largest value in the store, for the host. In this order a device reads the value from the store;
    in another order, the value may be on another device, and go through the host if the two devices are no peers."""
    if peer or engine.residency.store is None or engine.residency.host is None:
        return Counter()
    in_store = engine.residency.store.candidates.values()
    return Counter({engine.residency.host.name: max((storage.nbytes for storage in in_store), default=0)})


def brought_in_parts(engine: Engine) -> Counter[str]:
    """By device, the bytes by which values exceed the single views of them that were brought there. In another order
    the whole value may be on the device, evicted from elsewhere, and then the whole value is the operand that stays."""
    more: Counter[str] = Counter()
    for storage in {tensor.storage for tensor in engine.directory.tensors()}:
        if not storage.views:
            continue
        parts: dict[Any, int] = {}
        for (device, _), copy in storage.views.items():
            parts[device] = max(parts.get(device, 0), copy.nbytes)
        for device, nbytes in parts.items():
            if device not in storage.copies:
                more[device.name] += storage.nbytes - nbytes
    return more


def ungrouped(steps: Iterable[Step]) -> Iterator[Step]:
    """The steps, with the steps of each group instead of the group."""
    for step in steps:
        if step.kind == "ATOMIC":
            yield from step.fields
        else:
            yield step

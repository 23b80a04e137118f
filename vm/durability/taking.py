"""Taking checkpoints: from a request to the instructions that read the published values at this point in program order.

Each published tensor gets an alias, its snapshot, which shares its storage. A later write in place gives the written
tensor a storage of its own (copy-on-write), so work goes on while the snapshots are read. From then on the old storage
belongs to the machine, and is charged to no session. Each value is read by an instruction on the store's thread for
files, after the transfer that brings the value to the host, or to the store if the host is full. A last instruction
commits the generation.

A program that fits without a checkpoint fits with one: copies made for the checkpoint leave the plan at once, and are
released when they have been written; and a write in place without memory for a second copy waits for the reader
(`Residency.is_only_copied`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from ...interpreter.errors import MetadataError, ProtocolError, TensordError
from ...interpreter.opcodes import Opcode
from ...interpreter.types.device_names import node_of
from ...interpreter.types.meta import Meta
from ...streams.stream import Stream, StreamKind
from ..client_files import real_path
from ..memory.making_room import drop_replica
from ..memory.replicas import any_healthy
from ..model.directory import Directory, PublishedRoutine
from ..model.instruction import Instruction, InstructionEnd
from ..model.session import Cause, VmSession
from ..model.tensor import Copy, VmTensor
from ..placement.residency import Residency
from ..placement.views import alias
from ..scheduler.pending_metas import await_metas
from ..scheduler.scheduler import Scheduler
from .contents import Contents
from .groups import ChangedGroup, Groups
from .job import CheckpointJob
from .target import Key, NameState, Targets, key_of

DURABLE_GENERATIONS: Final = 2  # generations of durable names that stay on the disk
NO_DURABLE_NAMES: Final = (
    'this machine keeps no durable names: give it a directory for them, by {"name": "store:0", "durable": "/path"} '
    "among its devices"
)
NOT_THERE: Final = "its value is not computed yet, or has failed"
OnReport = Callable[[Any, TensordError | None], None]


class CheckpointRequest(NamedTuple):
    """A request for a checkpoint: its session and location, and `on_report`, which gets the report, or an error."""

    session: VmSession
    location: int
    on_report: OnReport


class CheckpointReading(NamedTuple):
    """A checkpoint whose values are being read, on a stream of the store.

    `link`: a copy without data that the readers and the commit write, which keeps them in order.
    """

    request: CheckpointRequest
    job: CheckpointJob
    link: Copy
    stream: Stream


class Checkpoints:
    """Takes checkpoints. One per engine; called on the driving thread."""

    def __init__(self, scheduler: Scheduler, residency: Residency, directory: Directory) -> None:
        self.scheduler = scheduler
        self.residency = residency
        self.directory = directory
        self.targets = Targets(node_of(next(iter(scheduler.devices))))
        self.jobs: list[CheckpointJob] = []  # the checkpoints that are being written
        backend: Any = None if residency.store is None else residency.store.backend
        durable: str = getattr(getattr(backend, "options", None), "durable", "")
        self.durable = real_path(str(Path(durable).absolute())) if durable else None
        if self.durable is not None:
            backend.closing.append(self.targets.hold(self.durable).close)
        self.groups = Groups()  # of changes to durable names since these were last written
        self.interval: float = getattr(getattr(backend, "options", None), "interval", 0.0)
        self.job = CheckpointJob
        self.waiting: list[CheckpointRequest] = []  # requests that came while durable names were being written
        self.failure = ""  # why durable names with values were not written at the last attempt
        self.due: deque[None] = deque()  # not empty if durable names must be written again

    def hold_durable(self) -> None:
        """Lock the directory of durable names, if there is one; called before the machine has sessions."""
        if self.durable is not None:
            self.targets.of(self.durable).open()

    def keep_durable(self, session: VmSession, on_report: OnReport, location: int = 0) -> None:
        """Write the durable names that have changed; if they are being written now, write them once more afterwards.

        ProtocolError if the machine keeps no durable names.
        """
        if self.durable is None:
            raise ProtocolError(NO_DURABLE_NAMES)
        if self.targets.of(self.durable).busy:
            self.waiting.append(CheckpointRequest(session, location, on_report))
        else:
            names = tuple(self.directory.durable)
            request = CheckpointRequest(session, location, partial(self.note_end, on_report))
            self.take(request, str(self.durable), names, DURABLE_GENERATIONS, always=False)

    def note_end(self, on_report: OnReport, report: Any, error: TensordError | None) -> None:
        """Note for the operator why durable names were not written, except that a value is not computed yet."""
        failed = {} if report is None else report["failed"]
        listed = [f"{name}: {why}" for name, why in failed.items() if why != NOT_THERE]
        self.failure = "; ".join(listed) if error is None else error.message  # no matter which session has asked
        on_report(report, error)

    def serve_waiting(self) -> None:
        """Write durable names again for the requests that came while they were being written.

        The first request of an open session determines the session and location.
        """
        self.due.clear()
        waiting, self.waiting = self.waiting, []

        def tell(report: Any, error: TensordError | None) -> None:
            for request in waiting:
                request.on_report(report, error)

        if waiting:
            own_request = CheckpointRequest(self.scheduler.system_session, 0, tell)
            first = next((request for request in waiting if not request.session.closed), own_request)
            try:
                self.keep_durable(first.session, tell, first.location)
            except TensordError as error:
                tell(None, error)
            self.scheduler.bound.clear()

    def take(
        self, request: CheckpointRequest, path: str, names: Sequence[str], keep: int, *, always: bool = True
    ) -> None:
        """Write the values of these names. `always`: even if nothing has changed.

        In the directory of durable names, a name whose value is not computed yet keeps its last written value, since
        other sessions wait for their names.

        `names` are published. ProtocolError while another checkpoint is being written to that directory.
        """
        residency, store, host = self.residency, self.residency.store, self.residency.host
        if store is None or host is None:
            raise ProtocolError("checkpoints are written from a cpu device, and this machine has none")
        target = self.targets.of(real_path(path))
        if target.busy:
            raise ProtocolError(f"a checkpoint is being written to {target.path}; wait for that checkpoint")
        known = self.directory.names
        if target.path == self.durable:
            names = self.completed(names)
        contents = Contents({name: known[name] for name in names}, home_of)
        states = states_of(contents)
        job = self.job(target, contents, keep)
        job.unchanged = not always and target.is_up_to_date(states)
        if job.unchanged and not target.last.newest:  # nothing was ever written there
            request.on_report(job.nothing_new(), None)
            return
        link, stream = residency.new_copy(host, 0, 1), store.backend.copy_stream(StreamKind.SAVE)
        reading = CheckpointReading(request, job, link, stream)
        target.busy = True
        self.jobs.append(job)
        job.texts = {name: str(routine.program) for name, routine in contents.routines.items()}
        groups = self.group(job)
        with residency.tiers.refusals:  # the first refusal is known for all values
            self.read_all(reading, states, waits=target.path != self.durable)
        self.commit(reading, CommitEnd(self, reading, states, groups, always=always))

    def completed(self, names: Sequence[str]) -> Sequence[str]:
        """These names, and the durable names that were changed together with them since the last writing."""
        known, durable = self.directory.names, self.directory.durable
        wanted = set(names)
        if durable.keys() <= wanted:
            return names
        every = Contents({name: known[name] for name in {**durable, **dict.fromkeys(names)}}, home_of)
        groups = [
            *every.groups,
            *(group.names for group in self.groups.containing(every.values, every.routines, durable)),
        ]
        spreading = True
        while spreading:
            added = [group for group in groups if not group.isdisjoint(wanted) and not group <= wanted]
            wanted.update(*added)
            spreading = bool(added)
        return tuple(name for name in every.names if name in wanted)

    def group(self, job: CheckpointJob) -> list[ChangedGroup]:
        """Remove and return the groups that this checkpoint writes, if it is for durable names."""
        if job.target.path != self.durable:
            return []
        durable = self.directory.durable
        groups = self.groups.containing(job.contents.values, job.contents.routines, durable)
        job.durable = frozenset(durable)
        if job.durable.issubset(job.contents.names):
            self.groups = Groups()
        else:  # other groups stay for later, and so do the names that their blocks have removed
            for group in groups:
                self.groups.remove(group)
            job.durable |= self.groups.names_not_in(durable)
        job.groups += [group.names for group in groups]
        return groups

    def read_all(self, reading: CheckpointReading, states: Mapping[str, NameState], *, waits: bool) -> None:
        """Admit the instructions that read the values, each value once; unchanged values keep their records.

        `states`: the keys of the values. `waits`: wait for values that are not computed yet; otherwise such names
        fail.
        """
        job = reading.job
        first: dict[Key | PublishedRoutine, str] = {}
        names, records = job.target.last.names, job.target.records()
        for name, tensor in job.contents.values.items():
            key = states[name].identity
            if key in first:
                job.same[name] = first[key]
            elif name in names and names[name].state == states[name]:
                job.intact[name] = names[name].record
            elif key in records:
                job.reused[name] = records[key]
            elif not waits and not any_healthy(tensor.storage.copies.values()):
                job.failed[name] = NOT_THERE
            else:
                first[key] = name
                job.to_write += 0 if tensor.meta is None else tensor.meta.nbytes
                self.read(reading, name, tensor)

    def new_instruction(self, reading: CheckpointReading) -> Instruction:
        """A new instruction of a checkpoint, in the system session."""
        (session, location, _), _, link, stream = reading
        scheduler = self.scheduler
        made = scheduler.new_instruction(scheduler.system_session, Opcode.ACCESS, "checkpoint", link.device, location)
        made.author, made.writes, made.stream = session, (link,), stream
        return made

    def commit(self, reading: CheckpointReading, end: CommitEnd) -> None:
        """Admit the instruction that ends the checkpoint."""
        commit = self.new_instruction(reading)
        commit.kernel = reading.job.commit
        commit.on_end = end
        self.scheduler.admit(commit)

    def learn(
        self,
        reading: CheckpointReading,
        states: Mapping[str, NameState],
        groups: Sequence[ChangedGroup],
        done: Instruction,
        *,
        always: bool,
    ) -> None:
        """Learn the result of a checkpoint that has been written, or has failed, and report it.

        If files of reused values are gone, durable names are written once more. Another checkpoint is not repeated,
        since its position in program order has passed.
        """
        request, job = reading.request, reading.job
        target = job.target
        target.busy, target.note = False, job.note
        self.jobs.remove(job)
        retried = job.outdated and not always
        if retried:
            self.waiting.append(request)
        if self.waiting:
            self.due.append(None)
        for group in groups:
            if done.error is not None or not group.names.isdisjoint(job.failed):
                self.groups.join(group.members)
        if done.error is None and job.generation is not None:
            written = {name: state for name, state in states.items() if name not in job.failed}
            target.learn(job.generation, written, job.carried)
        elif done.error is not None:
            done.error.is_reported = True
            target.forget()
        if not retried:
            request.on_report(done.results, done.error)
        done.results = None

    def read(self, reading: CheckpointReading, name: str, tensor: VmTensor) -> None:
        """Admit the instruction that reads one value by a snapshot."""
        (session, location, _), job = reading.request, reading.job
        residency, scheduler = self.residency, self.scheduler
        bound_before = len(scheduler.bound)
        snapshot = alias(tensor, tensor.home)
        storage = snapshot.storage
        scheduler.snapshots[storage] = scheduler.snapshots.get(storage, 0) + 1
        before, evicted = storage.current(), storage.evicted

        try:
            source = residency.readable_by_files(snapshot, Cause(scheduler.system_session, location, session))
        except TensordError as error:
            drop_snapshot(scheduler, snapshot)
            residency.releasing.unshare(snapshot)
            job.failed[name] = str(error)
            if storage.current() != before:
                residency.tiers.refusals.known.clear()
            return
        instruction = self.new_instruction(reading)
        instruction.inputs, instruction.reads = (source,), (source.copy,)
        await_metas(instruction)
        instruction.kernel = partial(write_value, job, name, snapshot)
        instruction.on_end = ReadEnd(residency, job, name, snapshot)
        scheduler.admit(instruction)
        del scheduler.bound[bound_before:]  # after its writing, the value may be evicted to make room for the next
        after = storage.current()
        if after != before:
            for copy in after:
                if copy not in before:
                    drop_replica(copy, storage)
            if storage.current() != before:
                residency.tiers.refusals.known.clear()
        storage.evicted = evicted


class CommitEnd(InstructionEnd):
    """The end of a checkpoint: `Checkpoints.learn` notes and reports the result."""

    __slots__ = ("always", "checkpoints", "groups", "reading", "states")

    def __init__(
        self,
        checkpoints: Checkpoints,
        reading: CheckpointReading,
        states: Mapping[str, NameState],
        groups: Sequence[ChangedGroup],
        *,
        always: bool,
    ) -> None:
        self.checkpoints = checkpoints
        self.reading = reading
        self.states = states
        self.groups = groups
        self.always = always

    def retired(self, done: Instruction) -> None:
        self.checkpoints.learn(self.reading, self.states, self.groups, done, always=self.always)


class ReadEnd(InstructionEnd):
    """The end of an instruction that reads a value for a checkpoint: releases the snapshot, and notes an error."""

    __slots__ = ("job", "name", "residency", "snapshot")

    def __init__(self, residency: Residency, job: CheckpointJob, name: str, snapshot: VmTensor) -> None:
        self.residency = residency
        self.job = job
        self.name = name
        self.snapshot = snapshot

    def retired(self, done: Instruction) -> None:
        residency = self.residency
        drop_snapshot(residency.scheduler, self.snapshot)
        residency.releasing.unshare(self.snapshot)
        if done.error is not None:
            done.error.is_reported = True
            self.job.failed[self.name] = str(done.error)
            residency.files.look()


def states_of(contents: Contents[VmTensor]) -> dict[str, NameState]:
    """The key of the value, or the routine, under each name of a checkpoint, to recognise it later if unchanged."""
    identities: dict[str, Key | PublishedRoutine] = {name: key_of(tensor) for name, tensor in contents.values.items()}
    identities.update(contents.routines)
    return {name: NameState(identity, contents.fields[name]) for name, identity in identities.items()}


def home_of(tensor: VmTensor) -> str:
    """The name of a tensor's home."""
    return tensor.home.name


def drop_snapshot(scheduler: Scheduler, snapshot: VmTensor) -> None:
    """Remove a snapshot from the count of its storage."""
    count = scheduler.snapshots[snapshot.storage] - 1
    if count:
        scheduler.snapshots[snapshot.storage] = count
    else:
        del scheduler.snapshots[snapshot.storage]


def write_value(job: CheckpointJob, name: str, snapshot: VmTensor, array: Any) -> None:
    """The kernel that writes a value. It notes a failure, since the commit may begin before its instruction retires."""
    try:
        job.write(name, meta_of(name, snapshot), array)
    except BaseException as error:
        job.failed[name] = str(error)
        raise


def meta_of(name: str, snapshot: VmTensor) -> Meta:
    """A value's meta; MetadataError if it is unknown."""
    if not isinstance(snapshot.meta, Meta):
        raise MetadataError(f"{name!r} has no shape yet")
    return snapshot.meta

"""Checkpoints: from a message to the instructions that read what is published, as of that place in program order.

Each tensor under a name gets an alias, which shares its storage: a later write in place gives the written tensor a
storage of its own (copy-on-write), so the work goes on while values are read. What is written then is what stood there
before: it is the machine's, and no session is charged for it. Each value is a reader on the store's thread for files,
behind the transfer that brings it to the host, or past a full host to the store. A last instruction commits.

A program that fits without a checkpoint fits with one. What was brought there for it leaves the plan at once, and
is gone when it is written; and a write in place for which there is no second copy's memory waits for the reader
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
from ...interpreter.wire.names import named
from ...streams.stream import Stream, StreamKind
from ..memory.making_room import drop_replica
from ..memory.replicas import is_there
from ..model.directory import Directory, Published, PublishedRoutine
from ..model.instruction import Instruction, InstructionEnd
from ..model.session import Cause, VmSession
from ..model.tensor import Copy, Tensor
from ..placement.residency import Residency
from ..placement.views import alias
from ..places import real_path
from ..scheduler.pending_metas import await_metas
from ..scheduler.scheduler import Scheduler
from .contents import Contents
from .groups import Group, Groups
from .job import CheckpointJob
from .target import Key, Stood, Targets, key_of

KEPT: Final = 2  # generations of durable names
NOT_KEPT: Final = (
    'this machine keeps no durable names: give it a directory for them, {"name": "store:0", "durable": "/path"} among '
    "its devices"
)
NOT_THERE: Final = "its value is not there yet, or has failed"
Publish = Callable[[VmSession, Sequence[str], Sequence[Published[Tensor]]], object]
Told = Callable[[Any, TensordError | None], None]


class CheckpointRequest(NamedTuple):
    """A request for a checkpoint: its session, the line there, and `told`, which gets the report, or an error."""

    session: VmSession
    location: int
    told: Told


class Reading(NamedTuple):
    """A checkpoint under way, whose values are read on a stream of the store. Readers and commit write `link`."""

    asked: CheckpointRequest
    job: CheckpointJob
    link: Copy
    stream: Stream


class Checkpoints:
    """Takes checkpoints. One per engine, called during admission."""

    def __init__(self, scheduler: Scheduler, residency: Residency, directory: Directory) -> None:
        self.scheduler = scheduler
        self.residency = residency
        self.directory = directory
        self.targets = Targets(node_of(next(iter(scheduler.devices))))
        self.jobs: list[CheckpointJob] = []  # those that are being written
        backend: Any = None if residency.store is None else residency.store.backend
        durable: str = getattr(getattr(backend, "options", None), "durable", "")
        self.durable = real_path(str(Path(durable).absolute())) if durable else None
        if self.durable is not None:
            backend.closing.append(self.targets.hold(self.durable).close)
        self.groups = Groups()  # of what durable names stand for, since it was written last
        self.interval: float = getattr(getattr(backend, "options", None), "interval", 0.0)
        self.job = CheckpointJob
        self.waiting: list[CheckpointRequest] = []  # for durable names, while they were written
        self.failure = ""  # why durable names, whose values are there, were not written when that was tried last
        self.due: deque[None] = deque()  # durable names are to be written again
        self.publish: Publish = lambda _session, _names, _found: None  # set by admission

    def hold_durable(self) -> None:
        """Take the directory of durable names, if there is one. For a machine that serves nobody yet."""
        if self.durable is not None:
            self.targets.of(self.durable).open()

    def keep_durable(self, session: VmSession, told: Told, location: int = 0) -> None:
        """Write the durable names that have changed. What is written already does not count: then once more.

        ProtocolError if the machine keeps none.
        """
        if self.durable is None:
            raise ProtocolError(NOT_KEPT)
        if self.targets.of(self.durable).busy:
            self.waiting.append(CheckpointRequest(session, location, told))
        else:
            names = tuple(self.directory.durable)
            asked = CheckpointRequest(session, location, partial(self.note_end, told))
            self.take(asked, str(self.durable), names, KEPT, always=False)

    def note_end(self, told: Told, report: Any, error: TensordError | None) -> None:
        """Durable names are written, or not: an operator has to know of what is not their clients' doing."""
        failed = {} if report is None else report["failed"]
        listed = [f"{name}: {why}" for name, why in failed.items() if why != NOT_THERE]
        self.failure = "; ".join(listed) if error is None else error.message  # whichever session asked
        told(report, error)

    def keep_those_who_wait(self) -> None:
        """Durable names have been written. If sessions asked meanwhile, write them again, for the first open one."""
        self.due.clear()
        waiting, self.waiting = self.waiting, []

        def tell(report: Any, error: TensordError | None) -> None:
            for asked in waiting:
                asked.told(report, error)

        if waiting:
            ours = CheckpointRequest(self.scheduler.system_session, 0, tell)
            first = next((asked for asked in waiting if not asked.session.closed), ours)
            try:
                self.keep_durable(first.session, tell, first.location)
            except TensordError as error:
                tell(None, error)
            self.scheduler.bound.clear()

    def take(
        self, asked: CheckpointRequest, path: str, names: Sequence[str], keep: int, *, always: bool = True
    ) -> None:
        """Write what stands under these names. `always`: also if nothing has changed.

        In the directory of durable names, where others wait for theirs, values that are not there yet keep their last
        ones.

        MetadataError for names that nothing stands under, ProtocolError while one is written to that directory.
        """
        residency, store, host = self.residency, self.residency.store, self.residency.host
        if store is None or host is None:
            raise ProtocolError("checkpoints are written from a cpu device, and this machine has none")
        target = self.targets.of(real_path(path))
        if target.busy:
            raise ProtocolError(f"a checkpoint is being written to {target.path}; wait for that one")
        known = self.directory.names
        named(names, known)
        if target.path == self.durable:
            names = self.completed(names)
        contents = Contents({name: known[name] for name in names}, home_of)
        standing = stood_in(contents)
        job = self.job(target, contents, keep)
        job.unchanged = not always and target.is_up_to_date(standing)
        if job.unchanged and not target.last.newest:  # nothing was ever to be there
            asked.told(job.nothing_new(), None)
            return
        link, stream = residency.new_copy(host, 0, 1), store.backend.copy_stream(StreamKind.SAVE)
        reading = Reading(asked, job, link, stream)
        target.busy = True
        self.jobs.append(job)
        job.texts = {name: str(routine.program) for name, routine in contents.routines.items()}
        groups = self.group(job)
        transfers = residency.transfers
        with (
            self.residency.tiers.refusals,
            transfers.caused_by(asked.session),
        ):  # the first refusal is known for all values
            self.read_all(reading, waits=target.path != self.durable)
        self.commit(reading, CommitEnd(self, reading, standing, groups, always=always))

    def completed(self, names: Sequence[str]) -> Sequence[str]:
        """These names, and the durable ones that were changed together with them since they were written."""
        known, durable = self.directory.names, self.directory.durable
        wanted = set(names)
        if durable.keys() <= wanted:
            return names
        every = Contents({name: known[name] for name in {**durable, **dict.fromkeys(names)}}, home_of)
        groups = [*every.groups, *(group.names for group in self.groups.of(every.values, every.routines, durable))]
        spreading = True
        while spreading:
            added = [group for group in groups if not group.isdisjoint(wanted) and not group <= wanted]
            wanted.update(*added)
            spreading = bool(added)
        return tuple(name for name in every.names if name in wanted)

    def group(self, job: CheckpointJob) -> list[Group]:
        """The groups that are to be written together, if the directory is that of durable names. Noting begins anew."""
        if job.target.path != self.durable:
            return []
        durable = self.directory.durable
        groups = self.groups.of(job.contents.values, job.contents.routines, durable)
        job.durable = frozenset(durable)
        if job.durable.issubset(job.contents.names):
            self.groups = Groups()
        else:  # others are still to be written together, and names that blocks took away stay with them
            for group in groups:
                self.groups.drop(group)
            job.durable |= self.groups.gone(durable)
        job.groups += [group.names for group in groups]
        return groups

    def read_all(self, reading: Reading, *, waits: bool) -> None:
        """Admit the instructions that read the values, each value once. Those that have not changed are kept."""
        job = reading.job
        first: dict[Key, str] = {}
        records = job.target.records()
        for name, tensor in job.contents.values.items():
            key = key_of(tensor)
            if key in first:
                job.same[name] = first[key]
            elif key in records:
                job.kept[name] = records[key]
            elif not waits and not is_there(tensor.storage.copies.values()):
                job.failed[name] = NOT_THERE
            else:
                first[key] = name
                job.to_write += 0 if tensor.meta is None else tensor.meta.nbytes
                self.read(reading, name, tensor)

    def new_instruction(self, reading: Reading) -> Instruction:
        """An instruction of a checkpoint, which nobody is charged for."""
        (session, location, _), _, link, stream = reading
        scheduler = self.scheduler
        made = scheduler.new_instruction(scheduler.system_session, Opcode.ACCESS, "checkpoint", link.device, location)
        made.author, made.writes, made.stream = session, (link,), stream
        return made

    def commit(self, reading: Reading, end: CommitEnd) -> None:
        """Admit the instruction that ends the checkpoint."""
        commit = self.new_instruction(reading)
        commit.kernel = reading.job.commit
        commit.on_end = end
        self.scheduler.admit(commit)

    def learn(
        self,
        reading: Reading,
        standing: Mapping[str, Stood],
        groups: Sequence[Group],
        done: Instruction,
        *,
        always: bool,
    ) -> None:
        """The checkpoint is on the disk, or has failed. Durable names are written once more if files are gone that were
        to be kept; a checkpoint is of its place in program order, which has passed."""
        asked, job = reading.asked, reading.job
        target = job.target
        target.busy, target.note = False, job.note
        self.jobs.remove(job)
        again = job.outdated and not always
        if again:
            self.waiting.append(asked)
        if self.waiting:
            self.due.append(None)
        for group in groups:
            if done.error is not None or not group.names.isdisjoint(job.failed):
                self.groups.join(group.members)
        if done.error is None and job.generation is not None:
            written = {name: stood for name, stood in standing.items() if name not in job.failed}
            target.learn(job.generation, written, job.carried)
        elif done.error is not None:
            done.error.heard = True
            target.forget()
        if not again:
            asked.told(done.results, done.error)
        done.results = None

    def read(self, reading: Reading, name: str, tensor: Tensor) -> None:
        """Admit the instruction that reads one value."""
        residency, scheduler, job = self.residency, self.scheduler, reading.job
        kept = len(scheduler.bound)
        snapshot = alias(tensor, tensor.home)
        storage = snapshot.storage
        scheduler.snapshots[storage] = scheduler.snapshots.get(storage, 0) + 1
        there, evicted = storage.current(), storage.evicted

        try:
            source = residency.readable_by_files(snapshot, Cause(scheduler.system_session, reading.asked.location))
        except TensordError as error:
            drop_snapshot(scheduler, snapshot)
            residency.unshare(snapshot)
            job.failed[name] = str(error)
            if storage.current() != there:
                residency.tiers.refusals.known.clear()
            return
        instruction = self.new_instruction(reading)
        instruction.inputs, instruction.reads = (source,), (source.copy,)
        await_metas(instruction)
        instruction.kernel = partial(write_value, job, name, snapshot)
        instruction.on_end = ReadEnd(residency, job, name, snapshot)
        scheduler.admit(instruction)
        del scheduler.bound[kept:]  # it may leave for the next one, once it is written
        for copy in storage.current():
            if copy not in there:
                drop_replica(copy, storage)
        if storage.current() != there:
            residency.tiers.refusals.known.clear()
        storage.evicted = evicted


class CommitEnd(InstructionEnd):
    """A checkpoint has ended: `Checkpoints` learns of that."""

    __slots__ = ("always", "checkpoints", "groups", "reading", "standing")

    def __init__(
        self,
        checkpoints: Checkpoints,
        reading: Reading,
        standing: Mapping[str, Stood],
        groups: Sequence[Group],
        *,
        always: bool,
    ) -> None:
        self.checkpoints = checkpoints
        self.reading = reading
        self.standing = standing
        self.groups = groups
        self.always = always

    def retired(self, done: Instruction) -> None:
        self.checkpoints.learn(self.reading, self.standing, self.groups, done, always=self.always)


class ReadEnd(InstructionEnd):
    """A value has been read for a checkpoint, or could not be read: release its snapshot."""

    __slots__ = ("job", "name", "residency", "snapshot")

    def __init__(self, residency: Residency, job: CheckpointJob, name: str, snapshot: Tensor) -> None:
        self.residency = residency
        self.job = job
        self.name = name
        self.snapshot = snapshot

    def retired(self, done: Instruction) -> None:
        residency = self.residency
        drop_snapshot(residency.scheduler, self.snapshot)
        residency.unshare(self.snapshot)
        if done.error is not None:
            done.error.heard = True
            self.job.failed[self.name] = str(done.error)
            residency.files.look()


def stood_in(contents: Contents[Tensor]) -> dict[str, Stood]:
    """The values and routines under the names of a checkpoint, in the form in which they are recognised later."""
    what: dict[str, Key | PublishedRoutine] = {name: key_of(tensor) for name, tensor in contents.values.items()}
    what.update(contents.routines)
    return {name: Stood(one, contents.fields[name]) for name, one in what.items()}


def home_of(tensor: Tensor) -> str:
    """The device of a tensor, by its name."""
    return tensor.home.name


def drop_snapshot(scheduler: Scheduler, snapshot: Tensor) -> None:
    """The value of an alias has been read."""
    count = scheduler.snapshots[snapshot.storage] - 1
    if count:
        scheduler.snapshots[snapshot.storage] = count
    else:
        del scheduler.snapshots[snapshot.storage]


def write_value(job: CheckpointJob, name: str, snapshot: Tensor, array: Any) -> None:
    """The kernel: by now the meta is known. A failure is noted here, as the commit may begin before this retires."""
    try:
        job.write(name, meta_of(name, snapshot), array)
    except BaseException as error:
        job.failed[name] = str(error)
        raise


def meta_of(name: str, snapshot: Tensor) -> Meta:
    """A value's meta. MetadataError if it is not known."""
    if not isinstance(snapshot.meta, Meta):
        raise MetadataError(f"{name!r} has no shape yet")
    return snapshot.meta

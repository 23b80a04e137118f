"""Running a small segment where it is admitted, as small ops are (`inline`).

If all of its operands are there, healthy and finished, nothing else uses what it writes, and its results and its arena
fit at once, then an instruction would find nothing to wait for. It would be made only to be dropped in the same pass,
at several times the cost of a short segment. If a kernel fails, an instruction is made after all: it goes on from
there, and settles which results are whose.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import length_hint
from typing import Any

from ...interpreter.types.meta import Scalar
from ..memory.recycling import make_tensor
from ..memory.release import release
from ..memory.replicas import touch
from ..model.instruction import Status
from ..model.session import VmSession
from ..model.tensor import Copy, Tensor
from ..placement.residency import Residency
from ..routines.ids import Ids
from ..routines.instruction import RunInstruction, Segment
from ..routines.stamps import Stamps, timed
from ..scheduler.scheduler import Scheduler
from .inline import bind_operand


class RunsAtOnce:
    """Runs segments at admission."""

    def __init__(self, scheduler: Scheduler, residency: Residency) -> None:
        self.scheduler = scheduler
        self.residency = residency
        self.limit = 0  # of the work of a run, set by the engine

    def run(
        self,
        session: VmSession,
        segment: Segment,
        tensors: Sequence[Tensor],
        ids: Ids,
        numbers: Sequence[Scalar],
        location: int,
        stamps: Stamps | None = None,
    ) -> bool:
        """Run a segment on these tensors; False, and nothing is changed, if it cannot run at once."""
        recipe, plan = segment.recipe, segment.plan
        device = plan.device
        if recipe.work > self.limit or recipe.largest > device.inline_work or not plan.stream.inline:
            return False
        if recipe.scratch or device.unreserved:
            return False
        copies = free_copies(segment, tensors)
        if copies is None:
            return False
        buffers = self.allocate(segment)
        if buffers is None:
            return False
        backend, scheduler = device.backend, self.scheduler
        arrays = [bound(copy, tensor) for copy, tensor in zip(copies, tensors, strict=True)]
        traced = [part for copy in copies for part in (copy.id, copy.version)]
        for copy, tensor in zip(copies[len(recipe.reads) :], tensors[len(recipe.reads) :], strict=True):
            copy.version = tensor.storage.version = tensor.storage.version + 1
        written = copies[len(recipe.reads) :] + self.define(session, segment, buffers, ids, location)
        traced += [part for copy in written for part in (copy.id, copy.version)]
        made = zip(buffers, segment.made, strict=False)
        arrays += [backend.bind(buffer, meta) for buffer, meta in made]
        arena = backend.bind(buffers[-1], segment.arena_meta) if recipe.arena else None
        scheduler.ids = number = scheduler.ids + 1
        scheduler.tick = tick = scheduler.tick + 2
        scheduler.retired += 1
        replay = segment.take(arena)
        replay.patch(arrays, numbers)
        started = scheduler.clock()
        rest: Any = ()
        place = 0
        try:
            for place, (_, calls) in enumerate(replay.slices):  # noqa: B007 - where it failed
                rest = iter(calls) if stamps is None else timed(calls, stamps)
                for kernel, arguments in rest:
                    kernel(*arguments)
        except BaseException as error:
            instruction = RunInstruction(number, session, device, location, segment, numbers)
            instruction.replay = replay
            self.go_on(instruction, copies, written, place, length_hint(rest), error, started)
        else:
            scheduler.latest = finished = scheduler.clock()
            segment.give_back(replay)
            if scheduler.ring.enabled:
                used = backend.allocated
                entry = (number, plan.traits, tuple(traced), tick, scheduler.now, started, finished, location, used)
                scheduler.ring.append(entry)
                if stamps is not None:
                    scheduler.ring.keep_stamps(number, stamps.times)
        if recipe.arena:
            backend.free(buffers[-1])
        return True

    def allocate(self, segment: Segment) -> list[Any] | None:
        """Memory for the results, and last for the arena; None if not all of it is free."""
        backend = segment.plan.device.backend
        found: list[Any] = []
        for nbytes in segment.sizes:
            buffer = backend.allocate(nbytes)
            if buffer is None:
                for taken in found:
                    backend.free(taken)
                return None
            found.append(buffer)
        return found

    def define(
        self, session: VmSession, segment: Segment, buffers: Sequence[Any], ids: Ids, location: int
    ) -> list[Copy]:
        """The results, in that memory; their copies."""
        plan, recipe, residency = segment.plan, segment.recipe, self.residency
        found = []
        for place, variable in enumerate(recipe.made):
            residency.copies += 1
            id_ = ids[variable]
            session.tensors[id_], copy = make_tensor(
                segment.made[place],
                plan.device,
                buffers[place],
                residency.copies,
                session.account,
                plan.maker,
                location,
            )
            session.newest = max(session.newest, id_)
            found.append(copy)
        return found

    def go_on(
        self,
        instruction: RunInstruction,
        copies: Sequence[Copy],
        written: Sequence[Copy],
        place: int,
        left: int,
        error: BaseException,
        started: int,
    ) -> None:
        """A kernel has failed, with `left` calls behind it in its slice: do the rest that does not depend on it."""
        scheduler = self.scheduler
        instruction.reads, instruction.writes = tuple(dict.fromkeys(copies)), tuple(written)
        instruction.versions = tuple([copy.version for copy in instruction.reads + instruction.writes])
        instruction.admitted = scheduler.tick - 1
        instruction.received = instruction.ready = instruction.dispatched = scheduler.now
        instruction.started = started
        for status in (Status.READY, Status.DISPATCHED):
            instruction.move(status)
        instruction.fail_in(place, left, error)
        while not instruction.advance():
            pass
        for copy in instruction.writes:
            release(copy)
        instruction.finished = scheduler.latest = scheduler.clock()
        instruction.move(instruction.outcome())
        scheduler.ring.add(instruction, scheduler.tick)
        for found in instruction.own_failures():
            scheduler.tell(instruction.author, found)


def free_copies(segment: Segment, tensors: Sequence[Tensor]) -> list[Copy] | None:
    """The operands' copies, if each is there, healthy and finished, and nothing else uses those to be written."""
    device, first = segment.plan.device, len(segment.recipe.reads)
    found = []
    for index, tensor in enumerate(tensors):
        storage = tensor.storage
        copy = storage.copies.get(device)
        if copy is None or copy.writer is not None or copy.poison is not None or copy.buffer is None:
            return None
        if index >= first and (
            storage.sharers != 1
            or len(storage.copies) != 1
            or storage.views
            or tensor.strides is not None
            or copy.exposed
            or copy.uses
            or copy.readers
        ):
            return None
        found.append(copy)
    if device.replicas:
        for copy in found:
            touch(copy)
    return found


def bound(copy: Copy, tensor: Tensor) -> Any:
    """The array of an operand."""
    buffer: Any = copy.buffer
    meta = tensor.meta
    if buffer.meta is meta and tensor.strides is None:
        return buffer.array
    return bind_operand(copy.device, buffer, tensor, meta)

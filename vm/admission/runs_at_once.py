"""Running a small segment at admission, as `inline` does for small ops.

If all operands are healthy and finished, nothing else uses the targets, and the results and the arena fit now, an
instruction would have nothing to wait for, and would cost several times as much as a short segment. If a kernel fails,
an instruction is made after all: it continues after the failure, and decides which results are poisoned.

On a device that launches, a segment of any size is a list of launches, each with a number (`vm.model.launches`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import length_hint
from typing import Any, TypeAlias

from ...interpreter.types.meta import Scalar
from ...streams.device import LaunchOrder
from ..memory.ledger import has_spare
from ..memory.recycling import make_tensor
from ..memory.victims import touch
from ..model.charges import has_share
from ..model.launches import Launches
from ..model.session import VmSession
from ..model.tensor import Copy, Storage
from ..placement.residency import Residency
from ..routines.op_by_op.run import RunIds
from ..routines.running.instruction import RunInstruction
from ..routines.running.replay import Replay, Stamps, timed
from ..routines.running.segment import CompiledSegment
from ..scheduler.scheduler import Scheduler
from .at_once import (
    begin_failed,
    begin_write,
    bind_operand,
    elided_edges,
    end_failed,
    keep_record,
    note_launched,
    readable,
    writable,
)

# The index of the slice with the failed call, the number of calls left in the slice, and the error.
Failure: TypeAlias = tuple[int, int, BaseException]
# The buffers of the results, and perhaps of the arena; the copies and versions for the trace, flat; the elided edges.
Begun: TypeAlias = tuple[list[Any], list[int], tuple[Any, ...]]


class RunsAtOnce:
    """Runs segments at admission."""

    def __init__(self, scheduler: Scheduler, residency: Residency) -> None:
        self.scheduler = scheduler
        self.residency = residency
        self.limit = 0  # the most work of a run; set by the engine

    def run(
        self,
        session: VmSession,
        segment: CompiledSegment,
        ids: RunIds,
        numbers: Sequence[Scalar],
        location: int,
        stamps: Stamps | None = None,
    ) -> bool:
        """Run a segment; False, with nothing changed, if it cannot run now."""
        plan, recipe = segment.plan, segment.recipe
        launches = plan.device.launches
        if launches is None and not (plan.stream.inline and recipe.work <= self.limit and is_small(segment)):
            return False
        own = segment.has_own_arena()
        if plan.reports or not has_room(session, segment, own=own):
            return False
        operands = Operands(segment.passing)
        if not operands.find(session, segment, ids):
            return False
        if launches is None:
            return self.run_with(operands, session, segment, ids, numbers, location, stamps, own=own)
        if not launches.is_warm(plan, tuple(operands.strides)):
            return False
        backend = plan.device.backend
        before = backend.enter()
        try:
            if backend.lost is not None:
                return False
            return self.run_with(operands, session, segment, ids, numbers, location, stamps, own=own)
        finally:
            backend.leave(before)

    def run_with(
        self,
        operands: Operands,
        session: VmSession,
        segment: CompiledSegment,
        ids: RunIds,
        numbers: Sequence[Scalar],
        location: int,
        stamps: Stamps | None,
        *,
        own: bool,
    ) -> bool:
        """Run a segment with these operands; False, with nothing changed, if memory is short.

        `own`: the segment uses the arena that its runs at admission share; otherwise its arena is the last buffer.
        """
        begun = self.begin(operands, session, segment, ids, location, own=own)
        if begun is None:
            return False
        buffers, traced, met = begun
        plan, recipe, scheduler, arrays = segment.plan, segment.recipe, self.scheduler, operands.arrays
        launches, backend = plan.device.launches, plan.device.backend

        # Call the kernels: by the graph of launches, or one after the other.
        started = scheduler.clock()
        graph, failure = segment.graph if stamps is None and own else None, None
        if graph is not None and launches is not None and graph.launch(arrays, numbers, operands.passing):
            launches.order.issued += 1
        else:
            replay = segment.take_own() if own else segment.take(backend.bind(buffers[-1], segment.arena_meta))
            replay.patch(arrays, numbers)
            failure = call_all(replay, stamps, launches)
            if failure is None:
                if graph is not None:
                    graph.note(replay.arena, arrays, numbers)
                segment.give_back(replay, operands.passing)

        # Add the record, and note the launches.
        if failure is None:
            used = backend.allocated + (recipe.arena if segment.own else 0)
            launch = 0 if launches is None else launches.order.issued
            keep_record(scheduler, plan.record_head, tuple(traced), started, location, used, 0, launch, met)
            if stamps is not None:
                scheduler.ring.keep_stamps(scheduler.ids, stamps.times)
        else:
            scheduler.ids += 1
            scheduler.tick += 2
            instruction = RunInstruction(scheduler.ids, session, plan.device, location, segment, numbers)
            instruction.replay = replay
            self.continue_after(failure, instruction, operands, met, started)
        if launches is not None:
            note_launched(launches, operands.copies, operands.written)
            cost = recipe.work + len(recipe.calls) * launches.least_cost
            scheduler.fences.launched(session, plan.device, launches, cost)
            if not own:
                buffers[-1].behind = launches.order.issued
        if not own:
            backend.free(buffers[-1])
        return True

    def begin(
        self,
        operands: Operands,
        session: VmSession,
        segment: CompiledSegment,
        ids: RunIds,
        location: int,
        *,
        own: bool,
    ) -> Begun | None:
        """Allocate memory, begin the writes, and define the results, which become the last of the operands.

        None, with nothing changed, if memory is short. One function, since a call costs as much as ten statements.
        """
        buffers = self.allocate(segment, own=own)
        if buffers is None:
            return None
        device, residency, arrays, written = segment.plan.device, self.residency, operands.arrays, operands.written
        met = () if device.launches is None else elided_edges(operands.copies, written)
        traced: list[int] = []
        for copy in operands.copies:
            traced += (copy.id, copy.version)
        for copy, storage in zip(written, operands.storages, strict=True):
            begin_write(copy, storage)
        account, maker, now = session.account, segment.plan.maker, self.scheduler.now
        for buffer, (variable, meta, _, _) in zip(buffers, segment.made, strict=False):
            residency.copies = number = residency.copies + 1
            id_ = ids[variable]
            session.tensors[id_], copy = make_tensor(meta, device, buffer, number, account, maker, location, now)
            session.newest = max(session.newest, id_)
            written.append(copy)
            arrays.append(buffer.array if buffer.meta is meta else device.backend.bind(buffer, meta))
        for copy in written:
            traced += (copy.id, copy.version)
        return buffers, traced, met

    def allocate(self, segment: CompiledSegment, *, own: bool) -> list[Any] | None:
        """Allocate the results and, unless `own`, an arena as the last buffer; None if memory is short."""
        backend = segment.plan.device.backend
        buffers: list[Any] = []
        for nbytes in segment.sizes if own else (*segment.sizes, segment.recipe.arena):
            buffer = backend.allocate(nbytes)
            if buffer is None:
                for taken in buffers:
                    backend.free(taken)
                return None
            buffers.append(buffer)
        return buffers

    def continue_after(
        self, failure: Failure, instruction: RunInstruction, operands: Operands, met: tuple[Any, ...], started: int
    ) -> None:
        """After a kernel's failure, run the calls that do not depend on it, and end the instruction."""
        instruction.edges = [met[n : n + 4] for n in range(0, len(met), 4)]
        begin_failed(self.scheduler, instruction, operands.copies, operands.written, started)
        launches = instruction.device.launches
        if launches is not None:
            instruction.order = launches.order
        instruction.fail_in(*failure)
        while not instruction.advance():
            pass
        if launches is not None:
            instruction.launch = launches.order.issued
            note_launched(launches, instruction.reads, instruction.writes)
        end_failed(self.scheduler, instruction)
        for found in instruction.own_failures():
            self.scheduler.tell(instruction.author, found)
        self.scheduler.fences.await_launches(instruction.device)  # the fence tells whether the device is lost


class Operands:
    """The operands that a run takes from outside its segment.

    `arrays`: by slot; `strides`: of the operands that are read, None for a packed operand; `copies`: the copies that
    are read, then those that are written; `written`, `storages`: the copies that are written, and their storages;
    `passing`: the slots of arrays that a replay must not keep bound, views among them.
    """

    __slots__ = ("arrays", "copies", "passing", "storages", "strides", "written")

    def __init__(self, passing: list[int]) -> None:
        self.arrays: list[Any] = []
        self.strides: list[tuple[int, ...] | None] = []
        self.copies: list[Copy] = []
        self.written: list[Copy] = []
        self.storages: list[Storage] = []
        self.passing = passing

    def find(self, session: VmSession, segment: CompiledSegment, ids: RunIds) -> bool:
        """Find the operands; False if one is not healthy and finished, or if something else uses a target."""
        device, tensors, outside = segment.plan.device, session.tensors, ids.outside
        arrays, copies, inputs = self.arrays, self.copies, len(outside)
        for variable, meta, packed, _ in segment.reads:
            tensor = tensors.get(outside[variable] if variable < inputs else ids[variable])
            copy = readable(device, tensor, meta)
            if copy is None or tensor is None or (packed and tensor.strides is not None):
                return False
            self.strides.append(tensor.strides)
            if tensor.strides is not None:
                self.passing = [*self.passing, len(arrays)]
            buffer: Any = copy.buffer
            plain = buffer.meta is meta and tensor.strides is None
            arrays.append(buffer.array if plain else bind_operand(device, buffer, tensor, meta))
            copies.append(copy)
        if segment.written and not self.find_written(session, segment, ids):
            return False
        if device.short:
            for variable, _, _, _ in (*segment.reads, *segment.written):
                id_ = outside[variable] if variable < inputs else ids[variable]
                touch(tensors[id_].storage, device)
        return True

    def find_written(self, session: VmSession, segment: CompiledSegment, ids: RunIds) -> bool:
        """Find the targets; False if something else uses one, or if one is an operand twice."""
        device, tensors, outside, inputs = segment.plan.device, session.tensors, ids.outside, len(ids.outside)
        arrays, written, storages = self.arrays, self.written, self.storages
        for variable, meta, _, _ in segment.written:
            tensor = tensors.get(outside[variable] if variable < inputs else ids[variable])
            copy = writable(device, tensor, meta, device.launches)
            if copy is None or tensor is None:
                return False
            buffer: Any = copy.buffer
            arrays.append(bind_operand(device, buffer, tensor, meta))
            written.append(copy)
            storages.append(tensor.storage)
        read = len(set(self.copies))
        self.copies += written
        return len(set(self.copies)) == read + len(written)


def call_all(replay: Replay, stamps: Stamps | None, launches: Launches | None) -> Failure | None:
    """Call, or launch, all kernels in order; return the first failure, or None."""
    rest: Any = ()
    index = 0
    try:
        for index, (_, calls) in enumerate(replay.slices):  # noqa: B007 - the index of a failure
            rest = iter(calls) if stamps is None else timed(calls, stamps)
            if launches is None:
                for kernel, arguments in rest:
                    kernel(*arguments)
            else:
                launch_all(rest, launches.order)
    except BaseException as error:
        return index, length_hint(rest), error
    return None


def launch_all(calls: Iterator[Any], order: LaunchOrder) -> None:
    """Launch kernels in order. A kernel that could not be launched counts as a launch, too."""
    for kernel, arguments in calls:
        try:
            kernel(*arguments)
        finally:
            order.issued += 1


def is_small(segment: CompiledSegment) -> bool:
    """Whether every kernel is small and has no temporaries."""
    return segment.recipe.largest <= segment.plan.device.inline_work and not segment.recipe.scratch


def has_room(session: VmSession, segment: CompiledSegment, *, own: bool) -> bool:
    """Whether results, arena and temporaries fit now, and into the session's quotas. `own`: the arena may exist."""
    plan, account, need = segment.plan, session.account, segment.need + segment.recipe.scratch
    device, backend = plan.device, plan.device.backend
    need -= segment.recipe.arena if own and segment.long else 0
    if (device.unreserved or device.behind) and not has_spare(device, need):
        return False
    if device.lost is not None or backend.lost is not None:
        return False
    if account.bytes + need > account.limit or len(session.tensors) + segment.more > account.tensors:
        return False
    if device.ceiling and not has_share(account, device, need):
        return False
    return max(device.planned, backend.allocated) + need <= backend.limit

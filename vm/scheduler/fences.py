"""Fences: how instructions wait for the ops that were launched at admission.

`vm.model.launches` defines launches and fences. Later launches on the same stream need no fence. A fence is dispatched
when it is made, and is then the source of edges like any dispatched instruction: events order other streams after it,
and the host waits for its report. The instructions that wait for a fence:

- an instruction on another stream that reads a copy which a launch has written, or writes a copy which a launch has
  used (`order`);
- a barrier, for all launches so far (`order_barrier`);
- an instruction on another stream that gets memory which launches may still use (`order_memory`).

A session that launches faster than its device works is *flooded*: the machine accepts no more of its messages until the
launches ahead are down to half of the limit. A fence is made every `FENCE_INTERVAL` launches, and whenever half of the
allowed kernel time has been launched, so that the machine learns of progress before the device runs out of work. The
cost of a launch to the host hardly depends on its kernel, so both the number of launches and their kernel time are
bounded. The kernel time is an estimate: element operations at the measured pace of the device (`Launches.learn`). If a
session or a trace asks for detail, fences are made at that interval, which gives the times of single launches.

Rejected: an event for each launch. Recording an event takes 0.4 us, and nothing waits for most of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ...interpreter.opcodes import Opcode
from ...streams.stream import Stream, StreamKind
from ..model.device_state import DeviceState
from ..model.instruction import Instruction
from ..model.launches import Fence, Launches, strides_of
from ..model.reason import Reason
from ..model.session import VmSession
from ..model.tensor import Binding, Copy
from . import edges
from .dispatch import INLINE_BYTES, note_queued
from .fair_queue import enter, queue_of

if TYPE_CHECKING:
    from .scheduler import Scheduler

FENCE_INTERVAL: Final = 128  # the most launches between two fences
MAX_AHEAD: Final = 256  # launches that a session may be ahead of its device
MIN_AHEAD: Final = 2  # launches that a session may always be ahead: one runs, the next is queued
EXCLUSIVE_NS: Final = 20_000_000  # kernel time that a session may be ahead if it has the device to itself
SHARED_NS: Final = 300_000  # the same if other sessions use the device, since their ops wait behind these launches
WAIT_NS: Final = 20_000  # remaining kernel time up to which the driving thread itself waits for a small value


class Fences:
    """Makes the fences of all devices that launch, and orders instructions after them."""

    def __init__(self, scheduler: Scheduler, devices: Sequence[DeviceState]) -> None:
        self.scheduler = scheduler
        self.devices = [device for device in devices if device.launches is not None]
        # The streams on which the driving thread launches, and which it polls.
        self.streams = [stream for one in self.devices for stream in (one.compute[0], upload_stream(one))]
        self.passed_at = dict.fromkeys(self.devices, 0)  # when each device passed its newest fence
        self.learnt = dict.fromkeys(self.devices, 0)  # the scheduler's pass that last saw the device pass a fence

    def fence_after(self, device: DeviceState, launches: Launches, number: int) -> Fence:
        """A fence after the launch with this number, which the device has not reached: the newest one, or a new one."""
        newest = launches.fence
        if newest is not None and newest.launch >= number:
            return newest
        self.scheduler.ids += 1
        fence = Fence(self.scheduler.ids, self.scheduler.system_session, device)
        fence.received = self.scheduler.now
        self.launch(fence, launches)
        device.live[fence] = None
        launches.fence = fence
        launches.fence_cost = launches.cost + room_of(device, launches) // 2
        launches.fence_number = launches.order.issued + launches.fence_interval
        return fence

    def launch(self, fence: Fence, launches: Launches) -> None:
        """Admit a fence in the order of its device's launches; its stream will report it."""
        scheduler, queue = self.scheduler, launches.queue
        scheduler.admit_launched(fence)
        fence.ready = fence.dispatched = fence.started = scheduler.clock()
        enter(queue, fence)
        for copy in fence.reads:
            note_queued(copy, queue.stream)
        queue.stream.fence(fence)

    def read(self, fence: Fence, source: Binding) -> None:
        """Launch the read of a value that is finished or launched on the fence's device."""
        launches = fence.device.launches
        if launches is None:
            raise AssertionError(f"{fence.device.name} launches nothing")
        fence.inputs, fence.reads = (source,), (source.copy,)
        source.tensor.bound = True
        self.launch(fence, launches)

    def fence_all(self) -> None:
        """Make a fence after all launches, so that a caller who asks repeatedly what is ready sees progress."""
        for device in self.devices:
            self.await_launches(device)

    def passed(self, fence: Fence) -> None:
        """Update the state of a device that has passed a fence, or is lost."""
        device = fence.device
        launches = device.launches
        if launches is None:
            return
        device.live.pop(fence, None)
        if launches.fence is fence:
            launches.fence = None
        if fence.launch > launches.order.reached:
            device.backend.got_to(fence.launch)
        if device.backend.lost is None:
            launches.healthy_until = max(launches.healthy_until, fence.launch)
        if self.learnt[device] != self.scheduler.now:  # if one pass finds two fences, the time between them is unknown
            self.learnt[device] = self.scheduler.now
            launches.learn(fence, self.passed_at[device])
        self.passed_at[device] = fence.finished
        launches.done = max(launches.done, fence.cost)
        if launches.flooded and not is_too_far_ahead(device, launches, 2):
            for session in launches.flooded:
                session.flooded = False
            launches.flooded.clear()
        if launches.flooded:
            self.await_launches(device)  # flooded sessions wait for this fence
        self.scheduler.retry(device)

    def caught_up(self, device: DeviceState, launches: Launches) -> None:
        """Note that the device has completed all launches."""
        launches.healthy_until = launches.order.issued
        device.backend.got_to(launches.order.issued)
        launches.done = launches.cost
        self.passed_at[device] = self.scheduler.clock()

    def poll(self) -> None:
        """Collect the fences that the devices have passed."""
        for stream in self.streams:
            if stream.unwatched:
                self.scheduler.finished.extend(stream.poll())

    def watch(self) -> None:
        """Let the streams' threads wait for the fences, before the driving thread sleeps."""
        for stream in self.streams:
            if stream.unwatched:
                stream.watch()

    # -- waits for launches ----------------------------------------------------------------------------------------

    def order(self, instruction: Instruction) -> None:
        """Order an instruction, at its admission, after the launches that it depends on."""
        instruction.doubtful = instruction.reports or any(is_doubtful(copy.writer) for copy in instruction.reads)
        for copy in instruction.reads:
            if copy.written:
                self._order(instruction, copy, copy.written, Reason.RAW)
        for copy in instruction.writes:
            if copy.touched and copy not in instruction.reads:
                self._order(instruction, copy, copy.touched, Reason.WAW if copy.written == copy.touched else Reason.WAR)
            elif copy.touched > copy.written:
                self._order(instruction, copy, copy.touched, Reason.RAW)

    def _order(self, instruction: Instruction, copy: Copy, number: int, reason: Reason) -> None:
        device = copy.device
        launches = device.launches
        if launches is None or number <= launches.order.reached:
            return
        if instruction.device is device and instruction.stream is None and not instruction.on_control:
            return  # the instruction will be on the launches' stream, the only compute stream
        fence = self.fence_after(device, launches, number)
        if not any(source == fence.id and about == copy.id for source, _, about, _ in instruction.edges):
            edges.add_edge(fence, instruction, reason, copy.id)

    def order_barrier(self, barrier: Instruction) -> None:
        """Order a barrier after all launches so far."""
        for device in self.devices:
            launches = device.launches
            if launches is not None and launches.order.issued > launches.order.reached:
                edges.add_edge(self.fence_after(device, launches, launches.order.issued), barrier, Reason.BARRIER, 0)

    def order_memory(self, instruction: Instruction, stream: Stream) -> None:
        """Order an instruction, when it is handed to a stream, after the launches that may still use its new memory."""
        for binding in instruction.outputs:
            copy = binding.copy
            launches, buffer = copy.device.launches, copy.buffer
            if launches is None or buffer is None or buffer.behind <= launches.order.reached:
                continue
            if stream is launches.queue.stream:
                continue
            fence = self.fence_after(copy.device, launches, buffer.behind)
            if fence not in instruction.event_sources:
                instruction.event_sources = (*instruction.event_sources, fence)
                instruction.edges.append((fence.id, Reason.MEMORY, copy.id, True))

    def await_launches(self, device: DeviceState) -> bool:
        """Make a fence after all launches; False if all launches are complete.

        When the device passes the fence, instructions that wait for memory are retried, and flooded sessions go on.
        """
        launches = device.launches
        if launches is None or launches.order.issued <= launches.order.reached:
            return False
        self.fence_after(device, launches, launches.order.issued)
        return True

    # -- launching -------------------------------------------------------------------------------------------------

    def launch_here(self, instruction: Instruction, stream: Stream) -> bool:
        """Launch an instruction on the driving thread, so that later ops can be launched at admission.

        False if the launcher must launch it, for example while the launcher has earlier work for the stream.
        """
        launches, plan = instruction.device.launches, instruction.plan
        if launches is None or not stream.is_free():
            return False
        if plan is None:
            may = is_small_upload(instruction, stream)
        else:
            may = stream is launches.queue.stream and not instruction.pending and not instruction.blocking
            may = may and launches.is_warm(plan, strides_of(instruction))
        if not may or any(source.event is None for source in instruction.event_sources):
            return False
        instruction.here = True
        stream.fence(instruction)
        return True

    def launched(self, session: VmSession, device: DeviceState, launches: Launches, cost: int = 0) -> None:
        """Make the next fence if it is due, and mark the session as flooded if it is too far ahead of the device.

        Called after a launch that reaches `fence_cost` or `fence_number`, or after several launches with this `cost`.
        """
        launches.cost += cost
        interval = session.detail or self.scheduler.ring.details.every or FENCE_INTERVAL
        launches.fence_interval = min(interval, FENCE_INTERVAL)
        if launches.last != session.id:
            launches.last = session.id
            launches.fence_number = min(launches.fence_number, launches.order.issued - 1 + launches.fence_interval)
            queue_of(session, launches.queue.stream, device)  # makes the session a user of the device
            launches.fence_cost = min(launches.fence_cost, launches.cost + room_of(device, launches) // 2)
        if launches.cost < launches.fence_cost and launches.order.issued < launches.fence_number:
            return
        self.fence_after(device, launches, launches.order.issued)
        if is_too_far_ahead(device, launches, 1):
            launches.flooded[session] = None
            session.flooded = True


def is_doubtful(writer: Instruction | None) -> bool:
    """Whether an unfinished write, although launched, may still fail."""
    return writer is not None and writer.doubtful


def upload_stream(device: DeviceState) -> Stream:
    """The device's stream for copies from the host."""
    return device.backend.copy_stream(StreamKind.H2D)


def is_small_upload(instruction: Instruction, stream: Stream) -> bool:
    """Whether the instruction is a small upload that waits for nothing, after which its readers can be launched."""
    if instruction.opcode is not Opcode.UPLOAD or instruction.event_sources:
        return False
    return stream is upload_stream(instruction.device) and instruction.bytes_moved <= INLINE_BYTES


def is_unfenced(device: DeviceState) -> bool:
    """Whether a launch may be unfinished and has no fence after it."""
    launches = device.launches
    if launches is None:
        return False
    covered = launches.order.reached if launches.fence is None else launches.fence.launch
    return launches.order.issued > covered


def room_of(device: DeviceState, launches: Launches) -> int:
    """The cost of the launches by which a session may be ahead of the device."""
    return int((EXCLUSIVE_NS if len(device.users) < 2 else SHARED_NS) * launches.pace)


def is_too_far_ahead(device: DeviceState, launches: Launches, part: int) -> bool:
    """Whether the launches ahead of the device exceed 1/`part` of the limits, by number or by cost."""
    ahead, cost = launches.order.issued - launches.order.reached, launches.cost - launches.done
    return ahead >= MIN_AHEAD and (ahead * part > MAX_AHEAD or cost * part >= room_of(device, launches))

"""Fences: how everything but later launches on the same stream waits for what was launched at admission.

`vm.model.launches` says what a launch and a fence are. A fence is dispatched where it is made: it is the source of an
edge like any instruction that a stream has, so events order other streams behind it, and the host waits for its report.

What waits:

- an instruction that reads what a launch has written, or writes what a launch has used, unless it goes to the same
  stream, whose order is enough (`order`);
- a Barrier, for all launches so far (`order_barrier`);
- an instruction of another stream that takes memory which launches may still use (`order_memory`).

A session that launches faster than its device works is *flooded*: the machine takes no more of its messages until the
device has caught up with half of what is allowed. A fence is made every `OFTEN` launches, and whenever half of the
allowed kernel time has been launched, so the machine learns of progress before the device runs out of work. A launch
costs the host about the same however long its kernel takes, so both the number of launches and their kernel time are
bounded. The time is an estimate: element operations at the pace that the device was seen to have (`Launches.learn`).
Whoever asks for detail has fences as often as asked for, and so knows the times of single launches.

Rejected: an event for each launch. Recording one takes 0.4 us, and nothing waits for most of them.
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

OFTEN: Final = 128  # launches from one fence to the next, at most
MOST: Final = 256  # launches that a session may be ahead
LEAST: Final = 2  # launches that it may be ahead in any case: one runs, and the next one is queued
AHEAD_NS: Final = 20_000_000  # kernel time that a session which has its device to itself may be ahead
BESIDE_NS: Final = 300_000  # the same where others use the device, too: their ops queue up behind
SOON_NS: Final = 20_000  # kernel time before a small value, up to which the driving thread waits for the value itself


class Fences:
    """Makes the fences of all devices that launch, and orders instructions behind them."""

    def __init__(self, scheduler: Scheduler, devices: Sequence[DeviceState]) -> None:
        self.scheduler = scheduler
        self.devices = [device for device in devices if device.launches is not None]
        # Those on which the driving thread launches, and looks for what is over.
        self.streams = [stream for one in self.devices for stream in (one.compute[0], upload_stream(one))]
        self.passed_at = dict.fromkeys(self.devices, 0)  # when they had passed the newest fence
        self.learnt = dict.fromkeys(self.devices, 0)  # in which pass of the scheduler they were last seen to pass one

    def behind(self, device: DeviceState, launches: Launches, number: int) -> Fence:
        """A fence that covers the launch of that number, which is not reached."""
        newest = launches.fence
        if newest is not None and newest.launch >= number:
            return newest
        self.scheduler.ids += 1
        fence = Fence(self.scheduler.ids, self.scheduler.system_session, device)
        fence.received = self.scheduler.now
        self.launch(fence, launches)
        device.live[fence] = None
        launches.fence = fence
        launches.halt = launches.cost + room_of(device, launches) // 2
        launches.stop = launches.order.issued + launches.often
        return fence

    def launch(self, fence: Fence, launches: Launches) -> None:
        """Put a fence, with what it launches, in the order of its device, and have its stream report it."""
        scheduler, queue = self.scheduler, launches.queue
        scheduler.admit_launched(fence)
        fence.ready = fence.dispatched = fence.started = scheduler.clock()
        enter(queue, fence)
        for copy in fence.reads:
            note_queued(copy, queue.stream)
        queue.stream.fence(fence)

    def read(self, fence: Fence, source: Binding) -> None:
        """Launch the reading of a value that is there in the order of its device."""
        launches = fence.device.launches
        if launches is None:
            raise AssertionError(f"{fence.device.name} launches nothing")
        fence.inputs, fence.reads = (source,), (source.copy,)
        source.tensor.bound = True
        self.launch(fence, launches)

    def look(self) -> None:
        """Have a fence behind all launches, for a caller that asks repeatedly what is ready: the answer must change."""
        for device in self.devices:
            self.await_launches(device)

    def passed(self, fence: Fence) -> None:
        """The device has got to a fence, or is lost."""
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
            launches.sound = max(launches.sound, fence.launch)
        if self.learnt[device] != self.scheduler.now:  # else the time between two that were found together is unknown
            self.learnt[device] = self.scheduler.now
            launches.learn(fence, self.passed_at[device])
        self.passed_at[device] = fence.finished
        launches.done = max(launches.done, fence.cost)
        if launches.flooded and not too_far(device, launches, 2):
            for session in launches.flooded:
                session.flooded = False
            launches.flooded.clear()
        if launches.flooded:
            self.await_launches(device)  # they wait for the rest
        self.scheduler.retry(device)

    def caught_up(self, device: DeviceState, launches: Launches) -> None:
        """The device was seen to have completed everything that was launched."""
        launches.sound = launches.order.issued
        device.backend.got_to(launches.order.issued)
        launches.done = launches.cost
        self.passed_at[device] = self.scheduler.clock()

    def poll(self) -> None:
        """Report what fences the devices have passed."""
        for stream in self.streams:
            if stream.unwatched:
                self.scheduler.finished.extend(stream.poll())

    def watch(self) -> None:
        """The driving thread is about to sleep: let the streams' threads wait for the fences."""
        for stream in self.streams:
            if stream.unwatched:
                stream.watch()

    # -- who waits -------------------------------------------------------------------------------------------------

    def order(self, instruction: Instruction) -> None:
        """Order an instruction that is being admitted behind the launches that it depends on."""
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
            return  # it goes to the stream of the launches, the only one that computes
        fence = self.behind(device, launches, number)
        if not any(source == fence.id and about == copy.id for source, _, about, _ in instruction.edges):
            edges.add_edge(fence, instruction, reason, copy.id)

    def order_barrier(self, barrier: Instruction) -> None:
        """Order a Barrier behind all launches so far."""
        for device in self.devices:
            launches = device.launches
            if launches is not None and launches.order.issued > launches.order.reached:
                edges.add_edge(self.behind(device, launches, launches.order.issued), barrier, Reason.BARRIER, 0)

    def order_memory(self, instruction: Instruction, stream: Stream) -> None:
        """Order an instruction that is being handed to a stream behind the launches that may still use its memory."""
        for binding in instruction.outputs:
            copy = binding.copy
            launches, buffer = copy.device.launches, copy.buffer
            if launches is None or buffer is None or buffer.behind <= launches.order.reached:
                continue
            if stream is launches.queue.stream:
                continue
            fence = self.behind(copy.device, launches, buffer.behind)
            if fence not in instruction.event_sources:
                instruction.event_sources = (*instruction.event_sources, fence)
                instruction.edges.append((fence.id, Reason.MEMORY, copy.id, True))

    def await_launches(self, device: DeviceState) -> bool:
        """Have a fence behind all launches; False if they are all complete. When it passes, instructions that wait for
        memory are tried again, and flooded sessions go on."""
        launches = device.launches
        if launches is None or launches.order.issued <= launches.order.reached:
            return False
        self.behind(device, launches, launches.order.issued)
        return True

    # -- launching -------------------------------------------------------------------------------------------------

    def launch_here(self, instruction: Instruction, stream: Stream) -> bool:
        """Launch an instruction on the driving thread, so that what follows can be launched at admission. False if it
        is the launcher's, as it is while the launcher still has earlier work for the stream."""
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
        """After a launch that brings the device to `halt` or `stop`, or after several of that `cost`: make the next
        fence if it is due, and mark the session as flooded if it is too far ahead."""
        launches.cost += cost
        often = session.detail or self.scheduler.ring.details.every or OFTEN
        launches.often = min(often, OFTEN)
        if launches.last != session.id:
            launches.last = session.id
            launches.stop = min(launches.stop, launches.order.issued - 1 + launches.often)
            queue_of(session, launches.queue.stream, device)  # it is a user of the device
            launches.halt = min(launches.halt, launches.cost + room_of(device, launches) // 2)
        if launches.cost < launches.halt and launches.order.issued < launches.stop:
            return
        self.behind(device, launches, launches.order.issued)
        if too_far(device, launches, 1):
            launches.flooded[session] = None
            session.flooded = True


def is_doubtful(writer: Instruction | None) -> bool:
    """May an unfinished write still fail, although it was launched?"""
    return writer is not None and writer.doubtful


def upload_stream(device: DeviceState) -> Stream:
    """The stream of copies from the host."""
    return device.backend.copy_stream(StreamKind.H2D)


def is_small_upload(instruction: Instruction, stream: Stream) -> bool:
    """Is it an upload that takes a moment, and waits for nothing? What uses it can be launched then."""
    if instruction.opcode is not Opcode.UPLOAD or instruction.event_sources:
        return False
    return stream is upload_stream(instruction.device) and instruction.bytes_moved <= INLINE_BYTES


def is_unfenced(device: DeviceState) -> bool:
    """Is there a launch that no fence covers, and that is not known to be complete?"""
    launches = device.launches
    if launches is None:
        return False
    covered = launches.order.reached if launches.fence is None else launches.fence.launch
    return launches.order.issued > covered


def room_of(device: DeviceState, launches: Launches) -> int:
    """The cost of unfinished launches that a session may have there."""
    return int((AHEAD_NS if len(device.users) < 2 else BESIDE_NS) * launches.pace)


def too_far(device: DeviceState, launches: Launches, part: int) -> bool:
    """Is the device behind by more launches than a `part`-th of what is allowed, or by as much work?"""
    ahead, cost = launches.order.issued - launches.order.reached, launches.cost - launches.done
    return ahead >= LEAST and (ahead * part > MOST or cost * part >= room_of(device, launches))

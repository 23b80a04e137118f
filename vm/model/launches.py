"""Launches: the ops that were put into the order of a device's stream at admission, and the device's known progress.

On a device that `launches`, calling a kernel only gives the op a position in the order of a stream: its *number*. Later
launches on the same stream may treat a launched op as finished, since they run after it. For everything else (other
streams, the host, the next user of its memory), the op is finished once the device has *reached* its number.

An instruction that cannot assume this order waits for a *fence*: an instruction, usually without a kernel, that the
stream reports when the device gets there. A fence is made on demand, covers all launches before it, and is shared until
the next launch. So edges are the only mechanism for waiting, and a launch that nothing waits for costs only its number.

`Copy.written` and `Copy.touched` are the numbers of the latest launches that wrote and used a copy, `Buffer.behind` is
the number of the latest launch that used a piece of memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ...interpreter.opcodes import Opcode
from .device_state import DeviceState
from .instruction import Instruction
from .session_queue import SessionQueue
from .tensor import Binding, Copy

if TYPE_CHECKING:
    from .session import VmSession
    from .work_plan import WorkPlan

REMEMBERED = 1 << 16  # remembered keys of plans: a bound, since the keys of library functions contain shapes
MIN_KERNEL_NS: Final = 2000  # the least time that a kernel is assumed to take


class Fence(Instruction):
    """An instruction that is reported when its device has reached the number `launch`.

    Its only possible kernel is the read of a small value, which the driving thread launches. `cost`: the cost of all
    launches before the fence.
    """

    __slots__ = ("cost",)

    def __init__(
        self,
        id_: int,
        session: VmSession,
        device: DeviceState,
        opcode: Opcode = Opcode.FENCE,
        label: str = "fence",
        location: int = 0,
    ) -> None:
        super().__init__(id_, session, opcode, label, device, location)
        launches = device.launches
        if launches is None:
            raise AssertionError(f"{device.name} launches nothing")
        self.stream = launches.queue.stream
        self.launch = launches.order.issued
        self.cost = launches.cost


class Launches:
    """The launches of one device.

    `order` has their numbers; `fence` is the newest fence that is not reached; `healthy_until` is the highest number up
    to which no error has surfaced. `queue` counts the fences on the stream, which belong to no session. `flooded`:
    sessions that have launched as far ahead as they may. `last`: the id of the session that launched last. `seen`: keys
    of plans (`Plan.key`) of which some kernel has run on the device. `warm`: keys whose kernels are compiled and loaded
    for packed operands; for other operands the key is paired with their strides. `begun`: keys that the launcher has
    run, or will.

    `cost` is the work of all launches, and `done` the part known to be complete, in element operations, plus
    `least_cost` for each launch. `pace`: element operations per ns, as measured between fences. The next fence is due
    when `cost` reaches `fence_cost`, or the number reaches `fence_number`: then `Fences.launched` must be called.
    `fence_interval`: the most launches between two fences.
    """

    __slots__ = (
        "begun",
        "cost",
        "done",
        "fence",
        "fence_cost",
        "fence_interval",
        "fence_number",
        "flooded",
        "healthy_until",
        "last",
        "least_cost",
        "order",
        "pace",
        "queue",
        "seen",
        "warm",
    )

    def __init__(self, device: DeviceState) -> None:
        self.queue = SessionQueue(device.compute[0], device)
        self.order = device.backend.order
        self.fence: Fence | None = None
        self.flooded: dict[VmSession, None] = {}
        self.healthy_until = 0
        self.last = -1
        self.seen: Any = set()  # not declared as sets, since keys have no common type
        self.warm: Any = set()
        self.begun: dict[Any, None] = {}
        self.cost = self.done = 0
        self.pace = device.backend.pace
        self.least_cost = int(MIN_KERNEL_NS * self.pace)
        self.fence_cost = self.fence_number = self.fence_interval = 0

    def learn(self, fence: Fence, since: int) -> None:
        """Learn the pace from a fence that the device has reached. `since`: when the fence before was seen as reached.

        If the device had work all the time, the measurement is its pace; if it ran out of work, a lower bound. One
        measurement at most doubles the pace, since the device may have reached the fence before long before `since`.
        """
        elapsed, cost = fence.finished - since, fence.cost - self.done
        if elapsed <= 0 or cost <= 0:
            return
        seen = min(cost / elapsed, 2 * self.pace)
        if fence.dispatched <= since:
            self.pace += (seen - self.pace) / 2
        else:
            self.pace = max(self.pace, seen)

    def follows(self, copy: Copy) -> bool:
        """Whether a launch made now would run after the unfinished write of a copy.

        The write must be one that cannot fail unless the device is lost. For a write on the upload stream, the launch
        stream is made to wait.
        """
        writer = copy.writer
        if writer is None:
            return True
        if writer.event is None or writer.error is not None or writer.failures is not None:
            return False
        if writer.foreign or writer.doubtful or writer.stream is None:
            return False
        if writer.stream is self.queue.stream:
            return True
        if writer.opcode is not Opcode.UPLOAD:
            return False
        self.queue.stream.wait_for(writer)
        return True

    def follows_all(self, copy: Copy) -> bool:
        """Whether a launch made now would run after all unfinished uses of a copy."""
        stream = self.queue.stream
        if not self.follows(copy) or (copy.uses and (copy.queued != copy.uses or copy.stream is not stream)):
            return False
        return all(reader.event is not None and reader.stream is stream for reader in copy.readers or ())

    def note_warm(self, plan: WorkPlan, strides: tuple[Any, ...]) -> None:
        """Note that the kernels of a call have run on the device.

        If there are too many keys, all are forgotten, and the next calls go to the launcher again.
        """
        if len(self.warm) >= REMEMBERED:
            self.seen.clear()
            self.warm.clear()
        self.seen.add(plan.key)
        self.warm.add(plan.key if strides.count(None) == len(strides) else (plan.key, strides))

    def begins(self, plan: WorkPlan, strides: tuple[Any, ...]) -> bool:
        """Whether a call for the launcher is the first with its kernels, so that it compiles or loads them."""
        key = plan.key if strides.count(None) == len(strides) else (plan.key, strides)
        if plan.key is None or key in self.begun:
            return False
        self.begun[key] = None
        if len(self.begun) > REMEMBERED:
            del self.begun[next(iter(self.begun))]
        return True

    def is_warm(self, plan: WorkPlan, strides: tuple[Any, ...]) -> bool:
        """Whether the kernels of a call are compiled and loaded. `strides`: of the operands, None for a packed one."""
        packed = strides.count(None) == len(strides)
        return plan.launchable and (plan.key if packed else (plan.key, strides)) in self.warm


def strides_of(instruction: Instruction) -> tuple[Any, ...]:
    """The strides of an instruction's operands; None for a packed operand."""
    return tuple([one.strides for one in instruction.inputs if type(one) is Binding])

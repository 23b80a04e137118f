"""Launches: what was put in the order of a device's stream at admission, and how far the device is known to have got.

On a device that `launches`, calling a kernel only gives work a place in the order of a stream: its *number*. Later
launches on the same stream may treat an op that was launched at admission as finished, since they run behind it. For
everything else (other streams of the device, the host, the next user of its memory) the op is finished once the device
has *reached* that number.

What needs it earlier waits for a *fence*: an instruction without a kernel that the stream reports when it gets there. A
fence is made where one is needed, covers all launches before it, and is shared until the next launch. So there is one
mechanism for waiting, that of edges, and a launch that nothing waits for costs nothing but its number.

`Copy.written` and `Copy.touched` are the numbers of launches that used a copy, `Buffer.behind` those of memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ...interpreter.opcodes import Opcode
from .device_state import DeviceState
from .instruction import Instruction
from .session_queue import SessionQueue
from .tensor import Binding, Copy

if TYPE_CHECKING:
    from .plan import Plan
    from .session import VmSession

REMEMBERED = 1 << 16  # keys of plans of one kind: those of library functions differ by shape, so that they never end
LEAST_NS: Final = 2000  # that a kernel is taken to need at least


class Fence(Instruction):
    """An instruction that is reported when its device has reached the number `launch`. `cost`: what had been launched
    by then. It has no kernel, or one that the driving thread launches, which reads a small value."""

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
    """The launches of one device. `order` has their numbers; `fence` is the newest one that is not reached, `sound` the
    highest number up to which no error surfaced. `queue` counts the fences on the stream, of no session. `flooded`:
    sessions that have launched as far ahead as they may. `last`: the id of the session that launched last. `seen`: keys
    of plans (`Plan.key`) of which some kernel has run there. `warm`: keys whose kernels are compiled and loaded, for
    packed operands; for others the key is paired with their strides. `begun`: keys that the launcher has run, or will.

    `cost` is what was launched, and `done` the part of it that is known to be complete, in element operations; each
    launch counts as `least` of them more. `pace`: element operations per ns, as seen between fences. A launch that
    brings `cost` up to `halt`, or the number up to `stop`, needs a look (`Fences.launched`). `often`: launches from one
    fence to the next, at most.
    """

    __slots__ = (
        "begun",
        "cost",
        "done",
        "fence",
        "flooded",
        "halt",
        "last",
        "least",
        "often",
        "order",
        "pace",
        "queue",
        "seen",
        "sound",
        "stop",
        "warm",
    )

    def __init__(self, device: DeviceState) -> None:
        self.queue = SessionQueue(device.compute[0], device)
        self.order = device.backend.order
        self.fence: Fence | None = None
        self.flooded: dict[VmSession, None] = {}
        self.sound = 0
        self.last = -1
        self.seen: Any = set()  # not declared as sets: models have everything in them
        self.warm: Any = set()
        self.begun: dict[Any, None] = {}
        self.cost = self.done = 0
        self.pace = device.backend.pace
        self.least = int(LEAST_NS * self.pace)
        self.halt = self.stop = self.often = 0

    def learn(self, fence: Fence, since: int) -> None:
        """Learn the pace from a fence that has passed. `since`: when the fence before it was seen to have passed.

        A device that had work all that time is as fast as this; one that ran out of work is at least this fast. One
        measurement no more than doubles the pace, since the earlier fence may have passed long before it was seen to.
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
        """Would a launch now come behind the unfinished write of a copy, one that cannot fail but with the device?

        A write on the stream of uploads is waited for by the device.
        """
        writer = copy.writer
        if writer is None:
            return True
        if writer.event is None or writer.error is not None or writer.failures is not None:
            return False
        if writer.revoked is not None or writer.foreign or writer.doubtful or writer.stream is None:
            return False
        if writer.stream is self.queue.stream:
            return True
        if writer.opcode is not Opcode.UPLOAD:
            return False
        self.queue.stream.wait_for(writer)
        return True

    def follows_all(self, copy: Copy) -> bool:
        """Would a launch now come behind all unfinished uses of a copy?"""
        stream = self.queue.stream
        if not self.follows(copy) or (copy.uses and (copy.queued != copy.uses or copy.stream is not stream)):
            return False
        return all(reader.event is not None and reader.stream is stream for reader in copy.readers or ())

    def note_warm(self, plan: Plan, strides: tuple[Any, ...]) -> None:
        """Note that the kernels of a call have run on the device. Too many are all forgotten: their next calls are the
        launcher's again."""
        if len(self.warm) >= REMEMBERED:
            self.seen.clear()
            self.warm.clear()
        self.seen.add(plan.key)
        self.warm.add(plan.key if strides.count(None) == len(strides) else (plan.key, strides))

    def begins(self, plan: Plan, strides: tuple[Any, ...]) -> bool:
        """Is this call, which the launcher gets, the first with its kernels, so that it compiles or loads them?"""
        key = plan.key if strides.count(None) == len(strides) else (plan.key, strides)
        if plan.key is None or key in self.begun:
            return False
        self.begun[key] = None
        if len(self.begun) > REMEMBERED:
            del self.begun[next(iter(self.begun))]
        return True

    def is_warm(self, plan: Plan, strides: tuple[Any, ...]) -> bool:
        """Are the kernels of a call compiled and loaded? `strides`: of the operands, None for one that is packed."""
        packed = strides.count(None) == len(strides)
        return plan.launchable and (plan.key if packed else (plan.key, strides)) in self.warm


def strides_of(instruction: Instruction) -> tuple[Any, ...]:
    """The strides of its operands, None for a packed one."""
    return tuple([one.strides for one in instruction.inputs if type(one) is Binding])

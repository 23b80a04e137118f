"""Launches: what was put in the order of a device's stream at admission, and how far the device is known to have got.

On a device that `launches`, calling a kernel only gives work a place in the order of a stream: its *number*. An op that
is launched at admission is finished as far as later launches are concerned: they come behind it on the same stream. For
everybody else it is finished once the device has *reached* that number: the other streams of the device, the host, and
whoever takes over its memory.

They wait for a *fence*: an instruction without a kernel that the stream reports when it has got so far. A fence is made
where somebody needs one, covers all launches before it, and serves all who come until the next launch. So there is one
mechanism for waiting, that of edges, and a launch that nobody waits for costs nothing but its number.

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

REMEMBERED = 1 << 16  # first calls of kernels
LEAST_NS: Final = 2000  # that a kernel takes at the least


class Fence(Instruction):
    """An instruction that is reported when its device has reached the number `launch`; `cost`: what had been launched
    by then. It has no kernel, or one that the driving thread launches: a small value is read so."""

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
    sessions that have launched as far ahead as they may. `last`: the id of the session that launched last. `seen`: the
    keys of plans whose kernels have run there (`Plan.key`); `warm`: the same for packed operands, and with the strides
    of others: these kernels are compiled and loaded. `begun`: what the launcher has run, or will.

    `cost` is what was launched, and `done` what is known to be complete of it, in element operations; each launch has
    `least` of them at least. `pace`: element operations per ns, as seen between fences. A launch that brings `cost` up
    to `halt`, or the number up to `stop`, has to be looked at (`scheduler.fences`).
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
        self.seen: set[Any] = set()
        self.warm: set[Any] = set()
        self.begun: dict[Any, None] = {}
        self.cost = self.done = 0
        self.pace = device.backend.pace
        self.least = int(LEAST_NS * self.pace)
        self.halt = self.stop = 0

    def learn(self, fence: Fence, since: int) -> None:
        """How fast is the device? `since`: when it had passed the fence before this one.

        If it has had work from then on, it is just as fast as that, otherwise at least so. One look makes it no more
        than twice as fast, since the host may have learnt late that the earlier fence was passed.
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
        """The kernels of a call have run on the device. Of so many that they are forgotten, the next calls are the
        launcher's once more."""
        if len(self.warm) >= REMEMBERED:
            self.seen.clear()
            self.warm.clear()
        self.seen.add(plan.key)
        self.warm.add(plan.key if strides.count(None) == len(strides) else (plan.key, strides))

    def begins(self, plan: Plan, strides: tuple[Any, ...]) -> bool:
        """Is a call that the launcher gets the first one of its kernels, so that they are compiled or loaded then?"""
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

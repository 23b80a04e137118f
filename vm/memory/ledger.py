"""The ledger of a device's memory: the plan of admission, and the order in which instructions reserve memory.

The ledger makes one promise: a program that fits in the device's memory when its instructions run one by one also fits
here, whatever the order in which its instructions become ready.

- Admission plans: if a new instruction would exceed the limit, other copies leave the plan first (`making_room`).
- Memory is reserved at dispatch, also for the kernel's temporaries, which are freed once the kernel has run. The first
  of the `unreserved` instructions may reserve whenever it fits. A later one may overtake only if the remaining memory
  suffices for all unreserved instructions, so the first one finds its memory at the latest when all instructions before
  it have retired.
- Only the oldest live instruction of a device drops further replicas at dispatch (`allocation.may_drop`).
- Remote instructions (`Instruction.remote`) wait for another node. They keep this order among the instructions of their
  session only, and no other session waits for them, since the other node may itself wait for that session. After a
  remote instruction, all later instructions of its session that make memory on the device count as remote.
- A ready instruction whose memory is not free waits in a queue of its device and blocks no stream. Each release of
  memory retries the oldest. For the oldest live instruction of the device, values are evicted beyond the plan
  (`placement.late_room`); it fails if it does not fit even then.

Rejected: reserving in order of readiness (two half-admitted programs deadlock or fail where either would have fitted),
and reserving at admission (a long pending list would hold memory that it needs only later).
"""

from __future__ import annotations

import heapq

from ..model.account import Account
from ..model.device_state import DeviceState
from ..model.instruction import HELD_BY_MEMORY, Instruction
from ..model.lifecycle import Status
from ..model.needs import Needs


def expect(device: DeviceState, instruction: Instruction, nbytes: int | None) -> None:
    """Note at admission that the instruction will reserve `nbytes`; None if not known yet."""
    needs = device.needs
    if instruction.remote or (device.behind and instruction.author in device.behind):
        instruction.remote = True  # so that its readers become remote, too
        needs = device.behind.setdefault(instruction.author, Needs())
    needs.put(instruction, -1 if nbytes is None else nbytes)


def expect_late(device: DeviceState, instruction: Instruction, nbytes: int) -> None:
    """Note after admission that the instruction will reserve `nbytes`, at its position in program order."""
    if instruction.remote:
        device.behind.setdefault(instruction.author, Needs()).put(instruction, nbytes)
    elif instruction not in device.unreserved:
        device.needs.put(instruction, nbytes)


def undecided(account: Account, device: DeviceState, excluded: Instruction | None = None) -> int:
    """The bytes planned for an account's results of unknown size, except those of the instruction `excluded`.

    0 on a device without tiers, since the results could not be evicted from there once their size is known.
    """
    if device.below is None:
        return 0
    mine = [one for one in device.live if one.max_bytes and one.device is device and one.session.account is account]
    return sum(one.max_bytes for one in mine if one is not excluded)


def learn_need(device: DeviceState, instruction: Instruction, nbytes: int) -> None:
    """Set the need of an instruction whose pending meta is resolved."""
    for needs in needs_with(device, instruction):
        if needs.needs[instruction] < 0:
            needs.put(instruction, nbytes)


def settle(device: DeviceState, instruction: Instruction) -> None:
    """Remove an instruction that has reserved its memory, or never will."""
    if (remote_needs := behind(device, instruction)) is not None:
        remote_needs.take(instruction)
        if not remote_needs.needs:
            del device.behind[instruction.author]
    device.needs.take(instruction)


def reduce_need(device: DeviceState, instruction: Instruction, nbytes: int) -> None:
    """Reduce an instruction's need to `nbytes`, the most that its kernel may return: its known memory is reserved."""
    for needs in needs_with(device, instruction):
        if needs.needs[instruction] > 0:
            needs.put(instruction, nbytes)


def needs_with(device: DeviceState, instruction: Instruction) -> list[Needs]:
    """The sums of needs on the device that include the instruction's: none, one or two."""
    return [one for one in (device.needs, behind(device, instruction)) if one is not None and instruction in one.needs]


def behind(device: DeviceState, instruction: Instruction) -> Needs | None:
    """The remote needs that contain the instruction; None if it is not remote."""
    return device.behind.get(instruction.author) if device.behind and instruction.remote else None


def may_reserve(device: DeviceState, instruction: Instruction, nbytes: int) -> bool:
    """Whether the instruction may reserve now without endangering an earlier one."""
    backend = device.backend
    free = backend.limit - backend.allocated
    remote_needs = behind(device, instruction)
    if remote_needs is not None and not remote_needs.lets(instruction, nbytes, free, backend.limit):
        return False
    beside, needs = 0 if remote_needs is None else nbytes, device.needs
    if not needs.unknown and free - beside >= needs.nbytes:
        return True  # enough for all unreserved instructions
    first = next(iter(device.unreserved), instruction)
    if first is instruction or (remote_needs is not None and first.admitted > instruction.admitted):
        return True
    # The need of an earlier instruction is unknown: leave half of the device for it.
    return needs.unknown > 0 and free - nbytes >= max(needs.nbytes, backend.limit // 2)


def has_spare(device: DeviceState, nbytes: int) -> bool:
    """Whether `nbytes` are free beyond the needs of all unreserved instructions."""
    backend, needs = device.backend, device.needs
    spare = backend.limit - backend.allocated - nbytes - needs.nbytes
    if device.behind:
        if any(remote_needs.unknown for remote_needs in device.behind.values()):
            return False
        spare -= sum(remote_needs.nbytes for remote_needs in device.behind.values())
    return not needs.unknown and spare >= 0


def oldest(device: DeviceState) -> Instruction | None:
    """The oldest live instruction of the device that does not wait for another node.

    Earlier instructions wait for other nodes, so this machine cannot tell when they free memory.
    """
    for instruction in device.live:
        stream = instruction.stream
        sent = instruction.status is Status.DISPATCHED and stream is not None and not stream.ordered
        if not sent and not (instruction.remote and instruction.status is Status.WAITING):
            return instruction
    return None


def waits_long(device: DeviceState, before: int) -> Instruction | None:
    """The oldest of the instructions that began to wait for the device's memory before the time `before`, or None."""
    long = [one for _, one in device.waiting if one.status is Status.READY and one.ready < before]
    return min(long, key=lambda one: one.admitted, default=None)


def wait_for_memory(instruction: Instruction) -> None:
    """Queue a ready instruction on its device; each release of memory retries the oldest one."""
    instruction.held |= HELD_BY_MEMORY
    heapq.heappush(instruction.device.waiting, (instruction.admitted, instruction))


def next_waiting(device: DeviceState) -> list[Instruction]:
    """Remove and return the first waiting instructions: up to the oldest one that is not remote.

    The remote instructions before it are retried as well, since they do not make others wait.
    """
    instructions: list[Instruction] = []
    while device.waiting:
        instruction = heapq.heappop(device.waiting)[1]
        if not instruction.retired:
            instructions.append(instruction)
            if not instruction.remote:
                break
    return instructions

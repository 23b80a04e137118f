"""The ledger of a device's memory: what admission plans, and which instruction may reserve when.

The ledger makes one promise: a program that fits in the device's memory when its instructions run one by one fits
here too, in whatever order they become ready.

- Admission plans: where a new instruction would exceed the limit, other copies leave the plan first (`making_room`).
- Memory is reserved at dispatch, also for the kernel's temporaries, which are gone once the kernel has run. The first
  of the `unreserved` may reserve whenever it fits. A later one may overtake only if the memory left suffices for all
  that are unreserved, so the first always finds its memory once all instructions before it have retired.
- Only the oldest live instruction of a device drops further replicas at dispatch (`allocation.may_drop`).
- What waits for another node, or for what does, keeps that order among the instructions of its session, and nobody else
  waits for it: on the other node somebody may wait for those others. `Instruction.remote` says so; behind such an
  instruction all that its session makes on the device counts as one.
- A ready instruction whose memory is not free waits in a queue of its device and blocks no stream. Each release of
  memory tries the oldest again. The oldest live instruction of the device has others leave beyond the plan
  (`placement.late_room`), and fails if it does not fit even then.

Rejected: reserving in order of readiness (two half-admitted programs deadlock or fail where either would have fitted),
and reserving at admission (a long pending list would hold memory that it needs only later).
"""

from __future__ import annotations

import heapq

from ..model.account import Account
from ..model.device_state import DeviceState
from ..model.instruction import HELD_BY_MEMORY, Instruction, Status
from ..model.remote_needs import RemoteNeeds


def expect(device: DeviceState, instruction: Instruction, nbytes: int | None) -> None:
    """At admission: the instruction will reserve that many bytes (None: not known yet)."""
    if instruction.remote or (device.behind and instruction.author in device.behind):
        instruction.remote = True  # so is what reads its result
        device.behind.setdefault(instruction.author, RemoteNeeds()).put(instruction, -1 if nbytes is None else nbytes)
    elif nbytes is None:
        device.unknown += 1
        device.unreserved[instruction] = -1
    else:
        device.unreserved[instruction] = nbytes
        device.unreserved_bytes += nbytes


def expect_late(device: DeviceState, instruction: Instruction, nbytes: int) -> None:
    """After admission: the instruction will reserve that many bytes, at its position in program order."""
    if instruction.remote:
        device.behind.setdefault(instruction.author, RemoteNeeds()).put(instruction, nbytes)
    elif instruction not in device.unreserved:
        device.unreserved_bytes += nbytes
        device.unreserved[instruction] = nbytes
        device.unreserved = dict(sorted(device.unreserved.items(), key=lambda entry: entry[0].admitted))


def plan_most(instruction: Instruction, nbytes: int) -> None:
    """From now on, results whose size data decide may have so many bytes. They count in the session's share, too."""
    device, more = instruction.device, nbytes - instruction.most
    instruction.most = nbytes
    device.planned += more
    if device.ceiling and more:
        shares = instruction.session.account.shares
        shares[device] = shares.get(device, 0) + more


def undecided(account: Account, device: DeviceState, but: Instruction | None = None) -> int:
    """What results may have whose size data have not decided yet, of an account and of all instructions `but` one, on a
    device from which values leave: once data have decided, these may leave, too."""
    if device.below is None:
        return 0
    mine = [one for one in device.live if one.most and one.device is device and one.session.account is account]
    return sum(one.most for one in mine if one is not but)


def learn_need(device: DeviceState, instruction: Instruction, nbytes: int) -> None:
    """The pending meta is resolved: the instruction will reserve that many bytes."""
    if device.unreserved.get(instruction) == -1:
        device.unknown -= 1
        device.unreserved[instruction] = nbytes
        device.unreserved_bytes += nbytes
    elif (theirs := behind(device, instruction)) is not None and theirs.needs.get(instruction) == -1:
        theirs.put(instruction, nbytes)


def settle(device: DeviceState, instruction: Instruction) -> None:
    """The instruction has reserved its memory, or never will."""
    if (theirs := behind(device, instruction)) is not None:
        theirs.take(instruction)
        if not theirs.needs:
            del device.behind[instruction.author]
    nbytes = device.unreserved.pop(instruction, 0)
    if nbytes < 0:
        device.unknown -= 1
    else:
        device.unreserved_bytes -= nbytes


def settle_but(device: DeviceState, instruction: Instruction, nbytes: int) -> None:
    """The instruction has reserved what it could; up to so many bytes will be adopted once its kernel has run."""
    before = device.unreserved.get(instruction)
    if before is not None and before > 0:
        device.unreserved_bytes += nbytes - before
        device.unreserved[instruction] = nbytes
    elif (theirs := behind(device, instruction)) is not None and theirs.needs.get(instruction, 0) > 0:
        theirs.put(instruction, nbytes)


def behind(device: DeviceState, instruction: Instruction) -> RemoteNeeds | None:
    """Where it is expected, if that is behind another node."""
    return device.behind.get(instruction.author) if device.behind and instruction.remote else None


def may_reserve(device: DeviceState, instruction: Instruction, nbytes: int) -> bool:
    """May the instruction reserve now without endangering an earlier one?"""
    backend = device.backend
    free = backend.limit - backend.allocated
    theirs = behind(device, instruction)
    if theirs is not None and not theirs.lets(instruction, nbytes, free, backend.limit):
        return False
    beside = 0 if theirs is None else nbytes
    if not device.unknown and free - beside >= device.unreserved_bytes:
        return True  # enough for all that are unreserved
    first = next(iter(device.unreserved), instruction)
    if first is instruction or (theirs is not None and first.admitted > instruction.admitted):
        return True
    # An earlier instruction does not know its needs: leave half of the device to it.
    return device.unknown > 0 and free - nbytes >= max(device.unreserved_bytes, backend.limit // 2)


def has_spare(device: DeviceState, nbytes: int) -> bool:
    """Are that many bytes free beyond the needs of all unreserved instructions?"""
    backend, needs = device.backend, device.unreserved_bytes
    if device.behind:
        if any(theirs.unknown for theirs in device.behind.values()):
            return False
        needs += sum([theirs.nbytes for theirs in device.behind.values()])
    return not device.unknown and backend.limit - backend.allocated - nbytes >= needs


def oldest(device: DeviceState) -> Instruction | None:
    """The oldest live instruction of the device that does not wait for another node: no earlier one frees memory
    soon, as far as this machine can tell."""
    for instruction in device.live:
        stream = instruction.stream
        sent = instruction.status is Status.DISPATCHED and stream is not None and not stream.ordered
        if not sent and not (instruction.remote and instruction.status is Status.WAITING):
            return instruction
    return None


def waits_long(device: DeviceState, before: int) -> Instruction | None:
    """The oldest instruction that has waited for the device's memory since `before`."""
    long = [one for _, one in device.waiting if one.status is Status.READY and one.error is None and one.ready < before]
    return min(long, key=lambda one: one.admitted, default=None)


def wait_for_memory(instruction: Instruction) -> None:
    """Queue a ready instruction on its device; each release of memory tries the oldest again."""
    instruction.held |= HELD_BY_MEMORY
    heapq.heappush(instruction.device.waiting, (instruction.admitted, instruction))


def next_waiting(device: DeviceState) -> list[Instruction]:
    """The oldest instruction that waits for memory, taken from the queue; and those before it that wait behind other
    nodes, since what these do is no reason to wait for others."""
    found: list[Instruction] = []
    while device.waiting:
        instruction = heapq.heappop(device.waiting)[1]
        if not instruction.retired:
            found.append(instruction)
            if not instruction.remote:
                break
    return found

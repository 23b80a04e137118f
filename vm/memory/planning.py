"""The plan of a device's memory: what will be in use once every admitted instruction has run, in program order.

`planned` has the bytes of all current copies, as far as these are known, and the most that results may have whose size
depends on data. Only this file changes the plan, and `recycling`, which is `join_plan` and `leave_plan` for small
results.
"""

from __future__ import annotations

from ..model.account import Account
from ..model.charges import count, uncount
from ..model.instruction import Instruction
from ..model.tensor import Copy


def join_plan(copy: Copy, account: Account | None) -> None:
    """Plan a current copy; it also counts in its account's share of the device."""
    if copy.nbytes > 0:
        copy.device.planned += copy.nbytes
        if copy.device.ceiling:
            count(copy, account)


def leave_plan(copy: Copy) -> None:
    """Plan a copy no longer."""
    if copy.nbytes > 0:
        copy.device.planned -= copy.nbytes
        if copy.counted is not None:
            uncount(copy)


def learn_bytes(copy: Copy, nbytes: int, account: Account | None) -> None:
    """Set the size of a copy, which data have decided."""
    if copy.nbytes < 0:
        copy.nbytes = nbytes
        if copy.current:
            join_plan(copy, account)


def give_up_bytes(copy: Copy) -> None:
    """A current copy will have no memory: a later write makes a new one."""
    leave_plan(copy)
    copy.nbytes = 0


def plan_most(instruction: Instruction, nbytes: int) -> None:
    """Plan `nbytes` for an instruction's results whose size depends on data; they also count in the session's share."""
    device, more = instruction.device, nbytes - instruction.most
    instruction.most = nbytes
    device.planned += more
    if device.ceiling and more:
        shares = instruction.session.account.shares
        shares[device] = shares.get(device, 0) + more

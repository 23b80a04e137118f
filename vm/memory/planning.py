"""The plan of a device's memory: what will be in use once every admitted instruction has run, in program order.

`DeviceState.planned` is the sum of the known bytes of all current copies, and of the upper bounds of results whose size
depends on data. Only this file changes it, and `recycling`, which contains `join_plan` and `leave_plan` inline.
"""

from __future__ import annotations

from ..model.account import Account
from ..model.charges import count, uncount
from ..model.instruction import Instruction
from ..model.tensor import Copy


def join_plan(copy: Copy, account: Account | None) -> None:
    """Add a current copy to the plan, and to its account's share of the device."""
    if copy.nbytes > 0:
        copy.device.planned += copy.nbytes
        if copy.device.ceiling:
            count(copy, account)


def leave_plan(copy: Copy) -> None:
    """Remove a copy from the plan, and from its account's share."""
    if copy.nbytes > 0:
        copy.device.planned -= copy.nbytes
        if copy.counted is not None:
            uncount(copy)


def learn_bytes(copy: Copy, nbytes: int, account: Account | None) -> None:
    """Set the size of a copy whose size depended on data."""
    if copy.nbytes < 0:
        copy.nbytes = nbytes
        if copy.current:
            join_plan(copy, account)


def give_up_bytes(copy: Copy) -> None:
    """Give up the bytes of a current copy that will have no memory; a later write makes a new copy."""
    leave_plan(copy)
    copy.nbytes = 0


def plan_max_bytes(instruction: Instruction, nbytes: int) -> None:
    """Plan at most `nbytes` for results whose size depends on data, also in the share of the instruction's session."""
    device, more = instruction.device, nbytes - instruction.max_bytes
    instruction.max_bytes = nbytes
    device.planned += more
    if device.ceiling and more:
        shares = instruction.session.account.shares
        shares[device] = shares.get(device, 0) + more

"""Launches of inline ops: whether a launch is possible, the device that is current on the thread, and numbers.

A device stays current from its first launch until a launch on another device, or until all messages have been run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...streams.device import Device
from ..memory.ledger import has_spare
from ..model.launches import Launches
from ..model.plan import Plan
from ..model.session import VmSession
from ..model.tensor import Copy
from ..scheduler.scheduler import Scheduler
from .at_once import strides_of


class InlineLaunches:
    """The launches of one machine's inline ops."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.entered: Device | None = None  # the device that is current on this thread
        self.before: Any = None  # the thread's state before it entered the device

    def may_launch(
        self, session: VmSession, plan: Plan, launches: Launches, inputs: Sequence[Any], *, packed: bool
    ) -> bool:
        """Whether the op can be launched now; if so, its device is current on this thread afterwards.

        `packed`: all operands are known to be packed, so that `plan.warm` answers for them.
        """
        if not (packed and plan.warm) and not is_warm(session, plan, launches, inputs):
            return False
        device = plan.device
        backend = device.backend
        if is_lost(backend):
            return False
        if plan.scratch and not has_spare(device, plan.scratch + plan.output.nbytes):
            return False
        if self.entered is not backend:
            if self.entered is not None:
                self.entered.leave(self.before)
            self.entered, self.before = backend, backend.enter()
            return not is_lost(backend)  # `enter` may have found the device lost
        return True

    def leave(self) -> None:
        """Restore the thread's current device, stream and allocator."""
        if self.entered is not None:
            entered, self.entered = self.entered, None
            entered.leave(self.before)
            self.before = None

    def launched(self, session: VmSession, plan: Plan, launches: Launches, used: Sequence[Copy], result: Copy) -> None:
        """Number the launch that was just made, and note it in the copies that it uses."""
        launches.order.issued = number = launches.order.issued + 1
        launches.cost = cost = launches.cost + plan.work + launches.least_cost
        for copy in used:
            copy.touched = number
        result.written = result.touched = number
        if cost >= launches.fence_cost or number >= launches.fence_number or launches.last != session.id:
            self.scheduler.fences.launched(session, plan.device, launches)


def is_warm(session: VmSession, plan: Plan, launches: Launches, inputs: Sequence[Any]) -> bool:
    """Whether the call's kernels are compiled and loaded."""
    strides = strides_of(session.tensors, inputs, plan)
    if not launches.is_warm(plan, strides):
        return False
    plan.warm = plan.warm or strides.count(None) == len(strides)
    return True


def is_lost(backend: Device) -> bool:
    """Whether the device is lost. A function, since type checkers take an attribute for unchanged after a call."""
    return backend.lost is not None

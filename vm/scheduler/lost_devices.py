"""What becomes of a lost device: nothing works on it any more, everything else goes on.

A stream notices (`Device.lost` is set, once, from any thread) and fails whatever it still has. After completions were
processed the engine looks here. The copies on the lost device leave their maps where another copy of the version is
healthy, and are poisoned where they were the only one; what was to touch the device and has not been dispatched
fails with the device's error; what comes later is refused at admission. This is repeated as long as anything that
was admitted before is alive, since its writes may have been reported after the loss was noticed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...interpreter.errors import KernelError, TensordError
from ...interpreter.opcodes import Opcode
from ..model.device_state import DeviceState, others
from ..model.instruction import Status
from ..model.tensor import Copy, Storage

if TYPE_CHECKING:
    from ..engine import Engine

# They wait for other instructions, and need nothing of the device itself.
UNTOUCHED = frozenset({Opcode.RELEASE, Opcode.BARRIER})


def abandon_lost(engine: Engine) -> None:
    """Give up every device whose device is lost. Called once per pass that processed completions."""
    for device in engine.devices.values():
        if device.backend.lost is not None and (device.lost is None or device.live):
            device.lost = loss_of(device)
            give_up_copies(engine, device, device.lost)
            victims = [i for i in device.live if i.opcode not in UNTOUCHED and i.error is None]
            engine.doom([i for i in victims if i.status in (Status.WAITING, Status.READY)], device.lost)


def loss_of(device: DeviceState) -> TensordError:
    """The error of everything that a lost device takes with it: one object."""
    error = device.lost or device.backend.lost
    return error if isinstance(error, TensordError) else KernelError(f"device {device.name} is lost: {error}")


def refuse_lost(device: DeviceState) -> None:
    """Raise the device's error if it is lost: nothing new is admitted there."""
    if device.backend.lost is not None:
        raise loss_of(device)


def give_up_copies(engine: Engine, device: DeviceState, error: TensordError) -> None:
    """Take the device's copies out of the maps, or poison them where nothing else has the version."""
    for storage in storages(engine):
        for copy in storage.current():
            if copy.device is device and copy.writer is None and (copy.poison is None or copy.poison is error):
                if copy.view is not None or any(survives(other) for other in others(storage, copy)):
                    device.forget(copy, storage)
                else:
                    copy.poison = error


def survives(copy: Copy) -> bool:
    """Has it the value, or will it have, without the lost device?"""
    return copy.device.backend.lost is None and copy.is_or_will_be_valid


def storages(engine: Engine) -> Iterable[Storage]:
    """Every storage that a handle or a name can reach."""
    tensors = list(engine.names.values())
    for session in engine.sessions.values():
        tensors.extend(session.tensors.values())
    return {id(tensor.storage): tensor.storage for tensor in tensors}.values()

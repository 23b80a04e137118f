"""What becomes of a lost device: nothing works on it any more, everything else goes on.

A stream notices (`Device.lost` is set, once, from any thread) and fails whatever it still has. After completions were
processed the engine looks here. The copies on the lost device leave their maps where another copy of the version is
healthy, and are poisoned where they were the only one; what was to touch the device and has not been dispatched
fails with the device's error; what comes later is refused at admission. This is repeated as long as anything that
was admitted before is alive, since its writes may have been reported after the loss was noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from ...interpreter.errors import TensordError
from ..memory.replicas import forget, others
from ..memory.reservation import loss_of
from ..model.device_state import DeviceState
from ..model.instruction import PENDING, Instruction
from ..model.tensor import Copy, Storage

Doom = Callable[[Iterable[Instruction], TensordError], None]


def abandon_lost(devices: Collection[DeviceState], storages: Callable[[], Iterable[Storage]], doom: Doom) -> None:
    """Give up every device that is lost. Called once per pass that processed completions.

    `storages`: every storage that a handle or a name can reach.
    """
    for device in devices:
        if device.backend.lost is not None and (device.lost is None or device.live):
            device.lost = loss_of(device)
            give_up_copies(storages(), device, device.lost)
            victims = [i for i in device.live if i.traits.needs_device and i.error is None]
            doom([i for i in victims if i.status in PENDING], device.lost)


def refuse_lost(device: DeviceState) -> None:
    """Raise the device's error if it is lost: nothing new is admitted there."""
    if device.backend.lost is not None:
        raise loss_of(device)


def give_up_copies(storages: Iterable[Storage], device: DeviceState, error: TensordError) -> None:
    """Take the device's copies out of the maps, or poison them where nothing else has the version."""
    for storage in storages:
        for copy in storage.current():
            if copy.device is device and copy.writer is None and (copy.poison is None or copy.poison is error):
                if copy.view is not None or any(survives(other) for other in others(storage, copy)):
                    forget(copy, storage)
                else:
                    copy.poison = error


def survives(copy: Copy) -> bool:
    """Has it the value, or will it have, without the lost device?"""
    return copy.device.backend.lost is None and copy.is_or_will_be_valid

"""Lost devices: all work on a lost device fails, and all other work goes on.

A stream notices the loss (`Device.lost` is set once, from any thread), and fails its remaining tasks. After each pass
that processed completions the engine calls `abandon_lost`. A copy on the lost device leaves its map if another copy of
the version is healthy, and is poisoned if it was the only one. Instructions that need the device and are not dispatched
fail with the device's error; later ones are refused at admission. The copies are checked again, in storages that live
instructions write, until no earlier instruction is live, since writes may be reported after the loss was noticed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final

from ...interpreter.errors import KernelError, TensordError
from ...interpreter.opcodes import traits_of
from ..memory.replicas import forget, others
from ..memory.reservation import loss_of
from ..model.device_state import DeviceState
from ..model.instruction import Instruction
from ..model.lifecycle import PENDING, Status
from ..model.tensor import Copy, Storage
from ..tracing.flat import LAUNCHED

MAX_SUSPECTS: Final = 5  # the most ops that the error of a lost device names
Doom = Callable[[Iterable[Instruction], TensordError], None]


def abandon_lost(
    devices: Collection[DeviceState],
    storages: Callable[[], Iterable[Storage]],
    doom: Doom,
    revoke: Callable[[Instruction, TensordError], None],
    launched: Callable[[DeviceState], str] = lambda _device: "",
) -> None:
    """Fail the copies and instructions of every lost device. Called once per pass that processed completions.

    `storages`: every storage that a handle or a name reaches. `launched`: the text that names the ops one of which may
    have caused the loss.
    """
    for device in devices:
        if device.backend.lost is not None and not device.abandoned:
            if device.lost is None:
                device.lost = loss_of(device)
                if found := launched(device):
                    device.lost = KernelError(
                        f"{device.lost}; launched since the device was last known to be healthy, newest first: "
                        f"{found}. The device option launch_blocking shows which op it was"
                    )
            unsettled = storages() if device.unsettled is None else device.unsettled
            device.unsettled = give_up_copies(unsettled, device, device.lost)
            victims = [i for i in device.live if i.traits.needs_device and i.error is None]
            doom([i for i in victims if i.status in PENDING], device.lost)
            for instruction in waiting_for_nodes(victims):
                revoke(instruction, device.lost)  # a link stream does not notice the loss
            if not device.live:
                device.abandoned, device.unsettled = True, []


def waiting_for_nodes(instructions: Iterable[Instruction]) -> Iterator[Instruction]:
    """The instructions that a link stream has, and that have no error yet."""
    for one in instructions:
        if one.status is Status.DISPATCHED and one.error is None and one.stream is not None and not one.stream.ordered:
            yield one


def launched_since(
    entries: Iterable[Any], device: DeviceState, line: Callable[[int, int], str], until: int = sys.maxsize
) -> str:
    """The text that names the ops launched since the device was last known to be healthy, up to launch `until`.

    `entries`: of the trace ring; `line`: from session and location number to the line's text.
    """
    launches = device.launches
    if launches is None:
        return ""
    counts: dict[str, int] = {}
    newest: list[Any] = list(entries)
    newest.reverse()
    for entry in newest:
        traits = entry[1]
        if len(entry) != LAUNCHED or traits[3] != device.name or not traits_of(traits[1]).computes:
            continue
        if entry[10] <= launches.healthy_until:
            break
        if entry[10] > until:
            continue
        location = line(traits[0], entry[7])
        name = f"{traits[2]} ({location})" if location else str(traits[2])
        counts[name] = counts.get(name, 0) + 1
    names = [name if count == 1 else f"{name} {count} times" for name, count in list(counts.items())[:MAX_SUSPECTS]]
    return ", ".join(names) + (f" and {len(counts) - MAX_SUSPECTS} more" if len(counts) > MAX_SUSPECTS else "")


def refuse_lost(device: DeviceState) -> None:
    """Raise the error of a lost device, on which nothing new is admitted."""
    if device.backend.lost is not None:
        raise loss_of(device).reraisable()


def give_up_copies(storages: Iterable[Storage], device: DeviceState, error: TensordError) -> list[Storage]:
    """Remove the device's copies from the maps, or poison those without another valid copy.

    Return the storages to check again: those with a copy on the device, and copies that live instructions write.
    """
    unsettled: list[Storage] = []
    for storage in storages:
        copies = storage.current()
        lost = [copy for copy in copies if copy.device is device]
        for copy in lost:
            if copy.writer is None and (copy.poison is None or copy.poison is error):
                give_up(copy, storage, error)
        if lost and any(copy.writer is not None for copy in copies):
            unsettled.append(storage)
    return unsettled


def give_up(copy: Copy, storage: Storage, error: TensordError) -> None:
    """Remove the copy from the map if another copy has the version, else poison it."""
    if copy.view is not None or any(is_independent(other) for other in others(storage, copy)):
        forget(copy, storage)
    else:
        copy.poison = error


def is_independent(copy: Copy) -> bool:
    """Whether the copy has the value, or will have it, without the lost device."""
    return copy.device.backend.lost is None and copy.is_or_will_be_valid

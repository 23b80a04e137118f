"""What of a device's memory cannot be had by making room, as a clause for errors: pins, and the floors of others."""

from __future__ import annotations

from collections import Counter

from ...interpreter.types.sizes import exact_size
from ..model.account import Account
from ..model.device_state import DeviceState
from .pins import pinned_bytes
from .victims import floor_of


def kept_back(device: DeviceState, account: Account | None) -> str:
    """`, 4 KiB (4096 bytes) of that pinned`; empty if nothing is kept from the sessions of that account."""
    pinned, floors = pinned_bytes(device), floor_bytes(device, account)
    clauses = [f", {exact_size(pinned)} of that pinned" if pinned else ""]
    clauses.append(f", {exact_size(floors)} of that kept for other sessions (floor)" if floors else "")
    return "".join(clauses)


def floor_bytes(device: DeviceState, account: Account | None) -> int:
    """What other accounts keep of what they have, besides what is pinned."""
    if not device.floor:
        return 0
    held: Counter[Account | None] = Counter()
    for copy, storage in device.candidates.items():
        if storage not in device.pinned:
            held[storage.account] += max(copy.nbytes, 0)
    floor = floor_of(device, len(held))
    return sum(min(floor, nbytes) for owner, nbytes in held.items() if owner is not account)

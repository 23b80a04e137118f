"""Clauses of errors: why no room could be made on a device (pins, floors of other sessions, full tiers)."""

from __future__ import annotations

from collections import Counter

from ...interpreter.types.sizes import exact_size, size
from ..model.account import Account
from ..model.device_state import DeviceState
from .pins import pinned_bytes
from .victims import floor_of


def withheld(device: DeviceState, account: Account | None) -> str:
    """The clause about pinned memory and floors, as in `, 4 KiB (4096 bytes) of that pinned`; empty without them."""
    pinned, floors = pinned_bytes(device), floor_bytes(device, account)
    clauses = [f", {exact_size(pinned)} of that pinned" if pinned else ""]
    clauses.append(f", {exact_size(floors)} of that kept for other sessions (floor)" if floors else "")
    return "".join(clauses)


def full_below(device: DeviceState, account: Account | None, nbytes: int) -> str:
    """The clause about full tiers, as in `; nothing can be evicted to cpu:0, with 1 GiB of 1 GiB`.

    Empty without a tier below, or if one of them has room.
    """
    tiers, full = device.tiers, []
    for tier in tiers:
        share = account.shares.get(tier, 0) if tier.ceiling and account is not None else 0
        need = tier.backend.footprint(nbytes)
        if tier.planned + need > tier.backend.limit:
            full.append(f"{tier.name}, with {size(tier.planned)} of {size(tier.backend.limit)}")
        elif tier.ceiling and share + need > tier.ceiling:
            full.append(f"{tier.name}, where the session has {size(share)} of its {size(tier.ceiling)}")
    return f"; nothing can be evicted to {', or '.join(full)}" if tiers and len(full) == len(tiers) else ""


def floor_bytes(device: DeviceState, account: Account | None) -> int:
    """The bytes that floors reserve for other accounts, except pinned ones."""
    if not device.eviction.floor:
        return 0
    held: Counter[Account | None] = Counter()
    for copy, storage in device.candidates.items():
        if storage not in device.pinned:
            held[storage.account] += max(copy.nbytes, 0)
    floor = floor_of(device, len(held))
    return sum(min(floor, nbytes) for owner, nbytes in held.items() if owner is not account)

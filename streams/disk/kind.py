"""The kind "store"."""

from __future__ import annotations

from ..kinds import define_device
from .store import StoreDevice, StoreOptions

define_device("store", StoreDevice, StoreOptions, only=0, computes=False)

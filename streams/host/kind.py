"""The kind "cpu"."""

from __future__ import annotations

from ..kinds import define_device
from .cpu import CpuDevice, CpuOptions

define_device("cpu", CpuDevice, CpuOptions, host=True, main_memory=True)

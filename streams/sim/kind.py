"""The kind "sim"."""

from __future__ import annotations

from ..kinds import define_device
from ..stream import Sink
from .launching_sim import LaunchingSimDevice
from .sim import SimDevice, SimOptions


def open_sim(name: str, sink: Sink, options: SimOptions) -> SimDevice:
    """Open a sim device; with the option `launches`, one that launches."""
    return LaunchingSimDevice(name, sink, options) if options.launches else SimDevice(name, sink, options)


define_device("sim", open_sim, SimOptions, main_memory=True)

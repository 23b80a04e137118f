"""Defines the device kind "sim", a simulated accelerator; `kinds` imports this module by its name.

Two classes implement the kind. With the option `launches` a device behaves as a GPU does: an op is launched into a
queue at admission. Without, its streams are worker threads.
"""

from __future__ import annotations

from ..kinds import define_device
from ..stream import Sink
from .launching_sim import LaunchingSimDevice
from .sim import SimDevice, SimOptions


def open_sim(name: str, sink: Sink, options: SimOptions) -> SimDevice:
    """Open a sim device of the class that the option `launches` chooses."""
    return LaunchingSimDevice(name, sink, options) if options.launches else SimDevice(name, sink, options)


define_device("sim", open_sim, SimOptions, main_memory=True)

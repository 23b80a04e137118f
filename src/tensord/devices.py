"""The parts of a kind of device, for packages that define a kind (docs/plugins.md).

    from dataclasses import dataclass
    from typing import Annotated
    from tensord.devices import MEMORY, HostDevice, Sink, define_device

    @dataclass(frozen=True, slots=True)
    class Options:
        memory: Annotated[int, MEMORY] = 1 << 30

    class MyDevice(HostDevice):
        def __init__(self, name: str, sink: Sink, options: Options) -> None:
            super().__init__(name, options.memory, (), options.memory // 4, late_errors=False)
            self.options = options
            self.open_streams(sink)

    define_device("mine", MyDevice, Options)

These names are as stable as those of `tensord`:

- devices: `Device`, the interface; `HostDevice`, a base class for devices whose arrays are NumPy's and whose streams are
  threads; `Buffer`, `Kept` and `Eviction`, which their methods use
- streams: `Stream`, the interface; `WorkerStream`, a stream with a thread; `StreamKind`, `Task` and `Sink`
- options: `Option`, functions that make options, and in capitals the options that other kinds have, too
"""

from __future__ import annotations

from .streams.device import Buffer, Device, Eviction, Kept
from .streams.host.host import HostDevice
from .streams.kinds import DeviceKind, NoOptions, define_device
from .streams.options import (
    CACHE,
    CEILING,
    COMPUTE_STREAMS,
    EVICTION,
    FAULTS,
    FLOOR,
    MEMORY,
    MISSING_OPS,
    Option,
    ceiling_of,
    count,
    flag,
    parse_size,
    rate,
    seconds,
)
from .streams.stream import Sink, Stream, StreamKind, Task
from .streams.threads.worker import WorkerStream

__all__ = [
    "CACHE",
    "CEILING",
    "COMPUTE_STREAMS",
    "EVICTION",
    "FAULTS",
    "FLOOR",
    "MEMORY",
    "MISSING_OPS",
    "Buffer",
    "Device",
    "DeviceKind",
    "Eviction",
    "HostDevice",
    "Kept",
    "NoOptions",
    "Option",
    "Sink",
    "Stream",
    "StreamKind",
    "Task",
    "WorkerStream",
    "ceiling_of",
    "count",
    "define_device",
    "flag",
    "parse_size",
    "rate",
    "seconds",
]

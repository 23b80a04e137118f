"""A CUDA device over the fake runtime, without threads: the test chooses the next launch, work and completion."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tensord.streams.cuda.cuda import CudaDevice
from tensord.streams.cuda.options import CudaOptions
from tensord.streams.stream import Sink, StreamKind

from ..streams.fake_cuda.gpu import Gpu
from .launches import Stepped
from .streams import Peak, Steering


class ModelCuda(Peak, CudaDevice):
    """A CUDA device with model streams, over the fake that is installed."""

    def __init__(self, name: str, sink: Sink, options: CudaOptions, steering: Steering, gpu: Gpu) -> None:
        self.steering = steering
        self.gpu = gpu
        super().__init__(name, sink, options)
        self._launcher.clock = self._launcher.events.clock = steering.clock

    def _stream(self, kind: StreamKind, index: int, sink: Sink) -> Any:
        with self._cupy.cuda.Device(self.ordinal):
            raw = self._cupy.cuda.Stream(non_blocking=True)
        return Stepped(self, self.name, kind, index, sink, launcher=self._launcher, raw=raw)

    def _start(self) -> None:
        """Start no threads."""

    @contextmanager
    def on_a_thread_of_its_own(self) -> Iterator[None]:
        """Act as the launcher's thread inside the block; afterwards this is the driving thread, which has no stream."""
        self._launcher.launching.stream = None
        with self.current():
            yield
            self._cupy.cuda.Stream.null.use()

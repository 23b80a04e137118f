"""A CUDA device over the fake runtime, without threads: what launches, works, completes next is the test's choice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tensord.streams.cuda import CudaDevice, CudaOptions
from tensord.streams.cuda_stream import CudaStream
from tensord.streams.stream import Sink, StreamKind

from ..streams.fake_cuda.gpu import Gpu
from .streams import Peak, Steering


class ModelCudaStream(CudaStream):
    """A CUDA stream whose launches and completions happen when told to."""

    def __init__(self, device: ModelCuda, *args: Any, **given: Any) -> None:
        self.of = device
        super().__init__(*args, **given)

    def submit(self, tasks: Sequence[Any]) -> None:
        self.handed += len(tasks)
        self.backlog.extend(tasks)

    def can_execute(self) -> bool:
        """Is there a task that may be launched?"""
        return self._launcher.is_free(self)

    def execute(self) -> None:
        """Launch the next burst, or set it aside, from the launcher's thread as it were."""
        with self.of.on_a_thread_of_its_own():
            self._launcher.make_room()
            self._launcher.launch_next(self)

    @property
    def executed(self) -> range:
        """What may be reported: the host waits for it then."""
        return range(self.launched.qsize() + len(self.unwatched))

    def report(self, count: int = 0) -> None:
        """Complete and report that many bursts, from the stream's thread as it were."""
        self.watch()
        with self.of.on_a_thread_of_its_own():
            for _ in range(count):
                burst = self.launched.get()
                assert burst is not None
                self.follow(burst)
                self._launcher.launching.stream = None
            super().report()


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
        return ModelCudaStream(self, self.name, kind, index, sink, launcher=self._launcher, raw=raw)

    def _start(self) -> None:
        """There are no threads."""

    @contextmanager
    def on_a_thread_of_its_own(self) -> Iterator[None]:
        """Afterwards this is the driving thread again, which has no stream."""
        self._launcher.launching.stream = None
        with self.current():
            yield
            self._cupy.cuda.Stream.null.use()

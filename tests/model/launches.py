"""Devices that launch, without threads: the test chooses the next launch, work and completion."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tensord.streams.launching.launch_stream import LaunchStream
from tensord.streams.sim.launching_sim import LaunchingSimDevice, LaunchingStream
from tensord.streams.sim.sim import SimOptions
from tensord.streams.sim.sim_queue import QueuePosition, SimQueue, await_it
from tensord.streams.stream import Sink, StreamKind

from .streams import Peak, Steering

LOOKED = 0.05  # the share of looks at a queue before which the device has done an item


class Stepped(LaunchStream):
    """A stream of a device that launches, where the test makes launches and completions happen. `prompt`: the launcher
    launches every task as soon as it can."""

    prompt = False

    def __init__(self, device: Any, *args: Any, **given: Any) -> None:
        self.of = device
        super().__init__(*args, **given)

    def submit(self, tasks: Sequence[Any]) -> None:
        self.handed += len(tasks)
        self.backlog.extend(tasks)
        while self.prompt and self.can_execute():
            self.execute()

    def can_execute(self) -> bool:
        """Whether there is a task that may be launched."""
        return self._launcher.is_free(self)

    def execute(self) -> None:
        """Launch the next burst, or set it aside, as the launcher's thread would."""
        with self.of.on_a_thread_of_its_own():
            self._launcher.make_room()
            self._launcher.launch_next(self)

    @property
    def executed(self) -> range:
        """The bursts that may be reported, for which the host waits then."""
        return range(self.launched.qsize() + len(self.unwatched))

    def report(self, count: int = 0) -> None:
        """Complete and report `count` bursts, as the stream's thread would."""
        self.watch()
        with self.of.on_a_thread_of_its_own():
            self._launcher.do_asked()
            for _ in range(count):
                burst = self.launched.get()
                assert burst is not None
                self.follow(burst)
                self._launcher.launching.stream = None
            super().report()


class ModelQueue(SimQueue):
    """A queue that does an item when the test says so. A look at the queue sometimes makes the device do one, too, of
    any of its queues."""

    def __init__(self, device: ModelLaunchingSim) -> None:
        super().__init__(device)
        self.of = device
        self.pace = device.rng.choice((0.02, 1.0, 1.0))  # its weight among the device's queues

    def reach(self, position: QueuePosition, *, wait: bool) -> bool:
        if wait:
            return super().reach(position, wait=True)
        if self.of.rng.random() < LOOKED and self.of.can_step():
            self.of.step()
        return position.done or self.owner.broken is not None

    def can_step(self) -> bool:
        """Whether the first item waits for nothing. A broken device does no items."""
        if not self.items or self.owner.broken is not None:
            return False
        run, arguments, *_ = self.items[0]
        if run is not await_it:
            return True
        queue = arguments[0].queue
        return bool(arguments[0].done or queue.owner.broken is not None)

    def step(self) -> None:
        """Do the first item."""
        self.compute(QueuePosition(self), 0, wait=False)


class ModelLaunchingStream(Stepped, LaunchingStream):
    """A stream of a sim device that launches."""


class ModelLaunchingSim(Peak, LaunchingSimDevice):
    """A sim device that launches, with model streams and queues."""

    def __init__(self, name: str, sink: Sink, options: SimOptions, steering: Steering, rng: random.Random) -> None:
        self.steering = steering
        self.rng = rng
        self.queues: list[ModelQueue] = []
        super().__init__(name, sink, options)
        self._launcher.clock = self._launcher.events.clock = steering.clock

    def _new_stream(self, kind: StreamKind, index: int, sink: Sink) -> LaunchingStream:
        queue = ModelQueue(self)
        self.queues.append(queue)
        return ModelLaunchingStream(self, self.name, kind, index, sink, launcher=self._launcher, raw=queue)

    def _start(self) -> None:
        """Start no threads."""

    def prefer_reached(self, nbytes: int) -> None:
        """Do nothing in most cases, so that copies take memory that launches still use, as when memory is short."""
        if self.rng.random() < 0.3:
            super().prefer_reached(nbytes)

    def can_step(self) -> bool:
        """Whether a queue of the device can do an item."""
        return any(queue.can_step() for queue in self.queues)

    def step(self) -> None:
        """Do one item of a queue that the seed chooses."""
        able = [queue for queue in self.queues if queue.can_step()]
        self.rng.choices(able, [queue.pace for queue in able])[0].step()

    @contextmanager
    def on_a_thread_of_its_own(self) -> Iterator[None]:
        """Act as the launcher's thread inside the block; afterwards this is the driving thread, which has no stream."""
        self._launcher.launching.stream = None
        yield
        self._launcher.launching.stream = None

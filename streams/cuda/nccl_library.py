"""Collectives by NCCL between the GPUs of this machine, and of others. Unverified: it has only run over a fake.

Theory of operation
    A kernel of NCCL waits, on its GPU, for the kernels of all other ranks. Two GPUs that get two collectives in
    different orders wait for each other for ever. So one thread, the *launcher*, launches all collectives of a machine,
    one after the other, each on one stream of each of its GPUs, which nothing else uses. The *follower* waits for the
    GPUs, in the order of launches, and reports. While anything runs, the *watcher* checks whether a communicator has
    failed or a GPU is lost, and then aborts: nothing else would end the kernels of the other ranks.

    A communicator is made for the first collective of a list of GPUs, which takes some 0.1 to 3 s, and kept. Beyond
    `MAX_COMMUNICATORS` the one idle longest is destroyed. A communicator with ranks of other nodes is made on a thread
    of its own, since only the arrival of all ranks ends the call; the launcher waits, unless the launch is withdrawn,
    for at most `JOIN_TIMEOUT` seconds. All nodes have their launches in one order (`gangs`), so launchers never wait in
    a circle.

Guarantees
    - A launch begins on all GPUs of this machine or on none; `ended` is called once, when no GPU uses its arrays any
      more.
    - A launch that is withdrawn before it begins does not begin. A launch that has begun, and is withdrawn by anything
      but a cancellation, is aborted with its communicator, and so are the communicator's earlier launches; the next
      collective makes a new one.
    - The follower does not wait for a lost GPU.

Who owns what
    The launcher owns streams, and makes and ends communicators; the lock guards `_made`, `_jobs` and the fields of a
    job. Only the watcher aborts running launches, so no other thread waits for NCCL to give up.

Rejected
    - The launchers of the devices, each for its own GPU: two collectives would need one order among several threads.
    - Stream order instead of a wait of the host before a launch: a kernel that waits for another GPU would delay later
      work in that order. So a launch begins when all its operands are computed, as other steps of collectives do.
    - A stream and a thread for each communicator: kernels of several ones may fill a GPU, each waiting for its peers.
    - `initAll`, which holds the interpreter's lock.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from queue import SimpleQueue
from time import monotonic
from typing import Any, Final

import numpy as np

from ...interpreter.collectives.library import Element
from ...interpreter.errors import CancelledError, KernelError, TensordError
from ..library import CollectiveLaunch, Ended, Operand, Operands, SharedCommunicator
from ..stream import LOG
from .nccl import DTYPES, GpuBuffer, Made, NcclCommunicator, PendingCommunicator, new_id, version

MAX_COMMUNICATORS: Final = 8
JOIN_TIMEOUT: Final = 60.0  # seconds for the ranks of other nodes to join
MAX_ABANDONED: Final = 4  # the most abandoned communicators for which a thread still waits
SIZES: Final = {name: np.dtype(name).itemsize for name in DTYPES}
CHECK_INTERVAL: Final = 0.1  # seconds between two checks of the running launches


class NcclJob:
    """A launch in progress. `error`: the reason why it must not begin, or was given up."""

    __slots__ = ("begun", "communicator", "ended", "error", "events", "launch", "operands")

    def __init__(self, launch: CollectiveLaunch, operands: Operands, ended: Ended) -> None:
        self.launch = launch
        self.operands = operands
        self.ended = ended
        self.error: TensordError | None = None
        self.begun = False
        self.communicator: NcclCommunicator | None = None
        self.events: list[tuple[Any, Any]] = []  # a device, and the event after the launch there


class NcclLibrary:
    """The `CollectiveLibrary` of the GPUs of one machine, which `devices` has by name."""

    name = "nccl"

    def __init__(self, cupy: Any, devices: Mapping[str, Any]) -> None:
        self.version = version()
        self._cupy = cupy
        self._devices = dict(devices)
        self._given_up: list[PendingCommunicator] = []
        self._leaving: list[
            NcclCommunicator
        ] = []  # communicators with running launches that other nodes no longer have
        self._lock = threading.Lock()
        self._jobs: dict[CollectiveLaunch, NcclJob] = {}  # launches that have not ended
        self._made: OrderedDict[tuple[str, ...], NcclCommunicator] = OrderedDict()  # the most recently used one is last
        self._streams: dict[str, Any] = {}
        self._queue: SimpleQueue[NcclJob | None] = SimpleQueue()
        self._launched: SimpleQueue[NcclJob | None] = SimpleQueue()
        self._bell = threading.Event()  # wakes the watcher
        self._closed = False
        self._over = False  # the follower has ended
        self._threads: list[threading.Thread] = []

    # -- any thread ------------------------------------------------------------------------------------------------

    def begin(self, launch: CollectiveLaunch, operands: Operands, ended: Ended) -> None:
        job = NcclJob(launch, operands, ended)
        with self._lock:
            refused = self._closed or not self._started()
            if not refused:
                self._jobs[launch] = job
                self._queue.put(job)
        if refused:
            ended(KernelError(f"{launch.label}: its devices are being closed", op=launch.label))

    def working_id(self, devices: Sequence[str]) -> bytes:
        with self._lock:
            communicator = self._made.get(tuple(devices))
            if communicator is None or communicator.error is not None:
                return b""
            self._made.move_to_end(tuple(devices))
            return communicator.id

    def withdraw(self, launch: CollectiveLaunch, error: TensordError, *, missing: bool = False) -> None:
        with self._lock:
            job = self._jobs.get(launch)
            if job is not None and (missing or not (job.begun and isinstance(error, CancelledError))):
                job.error = job.error or error
                self._bell.set()

    def close(self, timeout: float) -> bool:
        deadline = monotonic() + timeout
        with self._lock:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
                for job in self._jobs.values():
                    job.error = job.error or KernelError(f"{job.launch.label}: its devices are being closed")
                self._bell.set()
        for thread in self._threads:
            thread.join(max(0.0, deadline - monotonic()))
        ended = not any(thread.is_alive() for thread in self._threads)
        while ended and (self._made or self._leaving):
            (self._leaving.pop() if self._leaving else self._made.popitem()[1]).destroy()
        return ended

    def _started(self) -> bool:
        """Start the threads if necessary; returns whether they run. A process that is ending gets none. Under the
        lock."""
        work = {"launcher": self._launch_all, "follower": self._follow_all, "watcher": self._watch_all}
        with suppress(RuntimeError):
            for name, do in list(work.items())[len(self._threads) :]:
                thread = threading.Thread(target=self._to_the_end, args=(name, do), name=f"tensord nccl {name}")
                thread.daemon = True
                thread.start()
                self._threads.append(thread)
        return len(self._threads) == len(work)

    def _to_the_end(self, name: str, do: Callable[[], None]) -> None:
        """Do the work of a thread to its end. An unexpected exception loses the GPUs, and the work goes on."""
        over = False
        while not over:
            try:
                do()
                over = True
            except BaseException as error:
                LOG.error("the %s of NCCL lost its devices by an error of its own", name, exc_info=error)
                for device in self._devices.values():
                    device.lose(error)

    # -- the launcher ----------------------------------------------------------------------------------------------

    def _launch_all(self) -> None:
        while (job := self._queue.get()) is not None:
            try:
                self._launch(job)
            finally:
                self._launched.put(job)
        self._launched.put(None)

    def _launch(self, job: NcclJob) -> None:
        """Launch a job, unless it was withdrawn."""
        communicator = None
        try:
            communicator = self._communicator_of(job) if self._may_begin(job) else None
            if communicator is not None and job.launch.shared is not None:
                job.launch.shared.placed()
            if communicator is None or not self._begins(job, communicator):
                return
            self._bell.set()
            self._launch_with(job, communicator)
        except Exception as failure:
            self._failed(job, failure)

    def _may_begin(self, job: NcclJob) -> bool:
        """Return whether the job is still wanted, and none of its GPUs is lost."""
        lost = next((one.lost for one in self._own(job) if one.lost is not None), None)
        with self._lock:
            if lost is not None and job.error is None:
                job.error = described(job, lost)
            return job.error is None

    def _begins(self, job: NcclJob, communicator: NcclCommunicator) -> bool:
        """Note that the job begins, unless it was withdrawn meanwhile."""
        with self._lock:
            if job.error is not None:
                return False
            job.communicator, job.begun = communicator, True
            communicator.running += 1
            return True

    def _communicator_of(self, job: NcclJob) -> NcclCommunicator:
        """The communicator of the job's GPUs. It is made anew if none works, or if other nodes do not have it."""
        key, shared = job.launch.devices, job.launch.shared
        id_ = self.working_id(key)
        if id_ and (shared is None or id_ == shared.existing):
            if shared is not None:
                shared.announce(id_)
            return self._made[key]
        if shared is not None and shared.existing:
            raise KernelError(f"{job.launch.label}: the communicator of its GPUs has failed meanwhile; try again")
        self._make_room(key)
        communicator = self._new_communicator(job) if shared is None else self._new_shared(job, shared)
        with self._lock:
            self._made[key] = communicator
        return communicator

    def _make_room(self, key: tuple[str, ...]) -> None:
        """End the communicators idle longest, and the previous one of these GPUs once its launches have ended."""
        with self._lock:
            idle = [other for other, one in self._made.items() if not one.running and other != key]
            surplus = idle[: max(0, len(self._made) - (key in self._made) - MAX_COMMUNICATORS + 1)]
            self._leaving += [self._made.pop(other) for other in (*surplus, key) if other in self._made]
        for one in self._leaving:
            if not one.running:
                one.destroy()
        self._leaving = [one for one in self._leaving if one.running]

    def _new_communicator(self, job: NcclJob, id_: bytes = b"") -> NcclCommunicator:
        launch = job.launch
        ordinals = {rank: self._devices[name].ordinal for rank, name in launch.here.items()}
        return NcclCommunicator(self._cupy, len(launch.devices), ordinals, id_ or new_id())

    def _new_shared(self, job: NcclJob, shared: SharedCommunicator) -> NcclCommunicator:
        """A communicator with ranks of other nodes, which the launch waits for."""
        self._given_up = [one for one in self._given_up if not one.done.is_set()]
        if len(self._given_up) >= MAX_ABANDONED:
            raise KernelError(f"{len(self._given_up)} communicators still wait for nodes that have not come")
        id_ = shared.made_with or new_id()
        shared.announce(id_)
        pending = PendingCommunicator(lambda: self._new_communicator(job, id_))
        deadline = monotonic() + JOIN_TIMEOUT
        while not pending.done.wait(CHECK_INTERVAL):
            late = monotonic() > deadline
            if late or not self._may_begin(job):
                error = job.error or KernelError(
                    f"{job.launch.label}: other nodes have not come within {JOIN_TIMEOUT:g} s"
                )
                pending.give_up(error)
                self._given_up.append(pending)
                raise error
        return pending.result()

    def _launch_with(self, job: NcclJob, communicator: NcclCommunicator) -> None:
        """Launch the job's calls, and record an event after them on each GPU."""
        devices, element = job.launch.here, job.launch.element
        streams = {rank: self._stream_of(devices[rank]) for rank in {call.rank for call in job.launch.calls}}
        made: list[Made] = [
            (call, span_of(source, element), span_of(target, element))
            for call, (source, target) in zip(job.launch.calls, job.operands, strict=True)
        ]
        raw = {rank: stream.ptr for rank, stream in streams.items()}
        try:
            communicator.launch(made, element, job.launch.reduction, raw)
        finally:  # some of them may have begun
            for rank, stream in streams.items():
                job.events.append((self._devices[devices[rank]], self._event_behind(devices[rank], stream)))

    def _stream_of(self, name: str) -> Any:
        if name not in self._streams:
            with self._cupy.cuda.Device(self._devices[name].ordinal):
                self._streams[name] = self._cupy.cuda.Stream(non_blocking=True)
        return self._streams[name]

    def _event_behind(self, name: str, stream: Any) -> Any:
        with self._cupy.cuda.Device(self._devices[name].ordinal):
            event = self._cupy.cuda.Event(block=True, disable_timing=True)
            event.record(stream)
        return event

    def _failed(self, job: NcclJob, error: BaseException) -> None:
        """The job was not launched, or only partly."""
        with self._lock:
            job.error = job.error or described(job, error)
        self._bell.set()

    def _own(self, job: NcclJob) -> list[Any]:
        """The GPUs of this machine that take part."""
        return [self._devices[name] for name in job.launch.here.values()]

    # -- the follower ----------------------------------------------------------------------------------------------

    def _follow_all(self) -> None:
        while (job := self._launched.get()) is not None:
            self._follow(job)
            del job
        self._over = True
        self._bell.set()

    def _follow(self, job: NcclJob) -> None:
        """Wait until the job's GPUs are done with it, and report."""
        for device, event in job.events:
            if device.lost is None:
                try:
                    event.synchronize()
                except Exception as failure:
                    device.lose(failure)
        lost = next((device.lost for device, _ in job.events if device.lost is not None), None)
        with self._lock:
            communicator, error = job.communicator, job.error
            if error is None and lost is not None:
                error = described(job, lost)
            if communicator is not None:
                communicator.running -= 1
                error = error or communicator.error
            del self._jobs[job.launch]
        if communicator is not None and error is not None:
            communicator.abort(error)  # other ranks may have done more of the launch, or less
        job.ended(error)

    # -- the watcher -----------------------------------------------------------------------------------------------

    def _watch_all(self) -> None:
        while not self._over:
            with self._lock:
                begun = [job for job in self._jobs.values() if job.begun]
            for job in begun:
                self._look_at(job)
            self._bell.wait(CHECK_INTERVAL if self._any_runs() else None)
            self._bell.clear()

    def _any_runs(self) -> bool:
        with self._lock:
            return any(job.begun for job in self._jobs.values())

    def _look_at(self, job: NcclJob) -> None:
        """Abort the job's communicator if the job was given up, a GPU of it is lost, or NCCL reports a failure."""
        communicator = job.communicator
        if communicator is None or communicator.error is not None:
            return
        for device, event in list(job.events):
            find_out_loss(device, event)
        lost = next((one.lost for one in self._own(job) if one.lost is not None), None)
        why = job.error or lost or failure_of(communicator)
        if why is not None:
            error = described(job, why)
            with self._lock:
                job.error = job.error or error
            communicator.abort(error)


def failure_of(communicator: NcclCommunicator) -> BaseException | None:
    """The failure that NCCL reports; None if there is none."""
    try:
        communicator.check()
    except Exception as error:
        return error
    return None


def span_of(operand: Operand | None, element: Element) -> GpuBuffer:
    """The memory of an operand."""
    if operand is None:
        return GpuBuffer()
    array, begin, size = operand
    count = size * array.itemsize // SIZES[element.dtype]
    return GpuBuffer(int(array.data.ptr) + begin * array.itemsize, count)


def find_out_loss(device: Any, event: Any) -> None:
    """Query an event of the GPU, which raises an error of any of its kernels."""
    if device.lost is None:
        try:
            device.has_passed(event)
        except Exception as error:
            device.lose(error)


def described(job: NcclJob, error: BaseException) -> TensordError:
    """The error, described as that of the collective."""
    if isinstance(error, TensordError):
        return error
    return KernelError(f"{job.launch.label}: {type(error).__name__}: {error}")

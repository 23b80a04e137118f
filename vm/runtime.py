"""The common part of the embedded machine and the daemon: an engine with its devices, reports, and periodic checks.

`machine` and `service.loop` decide which thread drives the engine. Every method here except `watch` and `close` is
called by the driving thread, or while no thread drives; `watch` and `close` take the `driving` lock where they need it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from ..interpreter.errors import ProtocolError, TensordError
from ..interpreter.wire.members import Member
from ..streams.catalogue import close_devices, open_tiers
from ..streams.links.link import Links
from ..streams.links.loopback import Loopback
from ..streams.stream import Sink, Stream
from .durability.taking import NOT_THERE
from .engine import RUN_WORK, Engine
from .failures import Failures, LogWarning, log_lines
from .log import best_effort, log
from .model.instruction import COMPILING
from .model.launches import Fence
from .model.session import VmSession
from .placement.loaded_files import changed_among
from .process import MachineProcess
from .reporting.live_trace import trace_parts
from .reporting.locations import LocationTexts
from .reporting.membership import Membership
from .reporting.memory.holdings import Largest
from .reporting.questions import ACTS, MachineFacts, answer
from .reporting.rows.devices import lost
from .tracing.analysis.trace import Trace
from .tracing.ring import CAPACITY

HANG_CHECK = 1.0
HANG_AFTER = 3.0
PATIENCE = 60.0  # seconds after which a wait for memory may be broken, since it may be a deadlock between nodes
RECENT_ERRORS = 20


class Runtime:
    """Opens the devices and makes the engine; reports errors and hangs; answers questions.

    `driving`: a context that holds the lock of the driving thread, if several threads may drive. `node`: the node name,
    which prefixes the names of the devices; "" for a single machine; `incarnation`: of the node. `links`: to other
    nodes, which the caller closes after the machine; by default, a node can only send to itself.
    """

    def __init__(
        self,
        devices: Sequence[str | Mapping[str, object]],
        sink: Sink,
        *,
        tracing: bool = True,
        trace_capacity: int = CAPACITY,
        hang_after: float = HANG_AFTER,
        run_work: int = RUN_WORK,
        node: str = "",
        incarnation: int = 0,
        links: Links | None = None,
        driving: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.driving = driving
        self.hang_after = hang_after
        self.watch_period = min(HANG_CHECK, hang_after / 3)
        self.hung: dict[int, dict[str, object]] = {}
        self.recent_errors: list[TensordError] = []
        self.errors_by_type: Counter[str] = Counter()
        self.failures = Failures(time.monotonic)
        self._durable_written = time.monotonic()
        self._problems: dict[str, str] = {}  # device, or "durable names" -> its problem as last logged
        self.may_be_unsaved = True  # durable names may differ from their last written values
        self.node = node
        self.tiers = open_tiers(devices, sink, node)
        self.devices = {name: device for name, device in self.tiers.items() if device.computes}
        self.engine = Engine(
            self.tiers,
            time.perf_counter_ns,
            tracing=tracing,
            trace_capacity=trace_capacity,
            run_work=run_work,
        )
        self.engine.report = self.report
        self.engine.admission.answer = self.answer
        self.locations = LocationTexts(self.engine)
        self.engine.admission.holders = Largest(self.engine.directory, self.locations, time.perf_counter).on
        self.about = MachineFacts(
            self.locations,
            MachineProcess(),
            hung=lambda: list(self.hung.values()),
            errors=lambda: self.recent_errors,
            errors_by_type=self.errors_by_type,
        )
        self._loopback = Loopback(node) if node and links is None else None
        joined = links or self._loopback
        if joined is not None:
            self.engine.join(joined, sink)
        if node:
            self.about.members = Membership(Member(node, incarnation=incarnation, devices=tuple(self.devices)))

    def answer(self, session: VmSession, what: str, arguments: Sequence[Any]) -> Any:
        """Answer a session's question about the machine: a plain value, or an iterator of slices."""
        self.engine.tell()
        if what in ACTS:  # these change the engine, so an exception is a fault of the engine
            return answer(self.engine, session, what, arguments, self.about)
        with answering(what, session):
            return answer(self.engine, session, what, arguments, self.about)

    def trace(self) -> Trace:
        """A trace of the ring's records and the live instructions."""
        return Trace.from_parts(trace_parts(self.engine, self.locations))

    def report(self, session: VmSession, error: TensordError) -> None:
        """Count an error, keep it among the newest, and log it later unless a client gets it."""
        self.recent_errors = [*self.recent_errors[1 - RECENT_ERRORS :], error]
        self.errors_by_type[type(error).__name__] += 1
        self.failures.add(session.id, error, session.name)

    def departing(self, session: VmSession) -> list[LogWarning]:
        """Keep the texts of a closing session that traces need; return log lines about its unreported failures."""
        with best_effort():
            self.locations.ended(session)
        return self.failures.end(session.id)

    def departed(self, session: VmSession) -> None:
        """`departing`, and log the lines; for a driver without a lock."""
        log_lines(self.departing(session))

    def watch(self) -> bool:
        """Do the periodic checks, and log each finding once.

        Findings are lost devices, kernels that run suspiciously long, durable names that could not be written, and
        failures that no client waits for. Durable names are written if they are due. Return whether the engine must be
        driven, since the set of those kernels has changed, or names are to be written.
        """
        changed = self.fail_overdue()
        changed |= self.watch_kernels()
        changed |= self.break_waits()
        self.watch_devices()
        self.watch_files()
        self.watch_blocks()
        written = self.keep_durable()
        self.watch_durable()
        with self.driving():
            lines = self.failures.due()
        log_lines(lines)
        return changed or written

    def watch_blocks(self) -> None:
        """Free the blocks of GPU memory of closed sessions, once the processes that had them open have ended."""
        if any(device.blocks_left_open() for device in self.devices.values()):
            with self.driving():
                self.engine.free_unused_blocks()

    def watch_files(self) -> None:
        """Poison the values that lie in changed files, and log these files."""
        with self.driving():
            files = list(self.engine.residency.files.open)
        changed = changed_among(files)
        if not changed:
            return
        with self.driving():
            lost = self.engine.residency.files.give_up(changed)
        for file in changed:
            log.warning("a file that tensors lie in has changed", error=str(file.changed), tensors=lost)

    def keep_durable(self) -> bool:
        """Write the durable names that have changed, if due; log failures once. Return whether it was due."""
        checkpoints, now = self.engine.admission.durable.checkpoints, time.monotonic()
        if (
            checkpoints.durable is None
            or not checkpoints.interval
            or now - self._durable_written < checkpoints.interval
        ):
            return False
        self._durable_written = now
        engine = self.engine
        with self.driving():
            self.may_be_unsaved = bool(engine.live or engine.pending or engine.held)  # else nothing changes them
            engine.keep_durable(self._report_durable)
        return True

    @property
    def awaits_interval(self) -> bool:
        """Whether durable names may have to be written once the interval has passed."""
        checkpoints = self.engine.admission.durable.checkpoints
        return self.may_be_unsaved and checkpoints.durable is not None and checkpoints.interval > 0

    def _report_durable(self, report: Any, error: TensordError | None) -> None:
        self.may_be_unsaved |= error is not None
        late = [] if report is None else sorted(name for name, why in report["failed"].items() if why == NOT_THERE)
        if self._is_news("values that are not there", ", ".join(late)) and late:
            log.warning("durable names whose values are not there, or have failed, keep their last ones", names=late)

    def watch_durable(self) -> None:
        """Log that durable names could not be written, once until they are written, though error texts may differ."""
        failure = self.engine.admission.durable.checkpoints.failure
        if not self._is_news("durable names", "failing" if failure else ""):
            return
        if failure:
            log.error("durable names are not on the disk as they are", why=failure)
        else:
            log.info("durable names are on the disk again")

    def watch_devices(self) -> None:
        for name, device in self.engine.pools.items():
            why = lost(device)
            if self._is_news(name, why):
                log.error("a device is lost; a restart brings it back", device=name, why=why)

    def _is_news(self, what: str, state: str) -> bool:
        """Note the state of `what`, "" for a good one; return whether it has changed."""
        before, self._problems[what] = self._problems.get(what, ""), state
        return state != before

    def watch_kernels(self) -> bool:
        """Log kernels that run suspiciously long; return whether the set of these kernels has changed."""
        if self.engine.unfenced:
            with self.driving():
                self.engine.fence()
        now = time.perf_counter_ns()
        hung = {}
        for device in self.engine.tiers.values():
            for stream in device.streams:
                running = stream.running()
                if running is not None and now - running[1] > self.hang_after * 1e9:
                    task, seconds = running[0], (now - running[1]) / 1e9
                    hung[task.id] = describe_hang(task, stream.name, seconds, self.hangs_in(task, stream))
        before, self.hung = self.hung, hung
        for id_, entry in hung.items():
            if id_ not in before:
                log.error("an instruction has been running for long", **entry)
        for id_, entry in before.items():
            if id_ not in hung:
                log.info("an instruction that had been running for long has ended", **entry)
        return hung.keys() != before.keys()

    def hangs_in(self, task: Any, stream: Stream) -> str:
        """A clause about a hanging task: for a fence, the ops before it, one of which hangs; else its remote waits."""
        if isinstance(task, Fence) and (behind := self.engine.launched(task.device, task.launch)):
            return f" behind {behind}"
        waits = stream.waits_for(task)
        return f": {waits}" if waits else ""

    def break_waits(self) -> bool:
        """End long waits for memory, which may be deadlocks between nodes, or wait for a client's function.

        Return whether there were any.
        """
        if not any(device.waiting for device in self.engine.tiers.values()):
            return False
        with self.driving():
            return self.engine.break_waits(time.perf_counter_ns() - int(PATIENCE * 1e9))

    def fail_overdue(self) -> bool:
        """Fail instructions that have exceeded their time limits; return whether there were any."""
        now = time.perf_counter_ns()
        streams = [stream for device in self.engine.tiers.values() for stream in device.streams]
        overdue: list[Any] = [task for one in streams for task, since in one.timed() if is_overdue(task, now - since)]
        for task in overdue:
            with self.driving():
                self.engine.time_out(task)
        return bool(overdue)

    def close(self, timeout: float) -> bool:
        """Close the devices; False if a kernel did not end in time."""
        with self.driving():
            lines = self.failures.close()
        log_lines(lines)
        ended = close_devices(self.tiers, timeout)
        if self._loopback is not None:
            ended &= self._loopback.close(timeout)
        if not ended:
            log.error("closed with a kernel that does not end; its thread is given up", hung=list(self.hung.values()))
        return ended


@contextmanager
def answering(what: str, session: VmSession) -> Iterator[None]:
    """A block that answers a question without changing the engine.

    So an exception inside is not a fault of the engine: it is logged, and the session gets a ProtocolError.
    """
    try:
        yield
    except TensordError:
        raise
    except Exception as error:
        log.exception("a question could not be answered", what=what, session=session.id)
        raise ProtocolError(
            f"the machine could not answer {what!r}: {type(error).__name__}: {error}; its log says more"
        ) from None


def is_overdue(task: Any, nanoseconds: int) -> bool:
    """Whether a task has exceeded its time limit, and has not failed yet."""
    return 0 < getattr(task, "limit", 0) < nanoseconds and task.error is None


def describe_hang(task: Any, stream: str, seconds: float, more: str) -> dict[str, object]:
    """The log fields of a hanging kernel: op, stream, running time, and the user's line.

    `more`: a clause about the kernel; by default, whether the kernel may still be compiling.
    """
    location = task.author.source.where(task.location) if hasattr(task, "author") else None
    doing = " (compiling)" if getattr(task, "held", 0) & COMPILING else ""
    return {
        "instruction": task.id,
        "op": f"{task.label}{more or doing}",
        "stream": stream,
        "seconds": round(seconds, 1),
        "location": location,
    }

"""Warming: calls of the ops in the configuration when the daemon starts, so that their kernels are compiled.

A session of the machine's own makes the calls, one after the other, so clients are served in the meantime, and a new
kernel of theirs waits for at most one of these calls. The calls are those of `tensord warm` (`schema.sample_calls`). An
error does not end them: the log names the failed calls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final, NamedTuple

from ...interpreter.errors import TensordError
from ...interpreter.schema.opdef import find
from ...interpreter.schema.sample_calls import SampleCall, Wish, ops_of, samples, values_of
from ...interpreter.types.device_names import own_name
from ...interpreter.types.meta import Meta
from ...interpreter.wire.messages import Call, Location, NamedMessage, Release, Signature, Upload, Wait, encode_message
from ...interpreter.wire.metas import encode_meta
from ...streams.kinds import compiles
from ..log import log
from ..model.device_state import DeviceState
from ..model.session import VmSession
from ..runtime import Runtime
from .process.errors import StartError

SESSION_NAME: Final = "warm"  # of the session, and in the location of its calls
LOCATION_NUMBER: Final = 1


@dataclass(slots=True)
class WarmingEntry:
    """An entry of the list on one device, and the results of its calls."""

    wish: Wish
    device: str
    left: int = 0
    calls: int = 0
    failed: int = 0
    seconds: float = 0.0


class Planned(NamedTuple):
    entry: WarmingEntry
    sample: SampleCall


class DaemonWarming:
    """Makes the calls. `session`: None before the first call, and after the last."""

    def __init__(self, runtime: Runtime, wishes: Sequence[Wish]) -> None:
        self.runtime = runtime
        self.entries = [WarmingEntry(wish, device.name) for wish in wishes for device in self.devices_of(wish)]
        self.session: VmSession | None = None
        self.planned: deque[Planned] = deque()
        self.under_way: Planned | None = None
        self.ended = False
        self.began = self.call_began = 0.0
        self.number = 0  # of the newest signature and request
        self.newest = 0  # the highest id
        self.used: tuple[int, ...] = ()  # the ids of the present call

    def devices_of(self, wish: Wish) -> list[DeviceState]:
        """The devices of an entry; StartError if the entry names an unknown device."""
        devices = self.runtime.engine.devices
        if not wish.device:
            # The devices that compile kernels at the first call, or simulate this.
            return [one for one in devices.values() if one.launches is not None or compiles(one.name)]
        name = own_name(wish.device, devices)
        if name not in devices:
            raise StartError(f"warm: {wish.op}: unknown device {wish.device} (devices: {', '.join(devices)})")
        return [devices[name]]

    def start(self) -> None:
        """Send the first call, if there is any."""
        for entry in self.entries:
            planned = [Planned(entry, sample) for sample in self.samples_of(entry)]
            entry.left = len(planned)
            self.planned += planned
        if not self.planned:
            return
        self.began = monotonic()
        self.session = self.runtime.engine.open_session(self.answered, SESSION_NAME)
        self.send([Location(LOCATION_NUMBER, f"the configuration's {SESSION_NAME}")])
        log.info("compiling kernels", calls=len(self.planned))
        self.send_next()

    def samples_of(self, entry: WarmingEntry) -> Iterator[SampleCall]:
        """The calls of an entry. An op without a kernel is logged, unless it only matches a pattern."""
        missing = self.runtime.engine.devices[entry.device].backend.missing
        for op in ops_of(entry.wish):
            try:
                if op.name not in missing:
                    yield from samples(op, entry.wish)
                elif not entry.wish.is_pattern:
                    log.warning("a kernel is not compiled", op=op.name, device=entry.device, why="the device has none")
            except TensordError:  # a match of a pattern; names were checked when the configuration was read
                continue

    def send_next(self) -> None:
        """Send the next call; after the last one, note the end."""
        if not self.planned:
            self.ended = True
            log.info("kernels are compiled", seconds=round(monotonic() - self.began, 3))
            return
        self.under_way = planned = self.planned.popleft()
        self.call_began = monotonic()
        self.send([*([Release(self.used)] if self.used else []), *self.messages(planned)])

    def messages(self, planned: Planned) -> list[NamedMessage]:
        """Uploads of the operands, the call, and a wait for its end."""
        (device, sample), op = (planned.entry.device, planned.sample), find(planned.sample.op)
        uploads: list[NamedMessage] = []
        operands: list[object] = []
        for operand in sample.operands:
            if isinstance(operand, Meta):
                self.newest += 1
                shape, dtype = operand.plain
                uploads.append(Upload(self.newest, shape, dtype, device, values_of(operand), LOCATION_NUMBER))
                operands.append(self.newest)
            else:
                operands.append(operand)
        results = tuple(range(self.newest + 1, self.newest + 1 + op.outputs))
        self.used = (*range(self.newest + 1 - len(uploads), self.newest + 1), *results)
        self.newest += op.outputs
        self.number += 1
        metas = tuple([encode_meta(one if isinstance(one, Meta) else type(one)) for one in sample.operands])
        attributes = op.freeze(sample.attributes)
        return [
            *uploads,
            Signature(self.number, op.name, attributes, metas, device, None),
            Call(self.number, tuple(operands), results, 0, LOCATION_NUMBER),
            Wait(results, self.number, LOCATION_NUMBER),
        ]

    def send(self, messages: Sequence[NamedMessage]) -> None:
        """Send messages, which the engine admits in its next pass."""
        if self.session is not None:
            self.runtime.engine.receive(self.session, [encode_message(message) for message in messages])

    def answered(self, _request: int, _value: object, error: TensordError | None) -> None:
        """Note the end of a call, and send the next one. An exception here ends the list, not the daemon."""
        if self.under_way is None or self.ended:
            return
        try:
            self.call_ended(*self.under_way, error)
            self.send_next()
        except Exception as fault:
            self.ended = True
            log.exception("no more kernels are compiled", error=repr(fault))

    def call_ended(self, entry: WarmingEntry, sample: SampleCall, error: TensordError | None) -> None:
        """Count a call that has ended, and log its error, and the end of its entry."""
        entry.calls += 1
        entry.left -= 1
        entry.seconds += monotonic() - self.call_began
        if error is not None:
            error.is_reported = True
            entry.failed += 1
            log.warning("a kernel is not compiled", call=str(sample), device=entry.device, why=error.message)
        if not entry.left:
            log.info(
                "compiled",
                op=entry.wish.op,
                device=entry.device,
                calls=entry.calls,
                failed=entry.failed,
                seconds=round(entry.seconds, 3),
            )

    def close_when_done(self) -> None:
        """Close the session once its last call has ended. Called periodically, between two passes."""
        if self.ended and self.session is not None:
            self.stop()

    def stop(self) -> None:
        """Close the session, and drop the remaining calls."""
        session, self.session = self.session, None
        self.ended = True
        self.planned.clear()
        if session is not None:
            self.runtime.departed(session)
            self.runtime.engine.close(session)

"""Calls ops on a device, one after the other, so that their kernels are compiled, and notes the time of each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from ....interpreter.errors import ConnectionLost, MetadataError, TensordError
from ....interpreter.schema.opdef import OpDef
from ....interpreter.schema.sample_calls import SampleCall, Wish, ops_of, samples, values_of
from ....interpreter.types.meta import Meta
from ..drawing.terminal import ProgressBar

if TYPE_CHECKING:
    from ...session.session import Session


class WarmedCall(NamedTuple):
    """A call that was made. `error`: "" on success."""

    op: str
    device: str
    call: str
    seconds: float
    error: str


class Skipped(NamedTuple):
    """An op that was not called, and why."""

    op: str
    device: str
    reason: str


class WarmedCalls:
    """The calls that were made, in order, and those that were left out. `interrupted`: Ctrl-C ended them early."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.called: list[WarmedCall] = []
        self.skipped: list[Skipped] = []
        self.interrupted = False
        self._operands: dict[tuple[str, Meta], Any] = {}

    def run(self, wishes: Sequence[Wish], devices: Sequence[str], shown: ProgressBar) -> None:
        """Make all requested calls, until Ctrl-C."""
        calls = [(device, sample) for device in devices for sample in self.planned(wishes, device)]
        try:
            for done, (device, sample) in enumerate(calls):
                shown.what = f"compiling {sample.op}"
                shown.update(done, len(calls))
                self.called.append(self.call(sample, device))
        except KeyboardInterrupt:
            self.interrupted = True

    def planned(self, wishes: Iterable[Wish], device: str) -> Iterator[SampleCall]:
        """The calls to make on a device, without duplicates; notes ops that cannot be called there."""
        known, missing = set(), self.missing(device)
        for wish in wishes:
            for op in ops_of(wish) if wish.device in {"", device} else ():
                for sample in self.samples_of(op, wish, device, missing):
                    key = (sample.op, sample.operands, repr(sorted(sample.attributes.items())))
                    if key not in known:
                        known.add(key)
                        yield sample

    def samples_of(self, op: OpDef, wish: Wish, device: str, missing: Collection[str]) -> Sequence[SampleCall]:
        """The calls of one op; none, with a note, if the device cannot run it."""
        try:
            if op.name in missing:
                raise MetadataError(f"{device} has no kernel for it")
            return samples(op, wish)
        except TensordError as error:
            self.skipped.append(Skipped(op.name, device, error.message))
            return ()

    def missing(self, device: str) -> Collection[str]:
        """The ops without a kernel on a device; MetadataError if there is no such device."""
        devices: Mapping[str, Collection[str]] = self.session._core.outbox.transport.devices
        if device not in devices:
            raise MetadataError(f"unknown device {device}; devices: {', '.join(devices)}")
        return devices[device]

    def call(self, sample: SampleCall, device: str) -> WarmedCall:
        """Make one call, and wait for it."""
        began, error = monotonic(), ""
        try:
            operands = [self.operand(one, device) if isinstance(one, Meta) else one for one in sample.operands]
            began = monotonic()
            for result in self.session.call(sample.op, operands, dict(sample.attributes), device=device):
                result.wait()
        except ConnectionLost:
            raise
        except TensordError as wrong:
            error = wrong.message
        return WarmedCall(sample.op, device, str(sample), monotonic() - began, error)

    def operand(self, meta: Meta, device: str) -> Any:
        """A tensor of that meta on the device, shared by all calls."""
        key = (device, meta)
        if key not in self._operands:
            self._operands[key] = self.session.asarray(values_of(meta), device=device).wait()
        return self._operands[key]

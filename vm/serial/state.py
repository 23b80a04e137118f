"""The state that all message handlers share: sessions, names, devices, signatures, locations, errors and answers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...interpreter.errors import CancelledError, MetadataError, ProtocolError, TensordError
from ...interpreter.schema.opdef import MACHINE_PROCESS, OutputMetas, find, no_kernel
from ...interpreter.types.device_names import kind_of, own_name
from ...interpreter.types.meta import Meta
from ...interpreter.wire.messages import Location
from ...interpreter.wire.messages import Signature as SignatureMessage
from ...interpreter.wire.metas import decode_meta
from ..model.directory import Published
from .values import Errors, SerialSession, SerialSignature, SerialTensor, Value, decode_target, define, denial


class SerialState:
    """The state of a serial engine. `devices`: the names of devices, each with the ops that have no kernel there.

    Ops, side effects and refused messages count as instructions; `ids` is the number of the newest one. `failed` counts
    errors where they arise; `report` is called with each. `look_up` is called between two iterations of a loop, and may
    cancel sessions.
    """

    def __init__(self, devices: Mapping[str, Iterable[str]]) -> None:
        self.devices = {name: frozenset(missing) for name, missing in devices.items()}
        self.sessions: dict[int, SerialSession] = {}
        self.names: dict[str, Published[SerialTensor]] = {}
        self.ids = 0
        self.failed = 0
        self.node = ""  # set by the machine, if it is a node
        self.report: Callable[[SerialSession, TensordError], None] = lambda _session, _error: None
        self.look_up: Callable[[], None] = lambda: None

    def signature(self, session: SerialSession, message: SignatureMessage) -> None:
        """Keep a signature under its number, or the error of its inference."""
        number, name, attributes, metas, device, targets = message
        try:
            op = find(name)
            device = self.check_kernel(op.name, device)
            wanted = None if targets is None else tuple(decode_target(meta) for meta in targets)
            decoded = tuple(decode_meta(meta) for meta in metas)
            session.signatures[number] = SerialSignature(op, op.freeze(dict(attributes)), decoded, device, wanted)
        except Exception as failure:
            damage = ProtocolError(f"signature {number} of {name!r} is damaged: {failure}")
            error = failure if isinstance(failure, TensordError) else damage
            session.signatures[number] = stored = error.reraisable()
            stored.op = stored.op or name

    def location(self, session: SerialSession, message: Location) -> None:
        """Keep a location's text under its number."""
        session.source.lines.keep(message.number, message.text)

    def check_kernel(self, op: str, device: str) -> str:
        """The full name of a device. MetadataError if there is no such device, or the op has no kernel there."""
        name = self.device_of(device)
        if op in self.devices[name]:
            raise no_kernel(op, name, self.devices[name], MACHINE_PROCESS)
        return name

    def check_host(self) -> None:
        """Raise MetadataError if there is no cpu device."""
        if not any(kind_of(name) == "cpu" for name in self.devices):
            raise MetadataError("the machine has no cpu device to bring values to")

    def device_of(self, device: str) -> str:
        """The full name of a device; the given name may lack the node. MetadataError if there is no such device."""
        name = own_name(device, self.devices)
        if name not in self.devices:
            raise MetadataError(f"unknown device {device!r}; devices: {', '.join(self.devices)}")
        return name

    def request(self, what: str, handler: Callable[[SerialSession, Any], Any]) -> Callable[[SerialSession, Any], None]:
        """A handler of requests, which replies with the result of `handler`, or with its error."""

        def handle(session: SerialSession, message: Any) -> None:
            try:
                answer = handler(session, message)
            except TensordError as error:
                self.deny(session, error, message.request, getattr(message, "location", 0), what)
            else:
                session.reply(message.request, answer, None)

        return handle

    def deny(self, session: SerialSession, error: TensordError, request: int, location: int, what: str) -> None:
        """Answer a request with an error; report the error if there is no request."""
        denied = denial(session, error, location, what)
        if request:
            session.answer(request, denied)
        elif not isinstance(error, CancelledError):
            self.report_error(session, denied.first)

    def report_error(self, session: SerialSession, error: TensordError) -> None:
        """Count an error and report it, once, where it arises."""
        self.failed += 1
        session.counts.errors += 1
        self.report(session, error)

    def mark(self, link: Value, errors: Errors, *, stopped: bool) -> None:
        """Update a chain after a side effect. The chain keeps the errors of the side effect that stopped it."""
        if stopped and link.array is not None:
            link.array, link.errors = None, errors

    def reject(
        self,
        session: SerialSession,
        error: TensordError,
        outputs: Sequence[int],
        location: int,
        what: SerialSignature | str,
        metas: OutputMetas = (),
        home: str | None = None,
    ) -> None:
        """Poison the outputs of a refused message. A cancellation does not poison tensors that have other holders."""
        if isinstance(what, SerialSignature):
            metas, home = what.outputs, what.device
        error = self.rejected(session, error, location, what if isinstance(what, str) else what.op.name)
        for id_, meta in itertools.zip_longest(outputs, metas[: len(outputs)]):
            self.poison(session, id_, (error,), meta, home)

    def rejected(self, session: SerialSession, error: TensordError, location: int, label: str) -> TensordError:
        """Count a refused message as an instruction, report its error, and return the error."""
        self.ids += 1
        error = error.reraisable()
        error.instruction = self.ids
        error.op = error.op or label
        error.location = session.source.where(location)
        if not isinstance(error, CancelledError):
            self.report_error(session, error)
        return error

    def poison(self, session: SerialSession, id_: int, errors: Errors, meta: Meta | None, home: str | None) -> None:
        """Poison an output of a refused message; define it if it is new."""
        tensor = session.tensors.get(id_)
        if tensor is None and id_ > session.newest:
            made = SerialTensor(Value(None, errors), meta, home or next(iter(self.devices)))
            made.meta_pending = meta is None
            made.meta_errors = errors if meta is None else ()
            define(session, id_, made)
        elif tensor is not None and (tensor.holders == 1 or not any(type(one) is CancelledError for one in errors)):
            self.poison_value(tensor, errors)

    def poison_value(self, tensor: SerialTensor, errors: Errors) -> None:
        """Replace a tensor's value by errors, for all its holders."""
        tensor.value = Value(None, (*errors, *tensor.meta_errors))

"""What later messages refer to by number: signatures and locations; and the devices, by name."""

from __future__ import annotations

from collections.abc import Mapping

from ...interpreter.errors import MetadataError, ProtocolError, TensordError
from ...interpreter.schema.opdef import MACHINE, find, no_kernel
from ...interpreter.wire.messages import Location, decode_meta
from ...interpreter.wire.messages import Signature as SignatureMessage
from .values import SerialSession, Signature, decode_target


class Tables:
    """The handlers of messages that fill the tables. `devices`: names -> names of ops without a kernel there."""

    def __init__(self, devices: Mapping[str, frozenset[str]]) -> None:
        self.devices = devices

    def signature(self, session: SerialSession, message: SignatureMessage) -> None:
        """Keep a signature under its number, or the error of its inference."""
        number, name, attributes, metas, device, targets = message
        try:
            op = find(name)
            self.check_kernel(op.name, device)
            wanted = None if targets is None else tuple(decode_target(meta) for meta in targets)
            decoded = tuple(decode_meta(meta) for meta in metas)
            session.signatures[number] = Signature(op, op.freeze(dict(attributes)), decoded, device, wanted)
        except Exception as failure:
            damage = ProtocolError(f"signature {number} of {name!r} is damaged: {failure}")
            error = failure if isinstance(failure, TensordError) else damage
            session.signatures[number] = kept = error.reraisable()
            kept.op = kept.op or name

    def location(self, session: SerialSession, message: Location) -> None:
        """Keep a location's text under its number."""
        session.locations[message.number] = message.text

    def check_kernel(self, op: str, device: str) -> None:
        """MetadataError if there is no such device, or the op has no kernel there."""
        missing = self.check_device(device)
        if op in missing:
            raise no_kernel(op, device, missing, MACHINE)

    def check_host(self) -> None:
        """MetadataError if there is no cpu device."""
        if not any(name.startswith("cpu:") for name in self.devices):
            raise MetadataError("the machine has no cpu device to bring values to")

    def check_device(self, device: str) -> frozenset[str]:
        """The ops that the device lacks; MetadataError if there is no such device."""
        missing = self.devices.get(device)
        if missing is None:
            raise MetadataError(f"there is no device {device!r}; there are {', '.join(self.devices)}")
        return missing

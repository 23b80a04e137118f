"""Handlers of messages that store something under a number: signatures, locations and spans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...interpreter.errors import ProtocolError, TensordError
from ...interpreter.schema.infer import InferCache, check_count, check_target_count
from ...interpreter.schema.opdef import find
from ...interpreter.types.meta import Meta
from ...interpreter.wire.messages import Location, Signature, Span
from ...interpreter.wire.metas import decode_meta
from ..model.device_state import DeviceState
from ..model.plan import Plan
from ..model.session import VmSession
from .lookup import device_of, forget_plan
from .quotas import check_nesting, check_operands
from .rejection import stored_error


class SignatureHandlers:
    """The handlers of SIGNATURE, LOCATION and SPAN messages."""

    def __init__(self, devices: Mapping[str, DeviceState], infer: InferCache) -> None:
        self.devices = devices
        self.infer = infer

    def signature(self, session: VmSession, message: Signature) -> None:
        """Store a signature under its number; if inference fails, store the error for calls that use the number."""
        number, name, attributes, metas, home, targets = message
        forget_plan(session, number)
        try:
            op = find(name)
            check_count(op, len(metas))  # before any meta is decoded
            check_operands(session, len(metas))
            check_target_count(op, targets)
            check_nesting(session, attributes, metas, targets)
            decoded = tuple(decode_meta(meta) for meta in metas)
            wanted = None if targets is None else tuple(target_meta(meta) for meta in targets)
            frozen = op.freeze(dict(attributes))
            device = device_of(self.devices, home)
            session.plans[number] = plan = Plan(op, frozen, decoded, device, wanted, self.infer, session.id)
            session.operands += plan.operand_count
            if plan.immediate or plan.returns_view:
                session.immediate[number] = plan
        except TensordError as error:
            session.plans[number] = stored_error(error, name)
        except Exception as error:
            session.plans[number] = stored_error(
                ProtocolError(f"signature {number} of {name!r} is damaged: {error}"), name
            )

    def location(self, session: VmSession, message: Location) -> None:
        """Store a location under its number."""
        session.source.lines.keep(message.number, message.text)

    def span(self, session: VmSession, message: Span) -> None:
        """Store the names of the open spans under their number."""
        session.source.spans.keep(message.number, tuple(message.path))


def target_meta(wire: Any) -> Meta | None:
    """The meta of an `out=` tensor."""
    meta = decode_meta(wire)
    if meta is not None and not isinstance(meta, Meta):
        raise TypeError("a scalar cannot be written to")
    return meta

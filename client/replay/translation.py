"""A step as messages for one machine: with the ids of the replay, and that machine's devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ...interpreter.wire.messages import Call, Chain, Location, NamedMessage, Release, Signature, Span, ToDevice, Upload
from ...interpreter.wire.node_messages import Collective
from ...interpreter.wire.program_messages import Link, ProgramPart, Run
from .ids import ReplayIds
from .signatures import RecordedOp


class ReplaySession:
    """A replay's knowledge of a session. `captured`: the ids that each of its routines captures."""

    def __init__(self, name: str, newest: int, *, strict: bool = False) -> None:
        self.name = name
        self.strict = strict
        self.ids = ReplayIds(newest)
        self.signatures: dict[int, RecordedOp] = {}
        self.captured: dict[int, tuple[int, ...]] = {}


def with_ids(session: ReplaySession, message: Any) -> NamedMessage | None:
    """The message with the ids of the replay; None for a call of a signature that was never sent."""
    return _WITH_IDS[type(message)](session, message)


def _call(session: ReplaySession, message: Call) -> Call | None:
    signature = session.signatures.get(message.signature)
    if signature is None or len(signature.scalars) != len(message.inputs):
        return None
    ids = session.ids
    given = [
        value if scalar else ids.of(value) if type(value) is int else value
        for value, scalar in zip(message.inputs, signature.scalars, strict=True)
    ]
    made = ids.all_of(message.outputs) if signature.in_place else tuple([ids.new(id_) for id_ in message.outputs])
    return message._replace(inputs=tuple(given), outputs=made)


def _run(session: ReplaySession, message: Run) -> Run:
    ids = session.ids
    given, made = ids.all_of(message.inputs), tuple([ids.new(id_) for id_ in message.outputs])
    effects = [[ids.of(chain), None, 0] for chain, _, _ in message.effects]
    return message._replace(routine=ids.of(message.routine), inputs=given, outputs=made, effects=effects)


def _link(session: ReplaySession, message: Link) -> Link:
    ids = session.ids
    captured = ids.all_of(message.captured)
    program, id_ = ids.of(message.program), ids.new(message.id)
    session.captured[id_] = captured
    return message._replace(id=id_, program=program, captured=captured)


def _to_device(session: ReplaySession, message: ToDevice) -> ToDevice:
    return message._replace(id=session.ids.of(message.id), output=session.ids.new(message.output))


def _collective(session: ReplaySession, message: Collective) -> Collective:
    ids = session.ids
    given, made = ids.all_of(message.inputs), tuple([ids.new(id_) for id_ in message.outputs])
    return message._replace(inputs=given, outputs=made)


_WITH_IDS: Final[Mapping[type, Callable[[ReplaySession, Any], NamedMessage | None]]] = {
    Call: _call,
    Chain: lambda session, message: message._replace(chain=session.ids.new(message.chain)),
    Collective: _collective,
    Link: _link,
    Location: lambda _session, message: message,
    ProgramPart: lambda session, message: message._replace(id=session.ids.new(message.id)),
    Release: lambda session, message: message._replace(ids=session.ids.all_of(message.ids)),
    Run: _run,
    Signature: lambda _session, message: message,
    Span: lambda _session, message: message,
    ToDevice: _to_device,
    Upload: lambda session, message: message._replace(output=session.ids.new(message.output)),
}


def on_devices(message: Any, device: Callable[[str], str]) -> NamedMessage:
    """The message with the devices of a machine in place of the recorded ones."""
    if isinstance(message, Signature | ToDevice | Upload):
        return message._replace(device=device(message.device))
    if isinstance(message, Link | Collective):
        return message._replace(devices=tuple([device(name) for name in message.devices]))
    found: NamedMessage = message
    return found

"""Lookup and definition of the objects that a message names by id, name or number.

An unknown id, name or number, and an id that is not new, raises an error with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...interpreter.errors import MetadataError, ProtocolError, TensordError
from ...interpreter.types.device_names import own_name
from ...interpreter.wire.messages import Hint
from ...interpreter.wire.metas import encode_meta
from ..model.charges import charge
from ..model.device_state import DeviceState
from ..model.plan import Plan
from ..model.session import VmSession
from ..model.signature import UNMADE, Maker
from ..model.tensor import Storage, VmTensor
from .quotas import check_number


def plan_of(session: VmSession, number: int) -> Plan:
    """The plan of a signature's number, or the error of its inference."""
    plan = session.plans.get(number)
    if plan is None:
        check_number(number, session.limits.signatures, "signature")
        raise ProtocolError(f"signature {number} was never sent")
    if isinstance(plan, TensordError):
        raise plan.reraisable()
    return plan


def forget_plan(session: VmSession, number: int) -> None:
    """Drop the plan of a number that gets another signature, and subtract its operands from the session's count."""
    old = session.plans.pop(number, None)
    session.immediate.pop(number, None)
    if isinstance(old, Plan):
        session.operands -= old.operand_count


def label_of(session: VmSession, number: int) -> str:
    """The name of a signature's op."""
    plan = session.plans.get(number)
    return plan.label if isinstance(plan, Plan) else getattr(plan, "op", None) or "call"


def tensor_of(session: VmSession, id_: Any) -> VmTensor:
    """The tensor behind an id of the session."""
    tensor = session.tensors.get(id_) if type(id_) is int else None
    if tensor is None:
        state = "was released" if isinstance(id_, int) and 0 < id_ <= session.newest else "was never defined"
        raise ProtocolError(f"tensor {id_!r} {state}")
    return tensor


def check_new(session: VmSession, ids: Sequence[int]) -> None:
    """ProtocolError unless the ids are new: the ids of a session rise, and are never reused."""
    newest = session.newest
    for id_ in ids:
        if id_ <= newest:
            raise ProtocolError(f"tensor id {id_} is not new: ids must increase, and the last one was {newest}")
        newest = id_


def define(session: VmSession, id_: int, tensor: VmTensor) -> None:
    """Enter a tensor under a new id; charge its storage to the session, if no session is charged yet."""
    charge(session, tensor.storage)
    enter(session, id_, tensor)


def enter(session: VmSession, id_: int, tensor: VmTensor) -> None:
    """Enter a tensor under a new id, without charging its storage."""
    session.tensors[id_] = tensor
    session.newest = max(session.newest, id_)


def note_maker(storage: Storage, maker: Maker, location: int, now: int) -> None:
    """Note the instruction that made a storage, with its location and time; later writes do not change them."""
    if storage.maker is UNMADE:
        storage.maker, storage.location, storage.made = maker, location, now


def check_pairs(given: Sequence[str], ids: Sequence[int]) -> None:
    """ProtocolError unless there are as many names as ids."""
    if len(given) != len(ids):
        raise ProtocolError(f"{len(given)} names for {len(ids)} tensors")


def refuse_cancelled(session: VmSession) -> None:
    """Raise the session's cancellation error, between cancel and restart."""
    if session.cancelled is not None:
        raise session.cancelled.reraisable()


def device_of(devices: Mapping[str, DeviceState], name: str) -> DeviceState:
    """The device with a name, which may include the node; MetadataError with the known names if there is none."""
    device = devices.get(own_name(name, devices))
    if device is None:
        raise MetadataError(f"unknown device {name!r}; devices: {', '.join(devices)}")
    return device


def hinted_device(hint: Hint, home: str) -> str:
    """The name of the device that a hint is about; `home`: the tensor's home."""
    if hint.device and hint.what != "prefetch":
        raise ProtocolError(f"{hint.what} is about the tensor's home, and takes no device")
    return hint.device or home


def describe(tensor: VmTensor) -> tuple[Any, str]:
    """A tensor's meta and home, encoded for clients."""
    return (encode_meta(tensor.meta), tensor.home.name)

"""The quotas of a session, which admission checks before it makes anything.

Memory is charged per storage (`model.account`): to the session that made the storage, until the storage is released. A
message that exceeds a quota is refused and does not wait, since only its own session could free the memory.

`snapshots` counts, for each storage, the sharers that are snapshots of a checkpoint (`Scheduler.snapshots`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...interpreter.errors import ProtocolError, QuotaError
from ...interpreter.types.meta import Meta
from ...interpreter.wire.forms import LIMITED_FIELDS, depth_exceeds
from ...interpreter.wire.limits import Limits
from ...interpreter.wire.messages import NamedMessage
from ...interpreter.wire.names import check_names as check_printable
from ..memory.overwriting import may_overwrite
from ..model.charges import check_bytes
from ..model.device_state import DeviceState
from ..model.directory import Directory, Published
from ..model.session import VmSession
from ..model.tensor import Storage, VmTensor

REFUSED_FACTOR = 2  # a session may have twice its quota of ids; the ids beyond the quota stand for refused values


# -- memory ------------------------------------------------------------------------------------------------------------


def check_results(session: VmSession, metas: Sequence[Meta | None], dying: int) -> None:
    """QuotaError if a call may not make these tensors. `dying`: the number of handles that the call releases."""
    check_tensors(session, len(metas) - dying)
    check_bytes(session, sum(meta.nbytes for meta in metas if meta is not None))


def check_targets(
    session: VmSession, tensors: Iterable[VmTensor], device: DeviceState, snapshots: Mapping[Storage, int]
) -> None:
    """QuotaError if writing to these tensors on a device takes more memory than the session's quota."""
    check_bytes(session, sum(added_bytes(session, tensor, device, snapshots) for tensor in tensors))


def added_bytes(session: VmSession, tensor: VmTensor, device: DeviceState, snapshots: Mapping[Storage, int]) -> int:
    """The bytes that a write adds to the session's account; 0 if it overwrites a charged storage, or if the size is
    pending.

    Otherwise the tensor gets a new storage. The bytes of the old one are subtracted if it is charged to the session and
    no other tensor shares it; snapshots do not count.
    """
    storage, meta = tensor.storage, tensor.meta
    if meta is None or (storage.account is not None and may_overwrite(tensor, storage.copies.get(device))):
        return 0
    sharers = storage.sharers - snapshots.get(storage, 0)
    left = storage.nbytes if sharers == 1 and storage.account is session.account else 0
    return max(meta.nbytes - left, 0)


def bytes_written(session: VmSession, tensor: VmTensor, device: DeviceState, snapshots: Mapping[Storage, int]) -> int:
    """The most bytes that a write adds to the session's share of a device (`Account.shares`).

    If the storage has no copy on the device, the write makes a copy: of the storage if it may be overwritten, else of
    a new storage. The copy of a storage that is charged to another session counts in that session's share.
    """
    storage, meta = tensor.storage, tensor.meta
    if device in storage.copies:
        return added_bytes(session, tensor, device, snapshots)
    if not may_overwrite(tensor, None):
        return 0 if meta is None else meta.nbytes
    return max(storage.nbytes, 0) if storage.account in {None, session.account} else 0


# -- fields of messages ------------------------------------------------------------------------------------------------


def check_fields(limits: Limits, message: NamedMessage) -> None:
    """QuotaError for a field beyond the limit in its declaration; ProtocolError for too many messages in a group."""
    for name, (setting, what) in LIMITED_FIELDS[type(message)].items():
        value, quota = getattr(message, name), getattr(limits, setting)
        if type(value) is int:
            check_number(value, quota, what)
        elif type(value) is str:
            check_text(value, quota, what)
        elif len(value) > quota:
            raise ProtocolError(f"a {what} of {len(value)} messages; {quota} are allowed: make smaller {what}s")


# -- counts ------------------------------------------------------------------------------------------------------------


def check_tensors(session: VmSession, more: int) -> None:
    """QuotaError if `more` new tensors exceed the session's quota."""
    held, quota = len(session.tensors), session.account.tensors
    if more > 0 and held + more > quota:
        has = f"has {held} of {quota}"
        if held > quota:
            has = f"may have {quota} and has {held}, including the ids of refused results"
        raise QuotaError(
            f"{count_text(more, 'tensor')} more: the session {has}; release some, or raise the quota (tensors)"
        )


def may_name(session: VmSession) -> bool:
    """Whether one more id may stand for a refused value; beyond the limit, a refused id stays undefined."""
    return len(session.tensors) < REFUSED_FACTOR * session.account.tensors


def check_number(number: int, quota: int, what: str) -> None:
    """QuotaError for a number beyond the session's limit."""
    if number > quota:
        raise QuotaError(f"{what} {number}: numbers go up to {quota}; reuse old numbers, or raise the quota ({what}s)")


def check_operands(session: VmSession, more: int) -> None:
    """QuotaError if `more` operands exceed the quota for the session's signatures."""
    held, quota = session.operands, session.limits.operands
    if held + more > quota:
        raise QuotaError(
            f"{count_text(more, 'operand')} more: the session's signatures have {held} of {quota}; give their numbers "
            "to smaller ones, or raise the quota (operands)"
        )


def check_offers(session: VmSession) -> None:
    """QuotaError if the session may not offer one more value to another node."""
    quota = session.limits.transfers
    if len(session.offered) >= quota:
        raise QuotaError(
            f"1 transfer more: other nodes have not yet received {quota} values of the session, of {quota}; receive "
            "those first, or raise the quota (transfers)"
        )


def check_chains(session: VmSession) -> None:
    """QuotaError if the session may not have one more chain."""
    quota = session.limits.chains
    if len(session.chains) >= quota:
        raise QuotaError(f"1 chain more: the session has {quota} of {quota}; use old ones, or raise the quota (chains)")


def may_refuse_chain(session: VmSession) -> bool:
    """Whether one more id may stand for a refused chain; beyond the limit, the id stays unknown."""
    return len(session.chains) + len(session.refused_chains) < REFUSED_FACTOR * session.limits.chains


def count_text(number: int, what: str) -> str:
    """`1 tensor`, `2 tensors`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def check_text(text: str, quota: int, what: str) -> None:
    """QuotaError for a text that is too long."""
    if len(text) > quota:
        raise QuotaError(
            f"a {what} of {len(text)} characters; {quota} are allowed: shorten it, or raise the quota (text)"
        )


def check_names(directory: Directory, session: VmSession, given: Sequence[str], replaced: Sequence[str]) -> None:
    """QuotaError if publishing these names would exceed the session's quota; MetadataError for an unprintable name.

    `replaced`: the bound names that the publication replaces.
    """
    check_printable(given)
    for name in given:
        check_text(name, session.limits.text, "name")
    account, quota = session.account, session.limits.names
    new = sum(directory.publishers.get(name) is not account for name in set(given))
    more = new - sum(directory.publishers.get(name) is account for name in replaced)
    if more > 0 and account.names + more > quota:
        raise QuotaError(
            f"{count_text(more, 'name')} more: the session has published {account.names} of {quota}; "
            "unpublish some, or raise the quota (names)"
        )


def check_published(
    directory: Directory,
    session: VmSession,
    given: Sequence[str],
    publications: Sequence[Published[VmTensor]],
    replaced: Sequence[str],
) -> None:
    """QuotaError if the session's published routines would have more steps than it may have.

    `replaced`: the bound names that the publication replaces.
    """
    account, quota = session.account, session.limits.steps
    last = dict(zip(given, publications, strict=True))
    old = [directory.names[name] for name in (*last, *replaced) if directory.publishers.get(name) is account]
    steps = account.steps + sum(one.weight for one in last.values()) - sum(one.weight for one in old)
    if steps > max(quota, account.steps):
        raise QuotaError(
            f"the routines that the session has published would have {steps} steps of {quota}; unpublish some, or "
            "raise the quota (steps)"
        )


def check_nesting(session: VmSession, *values: Any) -> None:
    """QuotaError for attributes or metas that are nested too deeply for recursion."""
    quota = session.limits.nesting
    if any(depth_exceeds(value, quota) for value in values):
        raise QuotaError(f"a signature nested more than {quota} levels deep; flatten it, or raise the quota (nesting)")

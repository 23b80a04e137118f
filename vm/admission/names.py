"""Names: tensors shared between sessions. A tensor lives as long as a handle or a name holds it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...interpreter.errors import MetadataError
from ...interpreter.opcodes import RELEASE_TEXT, Opcode
from ..model.tensor import Tensor
from .inline import leave_record
from .quotas import check_names

if TYPE_CHECKING:
    from ..engine import Engine
    from ..model.session import VmSession


def publish(engine: Engine, session: VmSession, given: Sequence[str], tensors: Sequence[Tensor]) -> None:
    """Bind names to tensors, replacing what they named before. They count against the quota of who did it last."""
    check_names(engine, session, given)
    for name, tensor in zip(given, tensors, strict=True):
        tensor.holders += 1
        before = engine.names.get(name)
        engine.names[name] = tensor
        unlist(engine, name)
        engine.publishers[name] = session.account
        session.account.names += 1
        if before is not None:
            let_go(engine, before)


def lookup(engine: Engine, wanted: Sequence[str]) -> list[Tensor]:
    """The tensors behind the names; MetadataError if one is missing, and then none is given."""
    missing = [name for name in wanted if name not in engine.names]
    if missing:
        known = ", ".join(sorted(engine.names)) or "none"
        raise MetadataError(f"no tensor is published as {', '.join(map(repr, missing))} (published: {known})")
    return [engine.names[name] for name in wanted]


def unpublish(engine: Engine, given: Sequence[str]) -> None:
    """Take the names away, all or none."""
    distinct = tuple(dict.fromkeys(given))
    for name, tensor in zip(distinct, lookup(engine, distinct), strict=True):
        del engine.names[name]
        unlist(engine, name)
        let_go(engine, tensor)


def unlist(engine: Engine, name: str) -> None:
    """The name counts against nobody's quota."""
    account = engine.publishers.pop(name, None)
    if account is not None:
        account.names -= 1


def let_go(engine: Engine, tensor: Tensor) -> None:
    """One handle or name less; with the last one the tensor lets go of its storage."""
    tensor.holders -= 1
    if tensor.holders == 0:
        engine.residency.unshare(tensor)


def release(engine: Engine, session: VmSession, tensor: Tensor) -> None:
    """ReleaseTensor as an instruction: it waits, visibly, for the accesses that still stand in its way."""
    storage = tensor.storage
    last = tensor.holders == 1 and storage.sharers == 1
    copies = tuple(storage.current()) if last else ()
    if any(copy.uses for copy in copies):
        instruction = engine.new_instruction(session, Opcode.RELEASE, "release", tensor.home, 0)
        instruction.writes = copies
        engine.admit(instruction)
    else:
        traits = (session.id, RELEASE_TEXT, "release", tensor.home.name, "")
        leave_record(engine, traits, (), engine.clock(), 0, 0)
    let_go(engine, tensor)

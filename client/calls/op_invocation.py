"""A call of an op on its way to a device, and the chain of handlers that it passes (`session/handlers`).

`OpInvocation` is the inner form: users' handlers see `handlers.Invocation`, which also names the session. A call that
concerns a global tensor (`is_global`) does not pass the chain as a whole: `global_tensors/calls` makes calls on its
parts of it.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from ...interpreter.layouts.placement import Placement
from ...interpreter.schema.opdef import FrozenAttributes, OpDef
from ..core.core import Core
from ..tensor.operators import GLOBALS
from ..tensor.tensor import Tensor
from .checks import Device


class OpInvocation(NamedTuple):
    """One call of an op. Its attributes are frozen: later changes of a dict have no effect. `out`: the tensors that the
    call updates; `device`: where it runs, if the caller says so."""

    op: OpDef
    inputs: tuple[Any, ...]
    attributes: FrozenAttributes
    out: tuple[Tensor, ...] | None
    device: Device | None


class HandlerChain(Protocol):
    """The handlers of a session. `handler`: the outermost one, as the user has set it."""

    @property
    def handler(self) -> object: ...

    def __call__(self, invocation: OpInvocation) -> list[Tensor]:
        """Pass the invocation through all handlers; returns the results."""


def is_global(core: Core, invocation: OpInvocation) -> bool:
    """Return whether a global tensor takes part in the call, or the call makes one.

    A call without tensors makes one if its device is a placement, or by default (`Core.placement`).
    """
    if isinstance(invocation.device, Placement):
        return True
    if invocation.device is None and core.placement is not None and not any_tensor(invocation):
        return True
    return any(type(value) in GLOBALS for value in (*(invocation.out or ()), *invocation.inputs))


def any_tensor(invocation: OpInvocation) -> bool:
    """Return whether any operand or target is a tensor."""
    return any(isinstance(value, Tensor) for value in (*(invocation.out or ()), *invocation.inputs))

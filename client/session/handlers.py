"""Handlers: a chain that every op passes on its way to a device. Each handler wraps another.

    session.handler = LoggingHandler(CompositeHandler(FallbackHandler(DeviceHandler())))

`DEFAULT_HANDLER` is that chain without logging: an op that a device lacks is composed of others if its definition says
how; otherwise it runs on the fallback device, with the necessary transfers. Source: TFRT's op handlers.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TextIO

from ...interpreter.errors import TensordError
from ...interpreter.schema.opdef import FrozenAttributes, OpDef, find
from ...interpreter.types.device_names import kind_of, node_of
from ..calls.checks import Device, core_of, without_kernel
from ..tensor.tensor import Tensor

if TYPE_CHECKING:
    from .session import Session


class Invocation(NamedTuple):
    """A call of an op on its way through the handlers of a session. Its attributes are frozen: later changes of a dict
    have no effect."""

    session: Session
    op: OpDef
    inputs: tuple[Any, ...]
    attributes: FrozenAttributes
    out: tuple[Tensor, ...] | None
    device: Device | None


class Handler(Protocol):
    """Takes an invocation, and returns its results as handles; raises MetadataError if it does not support the op."""

    def __call__(self, invocation: Invocation) -> list[Tensor]:
        """Handle one op."""


class DeviceHandler:
    """The innermost handler: sends the op as it is to its device, or to the given one."""

    def __init__(self, device: str | None = None) -> None:
        self.device = device

    def __call__(self, invocation: Invocation) -> list[Tensor]:
        """Send the op, if the device has a kernel for it."""
        if self.device is not None and invocation.device is None:
            invocation = invocation._replace(device=self.device)
        device = invocation.session.place(invocation)
        if not invocation.session.supports(invocation.op, device):
            raise without_kernel(core_of(invocation.session._core, device), invocation.op.name, device)
        return invocation.session.execute(invocation)


class FallbackHandler:
    """Runs an op that a device lacks on another device; the results' home is the requested device."""

    def __init__(self, inner: Handler, device: str | None = None) -> None:
        self.inner = inner
        self.device = device

    def __call__(self, invocation: Invocation) -> list[Tensor]:
        """Fall back if necessary, with the transfers to and from the other device as instructions."""
        session, device = invocation.session, invocation.session.place(invocation)
        hosts = (name for name in session.devices if kind_of(name) == "cpu" and node_of(name) == node_of(device))
        fallback = self.device or next(hosts, None)
        if session.supports(invocation.op, device) or fallback is None or fallback == device:
            return self.inner(invocation)
        results = self.inner(invocation._replace(device=fallback))
        return results if invocation.out is not None else [result.to_device(device) for result in results]


class CompositeHandler:
    """Composes an op that a device lacks of other ops, if the op's definition says how."""

    def __init__(self, inner: Handler) -> None:
        self.inner = inner

    def __call__(self, invocation: Invocation) -> list[Tensor]:
        """Compose the op if necessary; each of the other ops passes this handler again."""
        session, op = invocation.session, invocation.op
        device = session.place(invocation)
        if op.compose is None or invocation.out is not None or session.supports(op, device):
            return self.inner(invocation)

        def call(name: str, inputs: Sequence[Any], attributes: Any = None) -> list[Tensor]:
            part = find(name)
            return self(Invocation(session, part, tuple(inputs), part.freeze(attributes), None, device))

        return op.compose(call, invocation.inputs, dict(invocation.attributes))


class LoggingHandler:
    """Runs one op at a time and prints a counter, the op, its inputs, attributes and outputs.

    Poisoned operands and results are printed as their errors; logging itself raises nothing.
    """

    def __init__(self, inner: Handler, file: TextIO | None = None) -> None:
        self.inner = inner
        self.file = file
        self.count = 0

    def __call__(self, invocation: Invocation) -> list[Tensor]:
        """Log before and after; waits for the results."""
        self.count += 1
        attributes = ", ".join(f"{name}={value!r}" for name, value in invocation.attributes)
        inputs = ", ".join(show(value) for value in invocation.inputs)
        self.write(f"[{self.count}] {invocation.op.name}({inputs}{'; ' if attributes else ''}{attributes})")
        results = self.inner(invocation)
        for position, result in enumerate(results):
            self.write(f"[{self.count}]   -> {position}: {show(result)}")
        return results

    def write(self, line: str) -> None:
        file = self.file or sys.stderr
        if file is not None:  # `print` would use stdout
            print(line, file=file)


def show(value: Any) -> str:
    """The text of a value, or of its error."""
    if not isinstance(value, Tensor):
        return repr(value)
    try:
        array = value.numpy()
    except TensordError as error:
        return f"<{type(error).__name__}: {error.message}>"
    body = " ".join(str(array).split())
    return f"{array.dtype.name}{list(array.shape)} on {value.device}: {body if len(body) < 80 else body[:77] + '...'}"


DEFAULT_HANDLER: Handler = CompositeHandler(FallbackHandler(DeviceHandler()))

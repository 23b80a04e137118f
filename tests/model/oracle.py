"""The oracle for the virtual machine: a serial engine that knows every value that timing allows.

Timing decides some things that program order leaves open:

- Which of several poisoned operands dooms an instruction depends on which is known first. So all of a value's `errors`
  are possible.
- `cancel` adds a cancellation error to everything that only the cancelled session holds, and to its earlier requests:
  a pending instruction may have been cancelled, one that ran has finished. Other sessions notice nothing. A value may
  therefore have both an array and errors.

A fault of the serial engine itself is raised, not reported to a session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from tensord.vm.model.session import ReplySink
from tensord.vm.serial.engine import SerialEngine
from tensord.vm.serial.values import CANCELLED, Errors, SerialSession, Value

# Called before each call runs: (session number, location). If it returns an exception, the kernel raises that one.
Injection: TypeAlias = Callable[[int, int], BaseException | None]


def nothing(_session: int, _location: int) -> None:
    """No call fails."""


class OracleSession(SerialSession):
    """A session that keeps the answer to each request, with every error that may be the answer."""

    def __init__(self, id_: int, reply: ReplySink) -> None:
        super().__init__(id_, reply)
        self.answers: dict[int, Value] = {}

    def answer(self, request: int, value: Value) -> None:
        """Reply, and keep the value with all its errors."""
        if request:
            self.answers[request] = Value(value.array, value.errors)
        super().answer(request, value)


class Oracle(SerialEngine):
    """The serial engine, with every value that timing allows, and with kernels that fail where `inject` says so."""

    def __init__(self, devices: Mapping[str, Iterable[str]], inject: Injection = nothing) -> None:
        super().__init__(devices)
        self.inject = inject

    def run_kernel(self, session: SerialSession, location: int, *call: Any) -> Sequence[Any]:
        """Run the op's kernel, unless it is to fail."""
        failure = self.inject(session.id, location)
        if failure is not None:
            raise failure
        return super().run_kernel(session, location, *call)

    def new_session(self, id_: int, reply: ReplySink) -> OracleSession:
        """A session that keeps its answers."""
        return OracleSession(id_, reply)

    def refuse(self, _session: SerialSession, _message: Sequence[Any], failure: Exception) -> None:
        """Raise the failure: tests send valid messages."""
        raise failure

    def cancel(self, session: SerialSession, why: str = CANCELLED) -> None:
        """Cancel as the serial engine does; the session's earlier messages may have been cancelled, too."""
        super().cancel(session, why)
        error = session.cancelled
        if error is None or not isinstance(session, OracleSession):
            raise TypeError("a session of this oracle, which is cancelled now")
        own: dict[int, int] = {}
        for tensor in session.tensors.values():
            own[id(tensor)] = own.get(id(tensor), 0) + 1
        for tensor in {id(t): t for t in session.tensors.values()}.values():
            if tensor.holders == own[id(tensor)]:
                tensor.value.add(error)
                tensor.meta_errors = (*tensor.meta_errors, error) if tensor.meta_pending else ()
        for value in (*session.chains.values(), *session.answers.values()):
            value.add(error)

    def mark(self, link: Value, errors: Errors, *, stopped: bool) -> None:
        """Keep every error: timing decides which one stops the chain, as for any other value."""
        link.array, link.errors = None if stopped else link.array, errors

"""A program with its devices and captured tensors, ready to run: op by op, each passed on like any other call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...interpreter.programs.program import EFFECT, MOVE, PRINT, Program, Step
from ...interpreter.schema.opdef import find
from ...interpreter.types.meta import Scalar
from ..calls import signature_of
from ..handlers import Invocation
from ..tensor import Tensor

if TYPE_CHECKING:
    from ..session import Session


class Linked:
    """A program with a device for each of its slots, and the tensors that it captures, which it keeps alive.

    `chains` and `callbacks` are those of its side effects, by slot.
    """

    def __init__(
        self,
        session: Session,
        program: Program,
        devices: Sequence[str],
        captured: Sequence[Tensor] = (),
        chains: Sequence[int] = (),
        callbacks: Sequence[Callable[..., None]] = (),
    ) -> None:
        self.program = program
        self.devices = tuple(devices)
        self.captured = tuple(captured)
        self._session = session
        self._chains = chains
        self._callbacks = callbacks

    def run(self, inputs: Sequence[Tensor], numbers: Sequence[Scalar] = ()) -> list[Tensor]:
        """Issue one run; its results, at once. `numbers` has a value for each number of the program."""
        variables = self.program.variables
        tensors: dict[int, Any] = dict(enumerate([*inputs, *self.captured]))
        for step in self.program.steps:
            operands: list[Any] = [numbers[~each] if each < 0 else tensors[variables[each]] for each in step.operands]
            if step.op in (PRINT, EFFECT):
                self._side_effect(step, operands)
            elif step.op == MOVE:
                tensors[step.first] = operands[0].to_device(self.devices[step.device])
            else:
                out = None if step.into is None else tuple([tensors[variables[each]] for each in step.into])
                made = self._issue(step, operands, out)
                if out is None:
                    tensors.update(enumerate(made, step.first))
        return [tensors[variables[value]] for value in self.program.results]

    def _side_effect(self, step: Step, tensors: list[Any]) -> None:
        given = dict(step.attributes)
        chain = self._chains[given["chain"]]
        if step.op == EFFECT:
            self._session.effect(self._callbacks[given["callback"]], *tensors, chain=chain)
        else:
            ids = tuple(tensor._id for tensor in tensors)
            self._session._printing.issue(given["parts"], ids, given["sep"], chain, self._session)

    def _issue(self, step: Step, operands: list[Any], out: tuple[Tensor, ...] | None) -> list[Tensor]:
        """One op past the handlers, which have acted at the capture, and with the line of the step."""
        calls, device = self._session._calls, self.devices[step.device]
        invocation = Invocation(self._session, find(step.op), tuple(operands), step.attributes, out, device)
        key = signature_of(invocation, device)
        outbox = self._session._outbox
        with outbox.lock:
            location = outbox.locations.numbered(step.location or "")
            entry = calls._signatures.entries.get(key) or calls._signatures.add(key)
            plain = tuple([each._id if isinstance(each, Tensor) else each for each in operands])
            issued = calls._issue(self._session, entry, plain, out, location)
        assert issued is not None  # noqa: S101 - the entry lives: nobody else has had the lock
        outbox.appended()
        return issued

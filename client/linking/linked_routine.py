"""One capture of a routine as a function of its own: publishing sends it, and a look-up returns one.

The function takes arguments as the captured call did (same structure, metas and fixed numbers), and never captures
anew.
"""

from __future__ import annotations

from typing import Any

from ...interpreter.errors import MetadataTypeError
from ...interpreter.programs.convention import (
    CAPTURED,
    GLOBAL,
    ArgumentSlot,
    CallingConvention,
    Fixed,
    Nested,
    Node,
    Other,
)
from ...interpreter.programs.program import Program
from ..capture.binding import BoundArguments, signature
from ..capture.results import maker
from ..global_tensors.published import label_of
from ..global_tensors.tensor import GlobalTensor
from ..locations.locations import located
from ..locations.tracebacks import hides, make_public
from ..outbox.current import CURRENT
from ..tensor.tensor import Tensor
from .inlining import capture_for
from .linked import ProgramBinding
from .linking import LinkedProgram
from .runs import LinkedRuns, Reported


class LinkedRoutine(Reported):
    """A routine for one kind of arguments. It is called like its function, runs the program, and returns the same
    results.

    `routine.link(*arguments)` makes one, and so does `session.lookup` of a published routine. Arguments of another kind
    raise MetadataError, since nothing can be captured anew.
    """

    def __init__(self, linked: ProgramBinding, convention: CallingConvention) -> None:
        self.program: Program = linked.program
        self._core = LinkedRuns(linked, convention)
        self._convention = convention
        self.flat = LinkedProgram(linked)  # takes tensors by position and numbers by name
        self._make = maker(convention.result, captured=linked.captured)

    @hides
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run it. MetadataError for arguments that do not fit, before anything is sent.

        Within a routine that is captured, its steps become steps of that routine, with the same effects.
        """
        capture = None if CURRENT.capture is None else capture_for(self._core.core, self._convention.name)
        given = BoundArguments(self._core.core, self.program, self._convention, args, kwargs)
        results, values = self._core.issue(capture, given.tensors, given.numbers, self._convention.name)
        return self._make(results, given.tensors, values)

    def bound(self) -> LinkedRoutine:
        """The routine without its first argument, the object of the method."""
        convention = self._convention
        name, first = convention.positional[0]
        if not (isinstance(first, Fixed) and isinstance(first.value, Other)):
            message = f"{convention.name}: {name} has tensors among its fields: make the routine of a plain function"
            raise located(MetadataTypeError(message))
        return LinkedRoutine(self._core.linked, convention._replace(positional=convention.positional[1:]))

    def __repr__(self) -> str:
        devices, convention = ", ".join(self._core.linked.devices), self._convention
        return f"<tensord.LinkedRoutine {convention.name}{signature(convention)} on {devices}>"


make_public(LinkedRoutine)


def portable(convention: CallingConvention, captured: tuple[Tensor, ...]) -> CallingConvention:
    """The convention for other sessions, with numbers in place of captured tensors."""
    positions = {id(tensor): position for position, tensor in enumerate(captured)}

    def changed(node: Node) -> Node:
        if isinstance(node, Nested):
            return node._replace(members=tuple(map(changed, node.members)))
        if isinstance(node, Fixed) and type(node.value) is GlobalTensor:
            nodes = tuple([changed(Fixed(part)) for part in node.value._parts])
            return Nested(GLOBAL, label_of(node.value._form), (), nodes)
        if isinstance(node, Fixed) and id(node.value) in positions:
            return ArgumentSlot(CAPTURED, positions[id(node.value)])
        return node

    return convention._replace(result=changed(convention.result))

"""Linking programs: `session.link` gives a program devices and tensors, and makes a function of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...interpreter.errors import MetadataError, MetadataTypeError
from ...interpreter.programs.numbers import PARAMETER
from ...interpreter.programs.passes.table import chosen_names
from ...interpreter.programs.program import Program
from ...interpreter.types.meta import SCALAR_TYPES, Scalar
from ..calls.checks import device_of, own
from ..capture.binding import as_kind, refuse_symbolic
from ..core.core import Core
from ..core.scopes import open_from
from ..locations.locations import located
from ..locations.tracebacks import hides, make_public
from ..outbox.current import CURRENT
from ..requests.effects import check_callback
from ..tensor.tensor import Tensor
from .inlining import capture_for
from .linked import Bindings, ProgramBinding
from .runs import LinkedRuns, Reported


class LinkedProgram(Reported):
    """A program linked to devices and tensors: `(y,) = f(x)`, one message for each call.

    The program's parameters are passed by position, its numbers by name; the name of a number without one is `n` and
    its slot. Returns a tuple of tensors, at once.
    """

    def __init__(self, linked: ProgramBinding) -> None:
        self.program = program = linked.program
        self.devices = linked.devices
        self._core = LinkedRuns(linked)
        numbers = [(slot, number) for slot, number in enumerate(program.numbers) if number.op == PARAMETER]
        self._names = {number.name or f"n{slot}": SCALAR_TYPES[number.kind] for slot, number in numbers}

    @hides
    def __call__(self, /, *tensors: Tensor, **numbers: Scalar) -> tuple[Tensor, ...]:
        """Run it. MetadataError for tensors that do not fit the parameters, and for unknown numbers."""
        core, program, name = self._core.core, self.program, self._core.linked.name or "the program"
        capture = None if CURRENT.capture is None else capture_for(core, name)
        given = [own(core, tensor) for tensor in tensors]
        if len(given) != len(program.parameters):
            expected = ", ".join(f"{source.name or 'a tensor'} {source.meta}" for source in program.parameters)
            raise located(MetadataError(f"the program takes {len(program.parameters)} tensors: {expected}"))
        for tensor, source in zip(given, program.parameters, strict=True):
            if tensor._meta is not source.meta:
                refuse_symbolic(tensor)
                raise located(MetadataError(f"parameter {source.name} is {source.meta}, not {tensor._meta}"))
        return tuple(self._core.issue(capture, given, self._by_name(numbers), name)[0])

    def _by_name(self, numbers: Mapping[str, Scalar]) -> list[Scalar]:
        """The numbers of a run, in their order."""
        if numbers.keys() != self._names.keys():
            unknown = next((name for name in numbers if name not in self._names), None)
            if unknown is not None and not self._names:
                raise located(MetadataTypeError(f"the program takes no number {unknown!r}"))
            raise located(
                MetadataTypeError(f"the program takes the numbers {', '.join(self._names) or 'none'}, by name")
            )
        return [as_kind(name, numbers[name], kind) for name, kind in self._names.items()]

    def __repr__(self) -> str:
        name = f"{self._core.linked.name} " if self._core.linked.name else ""
        return f"<tensord.LinkedProgram {name}{self.program.digest[:12]} on {', '.join(self.devices)}>"


make_public(LinkedProgram)


class LinkOptions(NamedTuple):
    """The arguments of `session.link`."""

    devices: Mapping[str, str]
    tensors: Mapping[str, Tensor]
    name: str
    callbacks: Sequence[Callable[..., None]]
    passes: Sequence[str]


def link(core: Core, programs: Program | Iterable[Program], wanted: LinkOptions) -> Any:
    """One linked program, or a list of them."""
    if isinstance(programs, Program):
        return link_one(core, programs, wanted)
    if not isinstance(programs, list | tuple) or not all(isinstance(each, Program) for each in programs):
        raise located(MetadataTypeError("link: takes a program, or a list of them; td.Program.parse(text) makes one"))
    return [link_one(core, each, wanted) for each in programs]


def names_of_passes(passes: str | Iterable[str]) -> tuple[str, ...]:
    """The names of passes in wire form; MetadataError at the user's line for unknown names."""
    if not isinstance(passes, str | Iterable):
        raise located(MetadataTypeError(f"passes: takes names of passes, not {type(passes).__name__}"))
    names = (passes,) if isinstance(passes, str) else tuple(passes)
    try:
        chosen_names(names)
    except MetadataError as error:
        raise located(error) from None
    return names


def link_one(core: Core, program: Program, wanted: LinkOptions) -> LinkedProgram:
    """Link a program: slots without a device get the session's devices, in order; tensors that are not given are looked
    up in the surrounding contexts. The program calls the first callbacks, as many as it needs."""
    homes = [chosen_device(core, slot, wanted.devices) for slot in range(program.devices)]
    for slot in wanted.devices:
        if slot not in {f"d{number}" for number in range(program.devices)}:
            raise located(MetadataError(f"link: the program has no device slot {slot!r}; it has {program.devices}"))
    check_names([source.name for source in program.captured])
    captured = [captured_tensor(core, source.name, wanted.tensors) for source in program.captured]
    for tensor, source in zip(captured, program.captured, strict=True):
        if tensor._meta is not source.meta:
            raise located(MetadataError(f"link: {source.name} is {source.meta}, not {tensor._meta}"))
    bindings = Bindings(homes, captured, callbacks=called_back(program, wanted.callbacks))
    return LinkedProgram(ProgramBinding(core, program, bindings, wanted.name, wanted.passes))


def called_back(program: Program, callbacks: Sequence[Callable[..., None]]) -> Sequence[Callable[..., None]]:
    """The callbacks that a program needs; MetadataError if there are too few."""
    if not isinstance(callbacks, list | tuple):
        raise located(MetadataTypeError(f"link: callbacks= takes a list of functions, not {type(callbacks).__name__}"))
    needed = program.callbacks
    if len(callbacks) < needed:
        message = f"link: the program calls {needed} functions, and callbacks= gives {len(callbacks)}"
        raise located(MetadataError(f"{message}: give a list of them, in the order of their numbers"))
    for callback in callbacks[:needed]:
        check_callback(callback)
    return callbacks[:needed]


def chosen_device(core: Core, slot: int, devices: Mapping[str, str]) -> str:
    name = devices.get(f"d{slot}")
    if name is not None:
        return device_of(core, name)
    known = core.devices
    if slot >= len(known):
        raise located(MetadataError(f"link: name a device for slot d{slot}: devices={{'d{slot}': {known[0]!r}}}"))
    return known[slot]


def check_names(names: Sequence[str]) -> None:
    """MetadataError unless the captured tensors have distinct names."""
    name, times = next(iter(Counter(names).most_common(1)), ("", 0))
    if times > 1:
        message = f"link: the program captures {times} tensors of the name {name!r}"
        raise located(MetadataError(f"{message}, which are given by name: name each differently in the program's text"))


def captured_tensor(core: Core, name: str, tensors: Mapping[str, Tensor]) -> Tensor:
    if name in tensors:
        return own(core, tensors[name])
    scope = open_from(core.innermost())
    tensor = None if scope is None else scope.find(name)
    if tensor is not None:
        return own(core, tensor)
    raise located(
        MetadataError(f"link: the program captures a tensor {name!r}: give it in tensors=, or name it in a context")
    )

"""A call of a new kind: the function is captured, linked, and kept for later calls.

Nothing is issued if the capture fails. A routine that is captured again and again warns once, and says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ...interpreter.programs.convention import CallingConvention
from ...interpreter.types.meta import Meta
from ..capture.binding import DescribedArguments
from ..capture.capture import Capture, UploadedConstant
from ..capture.evaluation import Evaluation
from ..capture.results import CapturedResults
from ..capture.structure import Arguments
from ..core.core import Core
from ..core.scopes import hand_over
from ..host_arrays.uploads import as_tensor
from ..linking.linked import Bindings, ProgramBinding
from ..locations.frames import warn
from ..tensor.tensor import Tensor
from .entries import CacheEntry, CallForm, Entries
from .guards import Guards, behind_arguments
from .symbols import Symbols, parameter_names
from .watch import Watch

CAPTURES_BEFORE_WARNING: Final = 8  # captures after which a routine warns
MAX_SHOWN: Final = 3  # differences that a warning names


class CallKind(NamedTuple):
    """The kind of a captured call: by name, each argument's part of the key, and each fixed number."""

    arguments: Mapping[str, Any]
    fixed: Mapping[str, tuple[Any, str | None]]  # value, and the line that has read it
    surroundings: tuple[int, int]  # session and handler


def differences(before: CallKind, now: CallKind, outside: str | None) -> str:
    """The differences in words; "" if there are none. `outside`: the first global or cell that has changed."""
    texts = []
    for name in dict.fromkeys((*before.arguments, *now.arguments)):
        old, new = before.arguments.get(name), now.arguments.get(name)
        if old != new:
            texts.append(f"{name} was {described(old)}, and is {described(new)}")
    for name, (value, line) in now.fixed.items():
        old, _ = before.fixed.get(name, (None, None))
        if old is not None and repr(old) != repr(value):
            texts.append(f"{name} was {old}, and is {value}; its value was read{f' [{line}]' if line else ''}")
    if outside is not None:
        texts.append(f"{outside}, which is not an argument, has changed")
    if before.surroundings != now.surroundings:
        texts.append("the session or its handler has changed")
    return "; ".join(texts[:MAX_SHOWN])


def described(part: Any) -> str:
    """An argument's part of the key, in words."""
    if part is None:
        return "not there"
    if isinstance(part, tuple) and part and isinstance(part[0], Meta):
        meta, home, same = part
        return f"{meta!r} on {home}{f', the same tensor as {same}' if same else ''}"
    if isinstance(part, type):
        return f"a {part.__name__}"
    return str(part)


class RecordedCapture:
    """A successful capture: the program, and the objects that a run of it needs."""

    def __init__(
        self, capture: Capture, results: CapturedResults, guards: Guards, leaves: Sequence[int], look: CallKind
    ) -> None:
        self.capture = capture
        self.program = capture.finish(results.variables)
        self.make = results.make
        self.result = results.node
        self.guards = guards
        self.leaves = leaves
        self.look = look


class Captures:
    """The captures of one routine. `count`: of all, including those that two threads made concurrently."""

    def __init__(self, function: Callable[..., Any], passes: Sequence[str], constants: frozenset[str]) -> None:
        self.function = function
        self.passes = passes
        self.constants = constants
        self.entries = Entries()
        self.name: str = getattr(function, "__qualname__", "")
        self.count = 0
        self._kinds = 0
        self._last: tuple[CallKind, Guards] | None = None  # of the newest capture
        self._warned = False

    def note(self, recorded: RecordedCapture, *, new: bool) -> tuple[CallKind, Guards] | None:
        """Keep the newest kind and guards; returns the former ones if there have been too many captures."""
        self._kinds += new
        before, self._last = self._last, (recorded.look, recorded.guards)
        return before if self._kinds > CAPTURES_BEFORE_WARNING else None

    def warn(self, before: tuple[CallKind, Guards], recorded: RecordedCapture) -> None:
        """Warn once about repeated captures, if the last two differ."""
        if self._warned:
            return
        look, guards = before
        why = differences(look, recorded.look, guards.broken())
        if why:
            self._warned = True
            name = self.name or "routine"
            warn(f"{name} was captured {self.count} times, and each capture takes long. Last {why}", RuntimeWarning)


class FirstCall(NamedTuple):
    """A call without a fitting capture."""

    captures: Captures
    core: Core
    given: Arguments
    args: Sequence[Any]
    kwargs: Mapping[str, Any]

    @property
    def key(self) -> tuple[Any, ...]:
        """The key by which entries for such a call are found."""
        return tuple(self.given.key)

    def first_time(self, fixed: frozenset[int] = frozenset()) -> Any:
        """Capture the function and run the program. `fixed`: numbers whose values become part of it."""
        recorded = self._counted(fixed)
        entry = self._linked(recorded)
        result = entry.run(self.given.tensors, self.given.numbers)
        self._keep(entry, recorded, fixed)
        return result

    def linked(self) -> CacheEntry:
        """Capture the function without running the program."""
        recorded = self._counted()
        entry = self._linked(recorded)
        self._keep(entry, recorded)
        return entry

    def _counted(self, fixed: frozenset[int] = frozenset()) -> RecordedCapture:
        recorded = self.captured(fixed)
        with self.captures.entries.lock:
            self.captures.count += 1
        return recorded

    def _keep(self, entry: CacheEntry, recorded: RecordedCapture, fixed: frozenset[int] = frozenset()) -> None:
        given, entries = self.given, self.captures.entries
        with entries.lock:
            new = bool(fixed) or entries.find(self.key, given.numbers, given.objects) is None
            entries.add(self.key, entry, fixed.union(recorded.capture.fixed))
            before = self.captures.note(recorded, new=new)
        if before is not None:
            self.captures.warn(before, recorded)

    def captured(self, fixed: frozenset[int] = frozenset()) -> RecordedCapture:
        """Run the function with symbolic arguments."""
        captures, function = self.captures, self.captures.function
        names = parameter_names(function, len(self.args))
        arguments = (*zip(names, self.args, strict=True), *self.kwargs.items())
        guards = Guards(function, behind_arguments(arguments), captures.constants)
        watch = Watch(guards)
        capture = Capture(self.core, guards.tensors)
        symbols = Symbols(capture, fixed.union(captures.entries.fixed(self.key)))
        try:
            capture.begin()
            args, kwargs = symbols.stand_for(function, self.args, self.kwargs)
            with watch:
                value = function(*args, **kwargs)
            symbols.check()
            results = CapturedResults(capture, value)
        finally:
            capture.end()
        watch.settle()
        look = CallKind(symbols.look, symbols.fixed(), self.key[:2])
        return RecordedCapture(capture, results, guards, symbols.leaves, look)

    def _linked(self, recorded: RecordedCapture) -> CacheEntry:
        core, capture, numbers = self.core, recorded.capture, self.given.numbers
        captured = [own_tensor(core, each) if isinstance(each, UploadedConstant) else each for each in capture.captured]
        capture.captured.clear()  # the values of constants are uploaded by now
        slots, captures = capture.slots, self.captures
        bindings = Bindings(slots.devices, captured, slots.chains, slots.callbacks)
        linked = ProgramBinding(core, recorded.program, bindings, captures.name, captures.passes)
        evaluation = Evaluation(recorded.program, recorded.leaves, numbers, capture.ranges)
        return CacheEntry(linked, evaluation, self._called(recorded), recorded.guards, self.given)

    def _called(self, recorded: RecordedCapture) -> CallForm:
        """The calling convention: the relation of arguments and results to those of the program."""
        function, args = self.captures.function, self.args
        described = DescribedArguments(recorded.leaves, recorded.capture.fixed)
        names = parameter_names(function, len(args))
        positional = tuple((name, described.node(value)) for name, value in zip(names, args, strict=True))
        keywords = tuple((name, described.node(value)) for name, value in self.kwargs.items())
        name = getattr(function, "__name__", type(function).__name__)
        return CallForm(CallingConvention(name, positional, keywords, recorded.result), recorded.make)


def own_tensor(core: Core, constant: UploadedConstant) -> Tensor:
    """The routine's own tensor with these values, which no context of the caller releases."""
    tensor = as_tensor(core, constant.array, constant.home)
    hand_over(tensor, None)
    return tensor

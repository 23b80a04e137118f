"""A routine: a Python function that is captured once for each kind of arguments, and run as a program afterwards."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from types import CodeType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from ...interpreter.errors import CaptureError, MetadataTypeError, ProtocolError
from ...interpreter.programs.convention import Convention
from ...interpreter.programs.passes.table import ALL
from ..calls.checks import foreign
from ..calls.scopes import hand
from ..capture.binding import Described
from ..capture.capture import Capture, Constant
from ..capture.evaluation import Evaluation, Misfit
from ..capture.plain import fits, plain_number
from ..capture.results import Results
from ..capture.structure import Arguments, Replacing, is_number, short
from ..core.core import Core
from ..host_arrays.uploads import as_tensor
from ..linking.linked import Linked
from ..linking.linked_routine import LinkedRoutine
from ..linking.linking import names_of_passes
from ..locations.frames import warn
from ..locations.locations import located
from ..locations.tracebacks import MEANT, hide, hides, make_public
from ..outbox.current import CURRENT
from ..tensor.tensor import Tensor
from ..waiting.on_loop import on_loop
from ..waiting.steps import Awaiting, Steps, on_thread
from .changes import MANY, Look, differences, look_of
from .entries import Entries, Entry
from .guards import Guards, behind
from .watch import Watch

if TYPE_CHECKING:
    from ...interpreter.programs.program import Program
    from ..linking.report import Report

_LAZY = (
    inspect.isgeneratorfunction,
    inspect.iscoroutinefunction,
    inspect.isasyncgenfunction,
)


P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")


class Routine(Generic[P, R]):
    """A function of tensors and numbers, nested as you like, that is captured and run as one program.

    Called, it does what the function does. The first call with arguments of a kind runs the function with symbolic
    tensors, and records its ops; the later ones run what was recorded. `captures` counts the captures.
    """

    __wrapped__: Callable[P, R]

    def __init__(
        self,
        core: Core | None,
        function: Callable[P, R],
        *,
        eager: bool = False,
        passes: str | Iterable[str] = ALL,
        constants: Iterable[str] = (),
    ) -> None:
        check_function(function)
        self._passes = names_of_passes(passes)
        self._constants = names_of_constants(constants)
        functools.update_wrapper(self, function)
        self.captures = 0
        self._core = core
        self._function = function
        self._eager = eager
        self._entries = Entries()
        self._last: tuple[Look, Guards] | None = None  # of the newest capture
        self._kinds = 0  # captures, without those that other threads made of the same at the same time
        self._warned = False

    @hides
    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, or run what was captured for such arguments.

        Raises what the function raises, and then nothing was issued. CaptureError if the function asks for a value.
        """
        result: R
        try:
            if self._eager or CURRENT.capture is not None:
                result = self._inlined(args, kwargs)
                return result
            core = self._core or default_core()
            given, tensors = self._given(core, args, kwargs)
            key = tuple(given.key)
            entry = self._entries.find(key, given.numbers, given.objects)
            if entry is None:
                result = Call(self, core, given, tensors, args, kwargs).first_time()
                return result
            try:
                result = entry.run(tensors, given.numbers)
                return result  # noqa: TRY300 - with fewer lines
            except Misfit as misfit:
                fixed = entry.evaluation.behind(misfit.slot)
            result = Call(self, core, given, tensors, args, kwargs).first_time(fixed)
            return result  # noqa: TRY300
        except MEANT as error:
            hide(error)
            raise

    def program(self, /, *args: P.args, **kwargs: P.kwargs) -> Program:
        """The program that a call with these arguments would run. Captures it anew, and runs nothing."""
        core = self._core or default_core()
        if CURRENT.capture is not None:
            raise located(CaptureError("program: a routine is being captured; ask for programs outside of it"))
        given, tensors = self._given(core, args, kwargs)
        return Call(self, core, given, tensors, args, kwargs).captured().program

    def link(self, /, *args: P.args, **kwargs: P.kwargs) -> LinkedRoutine:
        """The routine for arguments of that kind alone, as what `publish` takes. Captures it if it was not, and runs
        nothing. What it depends on besides its arguments is as it is now, for ever."""
        core = self._core or default_core()
        if CURRENT.capture is not None:
            raise located(CaptureError("link: a routine is being captured; link routines outside of it"))
        given, tensors = self._given(core, args, kwargs)
        entry = self._entries.find(tuple(given.key), given.numbers, given.objects)
        if entry is None:
            entry = Call(self, core, given, tensors, args, kwargs).linked()
        return LinkedRoutine(entry.linked, entry.convention)

    def report(self) -> Report:
        """What the machine has made of the capture that was called last. ProtocolError if there is none."""
        entry = self._latest()
        return on_thread(entry.linked._core.outbox, reporting(entry))

    def report_async(self) -> Awaiting[Report]:
        """`await routine.report_async()`: as `report`."""
        entry = self._latest()
        return on_loop(entry.linked._core.outbox, reporting(entry))

    def _latest(self) -> Entry:
        entry = self._entries.latest()
        if entry is None:
            raise located(ProtocolError("report: the routine was not called yet"))
        return entry

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(
        self: Routine[Concatenate[Any, Q], R], instance: object, owner: type | None = None
    ) -> BoundRoutine[Q, R]: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else BoundRoutine(self, instance)

    def __repr__(self) -> str:
        name = getattr(self, "__qualname__", repr(self._function))
        return f"<tensord.Routine {name}, captured {self.captures} times>"

    def _inlined(self, args: Any, kwargs: Any) -> Any:
        capture = CURRENT.capture
        if capture is not None and self._core is not None and capture.core is not self._core:
            message = "a routine of another session cannot be a part of the one that is captured"
            raise located(CaptureError(message))
        return self._function(*args, **kwargs)

    def _given(self, core: Core, args: Any, kwargs: Any) -> tuple[Arguments, list[Tensor]]:
        """The arguments, and each tensor among them once."""
        given = Arguments(id(core), id(core.calls.handler), len(args))
        given.add(args)
        if kwargs:
            given.add((kwargs,))
        tensors = given.tensors
        for tensor in tensors:
            if tensor._core is not core:
                raise located(foreign(tensor))
        if len(set(tensors)) == len(tensors):
            return given, tensors
        once = list({id(tensor): tensor for tensor in tensors}.values())
        places = {id(tensor): place for place, tensor in enumerate(once)}
        given.key.append(tuple(places[id(tensor)] for tensor in tensors))
        return given, once


make_public(Routine)


class BoundRoutine(Generic[P, R]):
    """A routine that is a method, on its object."""

    __slots__ = ("__self__", "_routine")

    def __init__(self, routine: Routine[Any, R], instance: Any) -> None:
        self._routine = routine
        self.__self__ = instance

    @hides
    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._routine(self.__self__, *args, **kwargs)

    def program(self, /, *args: P.args, **kwargs: P.kwargs) -> Program:
        """See `Routine.program`."""
        return self._routine.program(self.__self__, *args, **kwargs)

    def link(self, /, *args: P.args, **kwargs: P.kwargs) -> LinkedRoutine:
        """See `Routine.link`."""
        return self._routine.link(self.__self__, *args, **kwargs).bound()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._routine, name)

    def __repr__(self) -> str:
        return f"<{self._routine!r} of {self.__self__!r}>"


class Recorded:
    """A capture that has succeeded: the program, and what a run of it needs."""

    def __init__(self, capture: Capture, results: Results, guards: Guards, leaves: Sequence[int], look: Look) -> None:
        self.capture = capture
        self.program = capture.finish(results.variables)
        self.make = results.make
        self.result = results.node
        self.guards = guards
        self.leaves = leaves
        self.look = look


def reporting(entry: Entry) -> Steps[Report]:
    """The report on a capture, in steps."""
    report = yield from entry.linked.reporting()
    report["constants"] = list(entry.guards.constants)
    return report


class Call:
    """One call for which nothing was captured, or not what fits."""

    def __init__(
        self,
        routine: Routine[..., Any],
        core: Core,
        given: Arguments,
        tensors: Sequence[Tensor],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> None:
        self._routine = routine
        self._core = core
        self._given = given
        self._tensors = tensors
        self._args = args
        self._kwargs = kwargs
        self._key = tuple(given.key)

    def first_time(self, fixed: frozenset[int] = frozenset()) -> Any:
        """Capture the function, and run what was captured. `fixed`: the numbers whose values the program has."""
        recorded = self._counted(fixed)
        entry = self._linked(recorded)
        result = entry.run(self._tensors, self._given.numbers)
        self._keep(entry, recorded, fixed)
        return result

    def linked(self) -> Entry:
        """Capture the function, and run nothing."""
        recorded = self._counted()
        entry = self._linked(recorded)
        self._keep(entry, recorded)
        return entry

    def _counted(self, fixed: frozenset[int] = frozenset()) -> Recorded:
        recorded = self.captured(fixed)
        with self._routine._entries.lock:
            self._routine.captures += 1
        return recorded

    def _keep(self, entry: Entry, recorded: Recorded, fixed: frozenset[int] = frozenset()) -> None:
        routine, given, entries = self._routine, self._given, self._routine._entries
        with entries.lock:
            new = bool(fixed) or entries.find(self._key, given.numbers, given.objects) is None
            entries.add(self._key, entry, fixed.union(recorded.capture.fixed))
            routine._kinds += new
            before, routine._last = routine._last, (recorded.look, recorded.guards)
        if before is not None and routine._kinds > MANY:
            self._warn(*before, recorded)

    def _warn(self, look: Look, guards: Guards, recorded: Recorded) -> None:
        """Warn once, if the last two captures differ: many have been made."""
        routine = self._routine
        if routine._warned:
            return
        why = differences(look, recorded.look, guards.broken())
        if why:
            routine._warned = True
            name = getattr(routine, "__qualname__", "routine")
            warn(f"{name} was captured {routine.captures} times, each of which takes long. Last {why}", RuntimeWarning)

    def captured(self, fixed: frozenset[int] = frozenset()) -> Recorded:
        """Run the function with symbolic arguments."""
        routine = self._routine
        names = parameter_names(routine._function, len(self._args))
        arguments = (*zip(names, self._args, strict=True), *self._kwargs.items())
        guards = Guards(routine._function, behind(arguments), routine._constants)
        watch = Watch(guards)
        capture = Capture(self._core, guards.tensors)
        symbols = Symbols(capture, fixed.union(routine._entries.fixed(self._key)))
        try:
            capture.begin()
            args, kwargs = symbols.stand_for(routine._function, self._args, self._kwargs)
            with watch:
                value = routine._function(*args, **kwargs)
            symbols.check()
            results = Results(capture, value)
        finally:
            capture.end()
        watch.settle()
        look = Look(symbols.look, symbols.fixed(), self._key[:2])
        return Recorded(capture, results, guards, symbols.leaves, look)

    def _linked(self, recorded: Recorded) -> Entry:
        core, capture, numbers = self._core, recorded.capture, self._given.numbers
        captured = [kept(core, each) if isinstance(each, Constant) else each for each in capture.captured]
        capture.captured.clear()  # the values of constants are uploaded
        chains, callbacks, name = (
            capture.slots.chains,
            capture.slots.callbacks,
            getattr(self._routine, "__qualname__", ""),
        )
        passes = self._routine._passes
        linked = Linked(core, recorded.program, capture.slots.devices, captured, chains, callbacks, name, passes)
        evaluation = Evaluation(recorded.program, recorded.leaves, numbers, capture.ranges)
        objects, guards = self._given.objects, recorded.guards
        return Entry(core, linked, evaluation, recorded.make, self._convention(recorded), guards, numbers, objects)

    def _convention(self, recorded: Recorded) -> Convention:
        """How the routine is called: what an argument or a result is to the program."""
        function, args = self._routine._function, self._args
        described = Described(recorded.leaves, recorded.capture.fixed)
        names = parameter_names(function, len(args))
        positional = tuple((name, described.node(value)) for name, value in zip(names, args, strict=True))
        keywords = tuple((name, described.node(value)) for name, value in self._kwargs.items())
        name = getattr(function, "__name__", type(function).__name__)
        return Convention(name, positional, keywords, recorded.result)


class Symbols:
    """What stands for the arguments in a capture. `leaves`: the places of the numbers that are parameters."""

    def __init__(self, capture: Capture, known: frozenset[int]) -> None:
        self.leaves: list[int] = []
        self.look: dict[str, Any] = {}
        self._capture = capture
        self._known = known
        self._tensors: dict[int, tuple[str, Any]] = {}  # by id(): the first name, and the symbolic tensor
        self._numbers: list[tuple[str, Any]] = []
        self._copies = Replacing()

    def stand_for(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """The arguments with symbolic tensors and numbers."""
        names = parameter_names(function, len(args))
        copies = self._copies
        found = [copies.replaced(each, name, self._leaf) for name, each in zip(names, args, strict=True)]
        return found, {name: copies.replaced(each, name, self._leaf) for name, each in kwargs.items()}

    def check(self) -> None:
        """CaptureError if the function has put something else into an argument's containers."""
        name = next(self._copies.changed(), None)
        if name is not None:
            message = (
                f"the function has changed the members of its argument {name}, which a run would not: write tensors in "
                'place (p["w"] -= step, p["w"][...] = new), or return what is new'
            )
            raise located(CaptureError(message))

    def fixed(self) -> dict[str, tuple[Any, str | None]]:
        """The numbers whose values the capture depends on, by name, and the lines that have asked for them."""
        places = {**dict.fromkeys(self._known), **self._capture.fixed}
        return {name: (value, places[leaf]) for leaf, (name, value) in enumerate(self._numbers) if leaf in places}

    def _leaf(self, value: Any, name: str) -> Any:
        if isinstance(value, Tensor):
            first, symbol = self._tensors.get(id(value)) or ("", self._capture.parameter(value, short(name)))
            self._tensors.setdefault(id(value), (name, symbol))
            self.look[name] = (value._meta, value._home, first)
            return symbol
        if not is_number(value):
            self.look[name] = look_of(value)
            return value
        self.look[name] = type(value)
        return self._number(value, name)

    def _number(self, value: Any, name: str) -> Any:
        leaf = len(self._numbers)
        self._numbers.append((name, value))
        if leaf in self._known:
            return value
        if not fits(plain_number(value)):
            self._capture.fix(frozenset((leaf,)))
            return value
        self.leaves.append(leaf)
        return self._capture.number(value, leaf, short(name))


def kept(core: Core, constant: Constant) -> Tensor:
    """The routine's own tensor with these values, which goes with the routine, and not with a context of the caller."""
    tensor = as_tensor(core, constant.array, constant.home)
    hand(tensor, None)
    return tensor


def names_of_constants(constants: Iterable[str]) -> frozenset[str]:
    """The names, checked; MetadataTypeError for something else."""
    given = [constants] if isinstance(constants, str) else list(constants)
    for each in given:
        if not isinstance(each, str):
            message = (
                f'constants are named as errors name them, constants=["settings.rate"], not by a {type(each).__name__}'
            )
            raise located(MetadataTypeError(message))
    return frozenset(given)


def check_function(function: Any) -> None:
    """MetadataTypeError unless it is a function that runs when it is called."""
    if not callable(function):
        raise located(MetadataTypeError(f"a routine is made of a function, not of {type(function).__name__}"))
    if any(lazy(function) for lazy in _LAZY):
        message = "a routine is made of a plain function: generators and coroutines run at other times than their call"
        raise located(MetadataTypeError(message))


def parameter_names(function: Any, given: int) -> list[str]:
    """Names for so many positional arguments."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    names = list(code.co_varnames[: code.co_argcount]) if isinstance(code, CodeType) else []
    if inspect.ismethod(function):
        names = names[1:]
    return names[:given] + [f"args.{place}" for place in range(len(names[:given]), given)]


def default_core() -> Core:
    """The core of the session of `tensord.array_api`."""
    core: Core = default_namespace()._maker()
    return core


@functools.cache
def default_namespace() -> Any:
    """The module `tensord.array_api`."""
    return import_module(f"{__name__.partition('.client')[0]}.array_api")

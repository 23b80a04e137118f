"""A routine: a Python function that is captured once for each kind of arguments, and run as a program afterwards."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from ...interpreter.errors import CaptureError, MetadataTypeError, ProtocolError
from ...interpreter.programs.passes.table import ALL
from ...interpreter.programs.program import Program
from ..calls.checks import foreign
from ..capture.evaluation import Misfit
from ..capture.structure import Arguments
from ..core.core import Core
from ..linking.linked import Report
from ..linking.linked_routine import LinkedRoutine
from ..linking.linking import names_of_passes
from ..locations.locations import located
from ..locations.tracebacks import PUBLIC_ERRORS, hide, hides, make_public
from ..outbox.current import CURRENT
from ..waiting.on_loop import on_loop
from ..waiting.steps import Awaiting, Steps, on_thread
from .entries import CacheEntry
from .first_call import Captures, FirstCall

_LAZY = (
    inspect.isgeneratorfunction,
    inspect.iscoroutinefunction,
    inspect.isasyncgenfunction,
)


P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")


class Routine(Generic[P, R]):
    """A function that is captured, and run as one program.

    Its arguments are tensors and numbers, in structures nested to any depth.

    Calling it has the effect of calling the function. The first call with arguments of a new kind runs the function
    with symbolic tensors, and records its ops; later calls run the recorded program. `captures` counts the captures.
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
        self._captures = Captures(function, names_of_passes(passes), names_of_constants(constants))
        functools.update_wrapper(self, function)
        self._core = core
        self._function = function
        self._eager = eager
        self._entries = self._captures.entries

    @property
    def captures(self) -> int:
        """The number of captures so far."""
        return self._captures.count

    @hides
    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, or run its program for such arguments.

        Raises what the function raises while it is captured, before anything is issued. CaptureError if the function
        reads a tensor's value.
        """
        result: R
        try:
            if self._eager or CURRENT.capture is not None:
                result = self._inlined(args, kwargs)
                return result
            core = self._maker(args, kwargs)
            given = self._given(core, args, kwargs)
            key = tuple(given.key)
            entry = self._entries.find(key, given.numbers, given.objects)
            if entry is None:
                result = FirstCall(self._captures, core, given, args, kwargs).first_time()
                return result
            try:
                result = entry.run(given.tensors, given.numbers)
                return result  # noqa: TRY300 - with fewer lines
            except Misfit as misfit:
                fixed = entry.evaluation.leaves_of(misfit.slot)
            result = FirstCall(self._captures, core, given, args, kwargs).first_time(fixed)
            return result  # noqa: TRY300
        except PUBLIC_ERRORS as error:
            hide(error)
            raise

    def program(self, /, *args: P.args, **kwargs: P.kwargs) -> Program:
        """Return the program that a call with these arguments would run. Captures the function anew, and runs nothing.

        :param args: The arguments of the call.
        :param kwargs: The keyword arguments of the call.
        :returns: The program.
        :raises CaptureError: The function cannot be captured, or a routine is being captured.
        """
        core = self._maker(args, kwargs)
        if CURRENT.capture is not None:
            raise located(CaptureError("program: a routine is being captured; call program outside of its function"))
        given = self._given(core, args, kwargs)
        return FirstCall(self._captures, core, given, args, kwargs).captured().program

    def link(self, /, *args: P.args, **kwargs: P.kwargs) -> LinkedRoutine:
        """Return the routine for this kind of arguments only, in the form that `publish` takes. Runs nothing.

        Captures the function if necessary. All state besides the arguments that the function depends on is frozen.

        :param args: The arguments of a call.
        :param kwargs: The keyword arguments of a call.
        :returns: The linked routine.
        :raises CaptureError: The function cannot be captured, or a routine is being captured.
        """
        core = self._maker(args, kwargs)
        if CURRENT.capture is not None:
            raise located(CaptureError("link: a routine is being captured; call link outside of its function"))
        given = self._given(core, args, kwargs)
        entry = self._entries.find(tuple(given.key), given.numbers, given.objects)
        if entry is None:
            entry = FirstCall(self._captures, core, given, args, kwargs).linked()
        return LinkedRoutine(entry.linked, entry.convention)

    def report(self, *, source: bool = False) -> Report:
        """Return a report on the capture that was run last: its ops, segments, kernels, graphs and memory.

        :param source: Include the source of the generated kernels.
        :returns: The report.
        :raises ProtocolError: The routine was never called.
        """
        entry = self._latest()
        return on_thread(entry.linked._core.outbox, reporting(entry, source=source))

    def report_async(self, *, source: bool = False) -> Awaiting[Report]:
        """`report = await routine.report_async()`: see `report`."""
        entry = self._latest()
        return on_loop(entry.linked._core.outbox, reporting(entry, source=source))

    def _latest(self) -> CacheEntry:
        entry = self._entries.latest()
        if entry is None:
            raise located(ProtocolError("report: the routine has not been called yet"))
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
        times = "once" if self.captures == 1 else f"{self.captures} times"
        return f"<tensord.Routine {name}, captured {times}>"

    def _inlined(self, args: Any, kwargs: Any) -> Any:
        capture = CURRENT.capture
        if capture is not None and self._core is not None and capture.core is not self._core:
            message = "a routine of another session cannot be called by the routine that is being captured"
            raise located(CaptureError(message))
        return self._function(*args, **kwargs)

    def _maker(self, args: Any, kwargs: Any) -> Core:
        """The core of the session that runs this call; in a cluster, the core of the node of the first tensor."""
        core = self._core or default_core()
        return core if core.cluster is None else core.cluster.core_of((args, kwargs))

    def _given(self, core: Core, args: Any, kwargs: Any) -> Arguments:
        """The arguments for the cache's key; a tensor that occurs several times is listed once."""
        first = (id(core), id(core.calls.chain.handler), len(args))
        given = Arguments(first, (*args, kwargs) if kwargs else args)
        tensors = given.tensors
        for tensor in tensors:
            if tensor._core is not core:
                raise located(foreign(tensor, core, tensors[0]))
        if len(set(tensors)) < len(tensors):
            given.tensors = list({id(tensor): tensor for tensor in tensors}.values())
            positions = {id(tensor): position for position, tensor in enumerate(given.tensors)}
            given.key.append(tuple(positions[id(tensor)] for tensor in tensors))
        return given


make_public(Routine)


class BoundRoutine(Generic[P, R]):
    """A routine that is a method, bound to an instance."""

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


def reporting(entry: CacheEntry, *, source: bool = False) -> Steps[Report]:
    report = yield from entry.linked.reporting(source=source)
    report["constants"] = list(entry.guards.constants)
    return report


def names_of_constants(constants: Iterable[str]) -> frozenset[str]:
    """The names, checked; MetadataTypeError for anything else."""
    given = [constants] if isinstance(constants, str) else list(constants)
    for name in given:
        if not isinstance(name, str):
            message = (
                f'constants are named as errors name them, constants=["settings.rate"], not by a {type(name).__name__}'
            )
            raise located(MetadataTypeError(message))
    return frozenset(given)


def check_function(function: Any) -> None:
    """MetadataTypeError unless it is a plain function, whose call runs it to its end."""
    if not callable(function):
        raise located(MetadataTypeError(f"a routine is made from a function, not from {type(function).__name__}"))
    if any(lazy(function) for lazy in _LAZY):
        message = "a routine is made from a plain function: a call of a generator or a coroutine does not run its body"
        raise located(MetadataTypeError(message))


def default_core() -> Core:
    """The core of the session of `tensord.array_api`."""
    core: Core = default_namespace()._maker()  # noqa: SLF001 - the session behind the module
    return core


@functools.cache
def default_namespace() -> Any:
    """The module `tensord.array_api`."""
    return import_module(f"{__name__.partition('.client')[0]}.array_api")

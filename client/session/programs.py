"""Programs and routines, as methods of a session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from ...interpreter.programs.program import Program
from ..global_tensors.explaining import BytesExplanation
from ..locations.tracebacks import make_public
from ..tensor.tensor import Tensor
from .parts import Facet

if TYPE_CHECKING:
    from ..routines.routine import Routine

P = ParamSpec("P")
R = TypeVar("R")


class Programs(Facet):
    """Functions that run as one message."""

    def link(
        self,
        programs: Program | Sequence[Program],
        *,
        devices: Mapping[str, str] | None = None,
        tensors: Mapping[str, Tensor] | None = None,
        name: str = "",
        callbacks: Sequence[Callable[..., None]] = (),
        passes: str | Iterable[str] = "all",
    ) -> Any:
        """Make a function of a program.

        For example ``f = s.link(program, devices={"d0": "sim:0"}, tensors={"w": w})``, and then ``(y,) = f(x)``.

        :param programs: The program, or a list of programs.
        :param devices: A device for each of the program's slots; by default the session's devices in their order.
        :param tensors: The tensors that the program captures, by name. Missing ones are looked up in the surrounding
            contexts.
        :param name: The name in records.
        :param callbacks: The functions that the program's effects call, in the order of their numbers.
        :param passes: The names of the passes that may change the program, or "all" or "none" (docs/routines.md).
        :returns: A function; for several programs, a list of functions.
        :raises MetadataError: Devices, tensors, callbacks or passes do not fit the program.
        """
        from ..linking.linking import LinkOptions, link, names_of_passes

        wanted = LinkOptions(devices or {}, tensors or {}, name, callbacks, names_of_passes(passes))
        return link(self._core, programs, wanted)

    @overload
    def routine(
        self,
        function: Callable[P, R],
        *,
        eager: bool = False,
        passes: str | Iterable[str] = "all",
        constants: Iterable[str] = (),
    ) -> Routine[P, R]: ...
    @overload
    def routine(
        self,
        function: None = None,
        *,
        eager: bool = False,
        passes: str | Iterable[str] = "all",
        constants: Iterable[str] = (),
    ) -> Callable[[Callable[P, R]], Routine[P, R]]: ...
    def routine(
        self,
        function: Callable[P, R] | None = None,
        *,
        eager: bool = False,
        passes: str | Iterable[str] = "all",
        constants: Iterable[str] = (),
    ) -> Any:
        """Make a routine of a function: captured at its first call, and run as one program afterwards.

        Also a decorator: `@session.routine`. See docs/routines.md.

        :param function: The function; without one, a decorator is returned.
        :param eager: Call the function each time, without a capture.
        :param passes: The names of the passes that may change the program, or "all" or "none".
        :param constants: Objects whose state at the capture is kept, by their names in CaptureError and the report.
        :returns: The routine, which is called like the function.
        :raises MetadataTypeError: The function is a generator or a coroutine function.
        """
        from ..routines.routine import Routine

        made = partial(Routine, self._core, eager=eager, passes=passes, constants=constants)
        return made if function is None else made(function)

    def explain(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> BytesExplanation:
        """List the moves between devices that a call of a function would cause, with bytes and reasons. Nothing runs.

        The function is captured, like a routine.

        :param function: The function.
        :param args: The arguments of the call.
        :param kwargs: The keyword arguments of the call.
        :returns: An explanation, which prints as a table; `rows` are plain data.
        :raises CaptureError: The function reads the value of a tensor.
        """
        from ..routines.explaining import explain

        return explain(self._core, function, args, kwargs)


make_public(Programs)

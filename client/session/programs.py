"""Programs and routines, as methods of a session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from ...interpreter.programs.program import Program
from ..global_tensors.explaining import Explanation
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
        """Make a function of a program: `f = s.link(program, devices={"d0": "sim:0"}, tensors={"w": w}); (y,) = f(x)`.

        `devices`: for the program's device slots, by default the session's devices in their order. `tensors`: what the
        program captures, by name; what is missing is looked up in the contexts around; `name`: what records show.
        `callbacks`: the functions that its effects call, in the order of their numbers. `passes`: the names of those
        that may change the program, or "all" or "none" (docs/routines.md). Of several programs, a list of functions.
        MetadataError for what does not fit.
        """
        from ..linking.linking import Wanted, link, names_of_passes

        wanted = Wanted(devices or {}, tensors or {}, name, callbacks, names_of_passes(passes))
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

        A decorator, too: `@session.routine`. With `eager=True` each call just calls the function. `passes`: the names
        of those that may change the program, or "all" or "none". `constants`: what is to stay as it was at the capture,
        by the names that CaptureError and the report give it. MetadataTypeError for generators and coroutines. See
        docs/routines.md.
        """
        from ..routines.routine import Routine

        made = partial(Routine, self._core, eager=eager, passes=passes, constants=constants)
        return made if function is None else made(function)

    def explain(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Explanation:
        """What a call of the function with these arguments would move between devices, how much, and why.

        The function is captured, as a routine is, and nothing runs. `print(session.explain(step, x, w))` is a table;
        `.rows` are plain data. CaptureError if the function asks for a value.
        """
        from ..routines.explaining import explained

        return explained(self._core, function, args, kwargs)


make_public(Programs)

"""Control flow: `session.cond`, `case`, `while_loop` and `repeat`.

In a routine they record a step of the program, with the functions as its blocks. Outside, the step is a routine of its
own, which is kept for later calls with the same functions: one message for each call.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from numbers import Integral
from threading import RLock
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ...interpreter.errors import MetadataError, MetadataIndexError, MetadataTypeError
from ...interpreter.programs.constructs import FORMS, MAX_ITERATIONS, MAX_ITERATIONS_LIMIT, check_head
from ...interpreter.programs.program import CASE, COND, REPEAT, WHILE
from ...interpreter.wire.forms import shown
from ..calls.checks import on_one_device, own
from ..capture.blocks import BlockWithResults, Draws, capture_block, check_structures, plain_tensors_in, with_tensors
from ..capture.capture import Capture
from ..capture.numbers import fixed
from ..capture.structure import LOCATED, is_number, members, rebuilt
from ..core.core import Core
from ..global_tensors.tensor import GlobalTensor
from ..locations.locations import located
from ..locations.tracebacks import make_public
from ..outbox.current import CURRENT, capture_of
from ..tensor.tensor import Tensor

if TYPE_CHECKING:
    from .routine import Routine

MAX_ROUTINES: Final = 64  # routines of steps outside of routines


class ControlFlow:
    """The control flow of a session. The machine decides which functions run, so the program waits for no value."""

    _core: Any  # of the session

    def cond(self, predicate: Any, then: Callable[..., Any], otherwise: Callable[..., Any], /, *args: Any) -> Any:
        """Call ``then(*args)`` if the predicate is true, else ``otherwise(*args)``.

        Both functions return tensors of the same shapes, dtypes and devices, perhaps in containers; global tensors get
        the layouts that the first function returns. The functions may write in place to their arguments, and to tensors
        outside. If the predicate has failed, neither function runs, and results and written tensors carry the error of
        the predicate.

        :param predicate: A tensor without dimensions.
        :param then: The function for a true predicate.
        :param otherwise: The function for a false predicate.
        :param args: The arguments of the functions.
        :returns: The function's results, in new tensors.
        :raises MetadataError: The functions return different shapes, dtypes or devices.
        """
        return run(self._core, ControlFlowCall(COND, predicate, (then, otherwise), args))

    def case(self, index: Any, functions: Sequence[Callable[..., Any]], /, *args: Any) -> Any:
        """Call ``functions[index](*args)``; otherwise as `cond`.

        :param index: An integer tensor without dimensions. Outside of the list, the results have a KernelIndexError.
        :param functions: The functions.
        :param args: The arguments of the functions.
        :returns: The function's results, in new tensors.
        :raises MetadataError: The functions return different shapes, dtypes or devices.
        """
        if not isinstance(functions, list | tuple):
            message = f"case: takes a list of functions, not {type(functions).__name__}"
            raise located(MetadataTypeError(message, op=CASE))
        return run(self._core, ControlFlowCall(CASE, index, tuple(functions), args))

    def while_loop(
        self,
        test: Callable[..., Any],
        body: Callable[..., Any],
        /,
        *state: Any,
        max_iterations: int | None = None,
    ) -> Any:
        """Run ``while test(*state): state = body(*state)``. The loop begins with a copy of the state.

        :param test: A function of the state that returns a tensor without dimensions.
        :param body: A function of the state that returns the next state, of the same shapes, dtypes and devices.
        :param state: Tensors, perhaps in containers.
        :param max_iterations: If the test is still true after this many rounds, the results carry a KernelError; the
            machine also has a limit (`iterations`).
        :returns: The final state: one value, or a tuple of several.
        :raises MetadataError: The body returns other shapes, dtypes or devices than it is given.
        """
        bound = ((MAX_ITERATIONS, as_bound(max_iterations)),)
        return run(self._core, ControlFlowCall(WHILE, None, (test, body), state, bound))

    def repeat(self, count: Any, body: Callable[..., Any], /, *state: Any) -> Any:
        """Run ``for _ in range(count): state = body(*state)``; otherwise as `while_loop`.

        :param count: An int, or an integer tensor without dimensions.
        :param body: A function of the state that returns the next state, of the same shapes, dtypes and devices.
        :param state: Tensors, perhaps in containers.
        :returns: The final state: one value, or a tuple of several.
        :raises MetadataError: The body returns other shapes, dtypes or devices than it is given.
        """
        return run(self._core, ControlFlowCall(REPEAT, count, (body,), state))


make_public(ControlFlow)


class ControlFlowCall(NamedTuple):
    """A step of control flow: the value that it decides by (`head`), the functions, their arguments, and its
    attributes."""

    op: str
    head: Any
    functions: tuple[Callable[..., Any], ...]
    args: tuple[Any, ...]
    attributes: tuple[tuple[str, Any], ...] = ()


def run(core: Any, asked: ControlFlowCall) -> Any:
    """Record a step of control flow, or run a routine that consists of it."""
    step = asked._replace(head=asked.head.item()) if isinstance(asked.head, np.integer) else asked
    step = step._replace(head=on_one_device(step.head)) if isinstance(step.head, Tensor) else step
    check(core, step)
    if step.op in (COND, CASE) and not isinstance(step.head, Tensor):
        return chosen(step.op, step.head, step.functions)(*step.args)
    capture = capture_of(core.outbox)
    if capture is not None:
        return record(capture, step)
    return core.flows.routine(core, step.op, step.functions, step.attributes)(step.head, *step.args)


def check(core: Core, step: ControlFlowCall) -> None:
    """MetadataError for invalid control flow."""
    op, head, functions = step.op, step.head, step.functions
    if not functions or len(functions) > FORMS[op].most:
        raise located(MetadataError(f"{op} takes 1 to {FORMS[op].most} functions, not {len(functions)}", op=op))
    for function in functions:
        if not callable(function):
            raise located(MetadataTypeError(f"{op} takes functions, not {type(function).__name__}", op=op))
    with LOCATED:
        if isinstance(head, Tensor):
            check_head(op, own(core, head)._known_meta())
        elif op == REPEAT and not (isinstance(head, int) and not isinstance(head, bool)):
            raise MetadataTypeError(f"{op}: the count must be an int or a tensor, not {head.__class__.__name__}", op=op)
    if FORMS[op].loops:
        for value in step.args:
            check_state(op, value)


def as_bound(most: Any) -> int | None:
    """The bound on the rounds of a loop as a plain number, which fixes a routine's number; else MetadataTypeError."""
    most = fixed(most)
    if most is None or (
        isinstance(most, Integral) and not isinstance(most, bool) and int(most) in range(MAX_ITERATIONS_LIMIT + 1)
    ):
        return None if most is None else int(most)
    raise located(MetadataTypeError(f"max_iterations must be an int of at least 0, not {shown(most)}", op=WHILE))


def check_state(op: str, value: Any) -> None:
    """MetadataTypeError unless every leaf is a tensor."""
    if is_number(value):
        message = f"{op}: the state is made of tensors, since numbers do not change in a run: asarray({value!r})"
        raise located(MetadataTypeError(message, op=op))


def chosen(op: str, head: Any, functions: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    """The function chosen by a plain predicate or index."""
    if op == COND:
        return functions[0 if head else 1]
    if not isinstance(head, int):
        raise located(
            MetadataTypeError(f"case: the index must be an int or a tensor, not {head.__class__.__name__}", op=op)
        )
    if not 0 <= head < len(functions):
        raise located(
            MetadataIndexError(f"case: the index {head} is out of range for {len(functions)} functions", op=op)
        )
    return functions[head]


def record(capture: Capture, step: ControlFlowCall) -> Any:
    """Record a step of control flow; returns its results, in the structure that the functions return."""
    op, head, functions, args, attributes = step
    draws, loops = capture.draws or Draws(capture), FORMS[op].loops
    if op == WHILE:
        functions = (partial(tested, functions[0]), *functions[1:])
    if loops:
        functions = (*functions[:-1], partial(laid_out, functions[-1], state_of(args)))
    blocks: list[BlockWithResults] = []
    for function in functions:
        like = partial(laid_like, function, blocks[0].value) if blocks and not loops else function
        blocks.append(capture_block(capture, like, args, draws, own=loops))
    values = [state_of(args), as_state(blocks[-1].value, len(args))] if loops else [block.value for block in blocks]
    check_structures(op, values)
    with LOCATED:
        results = capture.construct(
            op, head, arguments_of(args, own=loops), [each.block for each in blocks], attributes
        )
    return with_tensors(values[0], iter(results))


def tested(test: Callable[..., Any], *state: Any) -> Any:
    """The test's result, on one device."""
    found = test(*state)
    return on_one_device(found) if isinstance(found, Tensor) else found


def laid_out(body: Callable[..., Any], before: Any, *state: Any) -> Any:
    """The body's result, with global tensors in the layouts of the state before."""
    return laid_as(as_state(body(*state), len(state)), before)


def laid_like(function: Callable[..., Any], first: Any, *args: Any) -> Any:
    """The function's result, with global tensors in the layouts of the first function's."""
    return laid_as(function(*args), first)


def laid_as(value: Any, like: Any) -> Any:
    """The value, with the layouts of the members at the same positions."""
    if type(value) is GlobalTensor and type(like) is GlobalTensor:
        return value if value._form is like._form else value.to_global(like.placement, like.layout)
    found, others = None if isinstance(value, Tensor) else members(value), members(like)
    if found is None or others is None or len(found) != len(others):
        return value
    return rebuilt(value, [laid_as(one, other) for (_, one), (_, other) in zip(found, others, strict=True)])


def state_of(args: Sequence[Any]) -> Any:
    """The state as a loop returns it: a single value, or a tuple."""
    return args[0] if len(args) == 1 else tuple(args) if args else None


def as_state(value: Any, count: int) -> Any:
    """The result of a body in the same form: a tuple of several values, even if the body returns a list."""
    return tuple(value) if count > 1 and isinstance(value, list) else value


def arguments_of(args: Sequence[Any], *, own: bool) -> list[Tensor]:
    """The tensors among the arguments: each once, or with `own` each as a parameter of its own."""
    found = [tensor for value in args for tensor in plain_tensors_in(value, strict=False)]
    return found if own else list({id(tensor): tensor for tensor in found}.values())


class Flows:
    """Steps of control flow outside of routines, each kept as a routine for its functions.

    The object belongs to one session but does not keep it: a dropped session closes at once, unless it has such steps.
    """

    def __init__(self) -> None:
        self._routines: OrderedDict[Any, Routine[..., Any]] = OrderedDict()
        self._lock = RLock()

    def routine(
        self, core: Core, op: str, functions: tuple[Callable[..., Any], ...], attributes: Any
    ) -> Routine[..., Any]:
        """The routine of this step: `routine(head, *args)`."""
        from .routine import Routine

        key = (op, attributes, *map(identity, functions))
        with self._lock:
            routine = self._routines.get(key)
            if routine is None:
                function = partial(recorded, op, functions, attributes)
                vars(function)["__qualname__"] = f"{op} of {', '.join(map(name_of, functions))}"
                routine = self._routines[key] = Routine(core, function)
                if len(self._routines) > MAX_ROUTINES:
                    self._routines.popitem(last=False)
            self._routines.move_to_end(key)
        return routine


def recorded(op: str, functions: Any, attributes: Any, head: Any, *args: Any) -> Any:
    """The function of a routine for control flow outside of routines."""
    core = CURRENT.capture.core if CURRENT.capture is not None else None
    return run(core, ControlFlowCall(op, head, functions, args, attributes))


def identity(function: Any) -> Any:
    """A key that is equal for functions that do the same: lambdas of the same code, globals and cells."""
    if isinstance(function, MethodType):
        return (MethodType, identity(function.__func__), id(function.__self__))
    if type(function) is not FunctionType:
        return id(function)
    defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    return (function.__code__, id(function.__globals__), *map(id, (*(function.__closure__ or ()), *defaults)))


def name_of(function: Any) -> str:
    return str(getattr(function, "__qualname__", type(function).__name__))

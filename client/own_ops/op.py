"""An op that a user defines: called with tensors, it is issued like any op; called with arrays, it calls the
function.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import update_wrapper
from inspect import signature
from typing import Any, Generic, ParamSpec, TypeVar, overload

from ...interpreter.errors import MetadataTypeError
from ...interpreter.own_ops.definition import Stated, add_kernel, define_own
from ...interpreter.own_ops.signature import OUT, plain_function
from ...interpreter.schema.opdef import Scratch, Work
from ..calls.by_name import call
from ..locations.locations import located
from ..locations.tracebacks import make_public
from ..tensor.tensor import Tensor

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


class Op(Generic[P, R]):
    """An op of a user. Made by `tensord.op`; called like the function, with tensors of a session.

    `name`, `version`, `digest`: compared between client and machine. `session.call(op.name, ...)` is the same call, and
    takes `device=`.
    """

    def __init__(self, function: Callable[P, R], stated: Stated) -> None:
        self._function = function
        self._defined = define_own(function, stated)
        self._signature = signature(plain_function(function))
        update_wrapper(self, plain_function(function))

    @property
    def name(self) -> str:
        """The registered name: "package.function"."""
        return self._defined.op.name

    @property
    def version(self) -> str:
        """The version: as given, else the version of the package."""
        return self._defined.own.version

    @property
    def digest(self) -> str:
        """A digest of the name, version, signature, and the source of its functions."""
        return self._defined.own.digest

    def kernel(self, *kinds: str) -> Callable[[F], F]:
        """Define another function for devices of some kinds, before the op is first used: ``@op.kernel("cuda")``.

        The function takes the same operands and attributes, and may have an `out` even if the op's function has none.

        :param kinds: The kinds of devices.
        :returns: A decorator, which returns the function as it is.
        """

        def add(function: F) -> F:
            for kind in kinds:
                add_kernel(self._defined, kind, function)
            return function

        return add

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Issue the op; its results at once, as tensors. Without a tensor among the operands, call the function."""
        schema = self._defined.schema
        operands, attributes = self._sorted(args, kwargs)
        out = attributes.pop(OUT, None) if schema.fills else None
        tensor = next((each for each in operands if isinstance(each, Tensor)), None)
        if tensor is None:
            return self._function(*args, **kwargs)
        if out is not None and schema.outputs == 1:
            out = (out,)
        made = call(tensor._core, self._defined.op.name, operands, attributes or None, out=out)
        result: Any = made[0] if schema.outputs == 1 else tuple(made)
        return result  # type: ignore[no-any-return]

    def _sorted(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The operands that are given, and the attributes; MetadataTypeError if the function takes other arguments."""
        if kwargs.keys().isdisjoint(self._defined.schema.operands) and not any(each is None for each in args):
            operands, attributes = args, dict(kwargs)
        else:
            try:
                bound = self._signature.bind(*args, **kwargs)
            except TypeError as error:
                raise located(MetadataTypeError(f"{self.name}: {error}", op=self.name)) from None
            operands, attributes = bound.args, bound.kwargs
        while operands and operands[-1] is None:
            operands = operands[:-1]
        return operands, attributes

    def __repr__(self) -> str:
        return f"<op {' '.join(filter(None, (self.name, self.version)))}>"


make_public(Op, frozenset({"__call__"}))


@overload
def op(function: Callable[P, R], /) -> Op[P, R]: ...
@overload
def op(
    function: None = None,
    /,
    *,
    infer: Callable[..., Any] | None = None,
    name: str | None = None,
    version: str | None = None,
    elementwise: bool = False,
    dynamic: bool = False,
    bounded: bool = False,
    total: bool = False,
    layouts: Sequence[Any] | None = None,
    kinds: Collection[str] | None = None,
    work: Work | None = None,
    scratch: Scratch | None = None,
) -> Callable[[Callable[P, R]], Op[P, R]]: ...
def op(function: Any = None, /, **stated: Any) -> Any:
    """Define an op of a plain function against an array module (docs/own_ops.md).

    For example::

        @td.op(infer=lambda x, y, *, scale: x)
        def scaled_sum(x: td.Tensor, y: td.Tensor, *, scale: float = 1.0) -> td.Tensor:
            return (x + y) * scale

    The function is called with arrays of the device: NumPy's, or CuPy's. Positional parameters are operands, those
    after a `*` attributes. The function fills a parameter `out`; without one its result is copied.

    :param function: The function; without one, a decorator is returned.
    :param infer: A function from the operands' metas and the attributes to the meta of the result: a `Meta` or (shape,
        dtype), or a tuple of them. It is called in the client and in the machine.
    :param name: By default the name of the package and the function.
    :param version: By default the version of the package.
    :param elementwise: Each element of the result depends only on the elements of the operands at the same index, after
        broadcasting. The dtypes are promoted unless `infer` says otherwise.
    :param dynamic: A shape depends on the data; `infer` gives None for it.
    :param bounded: The time is bounded by the size of the operands, so that small calls may run at once, on the thread
        that drives the machine.
    :param total: The function raises for no data of these operands.
    :param layouts: Layouts of global tensors with which each device computes its part, such as ``[((td.split(0),
        td.broadcast), td.split(0))]``; otherwise each device computes the whole result.
    :param kinds: The kinds of devices that the function is for; all by default.
    :param work: The number of element operations, as a function of the metas of operands, the metas of results, and the
        attributes.
    :param scratch: The bytes of temporaries, as a function of the same arguments.
    :returns: The op, which is called with tensors and attributes.
    :raises TypeError: The signature is not possible for an op.
    :raises ValueError: The signature is not possible for an op, or the name is taken.
    """
    if function is not None:
        return Op(function, Stated(**stated))
    return lambda given: Op(given, Stated(**stated))

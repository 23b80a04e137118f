"""Contexts: a tensor that is made inside a context is released at its end, unless it was kept.

A `Context` is the public object; its `Scope` has the list of tensors (`core/scopes.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from numbers import Number
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import numpy as np

from ...interpreter.concurrency.blocks import ends_block
from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.errors import MetadataError, MetadataKeyError, MetadataTypeError, ProtocolError
from ...interpreter.types.sizes import size
from ...interpreter.wire.names import check_names
from ..core.scopes import Scope, Scopes, hand_over, open_from
from ..locations.locations import located
from ..locations.tracebacks import make_public
from ..tensor.operators import GLOBALS
from ..tensor.tensor import Tensor
from .checks import foreign, own

Value = TypeVar("Value")
LEAVES: Final = (str, bytes, Number, np.generic, np.ndarray, type(None))  # allowed beside tensors


class Context:
    """A block of code whose tensors are released when it ends, except those given to `c.keep`.

    `c["w"] = x` names a tensor, and `c["w"]` finds it, in this context or in one around it. Names keep their tensors
    alive until the context ends. ProtocolError for uses before the context is open or after its end.
    """

    __slots__ = ("__weakref__", "_scope")

    def __init__(self, scopes: Scopes) -> None:
        self._scope = Scope(scopes)

    @property
    def ended(self) -> bool:
        """Return whether the context has ended."""
        return self._scope.ended

    def __enter__(self) -> Self:
        scope = self._scope
        if scope.ended or scope.token is not None:
            state = "has ended" if scope.ended else "is open already"
            raise located(ProtocolError(f"this context {state}: make another one with session.context()"))
        try:
            with SHIELD:
                scope.open()
                SHIELD.hold(self)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    @ends_block
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with SHIELD:
            SHIELD.let_go(self)
            self._scope.end()

    def finalize(self) -> None:
        """End the context now, from any thread: its tensors and its names are released. Ending it twice is fine.

        Tensors that its block makes afterwards belong to the context around it. Raises nothing if the session has
        ended.
        """
        self._scope.end()

    def keep(self, kept: Value) -> Value:
        """Hand tensors to the context around this one, or to the session: ``return c.keep(loss)``.

        :param kept: A tensor, or dicts, lists, tuples, sets and dataclasses of tensors and plain values, nested to any
            depth.
        :returns: The same object.
        :raises ProtocolError: The context is not open.
        """
        successor = open_from(self._opened().parent)
        for tensor in [self._own(tensor) for tensor in tensors_in(kept)]:
            hand_over(tensor, successor)
        return kept

    def stats(self) -> dict[str, Any]:
        """Count what the context holds. Views count like other tensors, although they share memory.

        :returns: The number of `tensors`, the `bytes` of their elements where known, and the context's own `names`.
        """
        return self._scope.stats()

    # -- names -----------------------------------------------------------------------------------------------------

    def __setitem__(self, name: str, tensor: Tensor) -> None:
        """Name a tensor. If a context inside this one holds the tensor, this context holds it from now on."""
        scope = self._opened()
        check_name(name)
        for part in tensors_in(self._own(tensor)):
            hand_over(part, scope)
        scope.names[name] = tensor

    def __getitem__(self, name: str) -> Tensor:
        """The tensor of that name, here or in the nearest context around this one that has it; otherwise
        MetadataKeyError."""
        scope = self._opened()
        check_name(name)
        tensor = scope.find(name)
        if tensor is not None:
            return self._own(tensor)
        known = ", ".join(scope.all_names()) or "none"
        raise located(MetadataKeyError(f"there is no {name!r} in this context or around it (names: {known})"))

    def __delitem__(self, name: str) -> None:
        """Remove a name of this context itself; handles to its tensor stay."""
        scope = self._opened()
        check_name(name)
        if scope.names.pop(name, None) is None:
            raise located(MetadataKeyError(f"this context itself has no name {name!r}"))

    def __contains__(self, name: object) -> bool:
        """Return whether `c[name]` finds a tensor."""
        return name in self._opened().all_names()

    def __iter__(self) -> Iterator[str]:
        """The names that `c[name]` finds."""
        return iter(self.names())

    def names(self) -> list[str]:
        """Return the names that ``c[name]`` finds: those of this context and of the contexts around it.

        :returns: The names, sorted.
        :raises ProtocolError: The context is not open.
        """
        return self._opened().all_names()

    # -- checks ----------------------------------------------------------------------------------------------------

    def _opened(self) -> Scope:
        """The scope; ProtocolError unless it is open."""
        scope = self._scope
        if scope.ended or scope.token is None:
            state = "has ended" if scope.ended else "is not open yet: open it with a with block"
            raise located(ProtocolError(f"this context {state}"))
        return scope

    def _own(self, tensor: Any) -> Tensor:
        if isinstance(tensor, Tensor) and tensor._core.scopes is not self._scope.scopes:
            raise located(foreign(tensor))
        core: Any = getattr(tensor, "_core", None)
        return own(core, tensor)

    def __repr__(self) -> str:
        scope, held = self._scope, self.stats()
        state = "ended" if scope.ended else "not open yet" if scope.token is None else "open"
        names = f", names {', '.join(held['names'])}" if held["names"] else ""
        count = f"{held['tensors']} tensor{'s' * (held['tensors'] != 1)}"
        return f"<tensord.Context {state}, {count}, {size(held['bytes'])}{names}>"


make_public(Context)


def check_name(name: Any) -> None:
    """MetadataError unless the name is printable text, which errors and tables can show."""
    if not isinstance(name, str):
        raise located(MetadataTypeError(f"a name must be a string, not {type(name).__name__}"))
    try:
        check_names((name,))
    except MetadataError as error:
        raise located(error) from None


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors in a nested structure, in any order. MetadataTypeError for objects that might hide tensors."""
    tensors: list[Tensor] = []
    seen: set[int] = set()  # containers, which may contain themselves
    pending = [value]
    while pending:
        item = pending.pop()
        parts = parts_of(item)
        if type(item) in GLOBALS:
            pending += item._parts
        elif isinstance(item, Tensor):
            tensors.append(item)
        elif parts is not None:
            if id(item) not in seen:
                seen.add(id(item))
                pending += parts
        elif item is value or not isinstance(item, LEAVES):
            kinds = "a tensor, or dicts, lists, tuples, sets and dataclasses of tensors"
            raise located(MetadataTypeError(f"keep: takes {kinds}, not {type(item).__name__}"))
    return tensors


def parts_of(container: Any) -> Iterable[Any] | None:
    """The members of a container; None for anything else."""
    if isinstance(container, Mapping):
        return container.values()
    if isinstance(container, list | tuple | set | frozenset):
        return container
    if is_dataclass(container) and not isinstance(container, type):
        return [getattr(container, field.name) for field in fields(container)]
    return None

"""What the families of functions of a namespace share: the session whose tensors they take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from ..session import Session
    from ..tensor import Tensor


class Functions:
    """A family of functions, as methods: `_session` is where they issue their ops."""

    _session: Session

    def __init__(self, session: Session) -> None:
        self._session = session

    def __repr__(self) -> str:
        return f"<{type(self).__name__.lower()} functions of {self._session!r}>"

    def _maker(self) -> Session:
        """The session that makes new tensors."""
        return self._session

    def _call(self, name: str, *operands: Any, **attributes: Any) -> Tensor:
        """Issue an op with one result."""
        return self._session.call(name, operands, attributes or None)[0]

    def _call_all(self, name: str, *operands: Any, **attributes: Any) -> list[Tensor]:
        """Issue an op with several results."""
        return self._session.call(name, operands, attributes or None)

    def __copy__(self) -> Self:
        """Itself, as with modules' functions: who copies an object with such a function in it keeps the function."""
        return self

    def __deepcopy__(self, _memo: object) -> Self:
        return self

    def __reduce__(self) -> Any:
        raise TypeError("functions of a session cannot be pickled; those of the module tensord.array_api can")

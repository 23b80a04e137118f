"""The fields of every handle: its id, its meta and home as far as known, and the core of its session.

The rooms of the client read and write these fields directly; accessors would cost each op further calls.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from ...interpreter.concurrency.finalisers import redone
from ...interpreter.errors import ProtocolError
from ...interpreter.types.meta import Meta
from ..core.core import Core
from ..core.scopes import Handles
from ..locations.locations import located
from ..locations.tracebacks import make_public
from ..transport.replies import Reply


class ReleasedMeta:
    """In place of the meta of a released handle, so that no signature fits. Its text says why the tensor is gone."""

    __slots__ = ()

    def __str__(self) -> str:
        return "was released"


RELEASED: Any = ReleasedMeta()


class Handle:
    """A handle to a tensor. `_id`: the tensor's id, negative once it was released; `_meta`: its meta, None while that
    depends on data that are not computed yet. `_reading`: what is known of its value (`reading`)."""

    __slots__ = ("__weakref__", "_core", "_holder", "_home", "_id", "_meta", "_probe", "_reading")
    _core: Core
    _holder: Handles | None  # the list of its context, if it was made in one
    _probe: Reply  # set by the first question whether the tensor is ready
    _reading: Any

    def __init__(self, core: Core, id_: int, meta: Meta | None, home: str) -> None:
        self._core = core
        self._id = id_
        self._meta = meta
        self._home = home
        self._reading = None
        if core.opened and (scope := core.innermost()) is not None:
            scope.hold(self)

    @redone
    def __del__(self) -> None:
        # May run in any thread, inside any lock, so it does nothing else.
        try:
            if self._id > 0:
                self._core.release(self._id)
        except AttributeError:  # `__init__` has not finished
            pass

    # -- metadata ----------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape. If the shape depends on data, waits for them, and raises the tensor's error."""
        return self._known_meta().shape

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The dtype; waits like `shape`."""
        return self._known_meta().dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions; waits like `shape`."""
        return self._known_meta().ndim

    @property
    def size(self) -> int:
        """Number of elements; waits like `shape`."""
        return self._known_meta().size

    @property
    def nbytes(self) -> int:
        """Bytes of its elements; waits like `shape`."""
        return self._known_meta().nbytes

    @property
    def device(self) -> str:
        """The home of the tensor: ops on the tensor run there by default."""
        return self._home

    def _known_meta(self) -> Meta:
        """The meta; waits like `shape`."""
        raise NotImplementedError

    def release(self) -> None:
        """Release the tensor now. Using the handle afterwards is an error; releasing it twice is not."""
        self._let_go(RELEASED)

    def _let_go(self, gone: Any) -> None:
        """Release the tensor, unless that was done. `gone` says why."""
        id_ = self._id
        if id_ > 0:  # no interruption up to the call: a context that ends in another thread may come here, too
            self._id = -id_
            self._meta = gone
            self._reading = None
            self._core.release(id_)

    def _living(self) -> Self:
        """The handle; ProtocolError if it was released."""
        if self._id <= 0:
            self._check_living()
        return self

    def _check_living(self) -> None:
        """ProtocolError if the handle was released. Called if `_id` is not that of a living tensor."""
        if self._id < 0:
            raise located(ProtocolError(f"tensor {-self._id} {self._meta}"))


make_public(Handle)

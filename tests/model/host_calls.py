"""Host calls in random programs: the results of their functions, and clients that return these at random times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensord.interpreter.errors import KernelError, TensordError

WAYS = FINE, RAISES, WRONG = ("fine", "raises", "wrong")  # in which a function ends


def function_of(metas: Sequence[tuple[tuple[int, ...], str]], way: str) -> Any:
    """A function whose results depend on its operands alone."""

    def function(*arrays: Any) -> list[Any]:
        if way == RAISES:
            raise KernelError("host_call: the function failed")
        total = sum(
            int(np.nan_to_num(array.astype("complex128").real, posinf=3, neginf=5).sum() % 11) for array in arrays
        )
        shapes = [(*shape, 2) if way == WRONG else shape for shape, _ in metas]
        return [
            (np.arange(np.prod(shape, dtype=int)).reshape(shape) % 3 + total + n).astype(dtype)
            for n, (shape, (_, dtype)) in enumerate(zip(shapes, metas, strict=True))
        ]

    return function


class Asked:
    """The unanswered host calls, by session and number."""

    def __init__(self) -> None:
        self.calls: dict[tuple[int, int], tuple[Any, Any]] = {}
        self.returned = 0

    def take(self, session: int, called: Any) -> None:
        """Note a host call of a session, or that the call has ended."""
        if called.values is None:
            self.calls.pop((session, called.number), None)
        else:
            self.calls[session, called.number] = (called.function, called.values)

    def give(self, engine: Any, sessions: Sequence[Any], which: int, *, twice: bool = False) -> None:
        """Return from one of the calls. A second answer must change nothing."""
        (session, number), (function, values) = list(self.calls.items())[which]
        del self.calls[session, number]
        self.returned += 1
        arrays: list[Any] = []
        error: TensordError | None = None
        try:
            arrays = function(*values)
        except TensordError as failure:
            error = failure
        for _ in range(2 if twice else 1):
            engine.returned(sessions[session], number, error, arrays)

"""Random tensors: `session.random`. The values depend on the seed and the number of the call, never on scheduling.

Calls are numbered here, where they are made: each method puts the seed and the session's next number into its
instruction, so that the machine keeps no state of random numbers, and the same program draws the same values on any
device, embedded or on a daemon. The threads of one session share the numbers: a thread draws fixed values only if it
passes seeds of its own.
"""

from __future__ import annotations

import itertools
import os
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ...interpreter.errors import MetadataTypeError, metadata_error
from ...interpreter.ops.random import check_seed
from ..locations.locations import located
from ..outbox.current import capture_of, refuse_captured
from ..tensor.operators import OPERANDS
from ..tensor.tensor import Tensor
from .functions import Functions

if TYPE_CHECKING:
    from ..session.session import Session

    DType: TypeAlias = np.dtype[np.generic] | type[np.generic]

Shape: TypeAlias = int | tuple[int, ...]


class RandomState:
    """The seed of one session, and the number of calls that it has served, for all threads.

    Both are one value, so that no call ever gets the new seed with an old number. Without a seed, the operating system
    gives one.
    """

    __slots__ = ("_stream",)

    def __init__(self, seed: int | None = None) -> None:
        self.seed(int.from_bytes(os.urandom(8)) if seed is None else seed)

    def seed(self, seed: int) -> None:
        """Start again, at call 0 of another seed; MetadataError unless the seed is an int in [0, 2**64)."""
        self._stream = (as_seed(seed), itertools.count())

    def next(self) -> tuple[int, int]:
        """Seed and number of the next call."""
        seed, calls = self._stream
        return seed, next(calls)

    def take(self, count: int) -> tuple[int, list[int]]:
        """Seed and numbers of the next calls, all of one seed."""
        seed, calls = self._stream
        return seed, [next(calls) for _ in range(count)]


class Random(Functions):
    """Draws tensors for a session, each from the next call of the session's seed; or, given `seed=`, from it alone.

    A seed is an int in [0, 2**64). Tensors are made on `device`, by default the first one. MetadataError for parameters
    that define no distribution.
    """

    def __init__(self, session: Session, state: RandomState) -> None:
        super().__init__(session)
        self._state = state

    def seed(self, seed: int, /) -> None:
        """Start again from this seed. A session starts with a random seed, which cannot be read."""
        refuse_captured(self._session._outbox, "the seed cannot be set (seed= is for single calls)")
        self._state.seed(seed)

    def uniform(
        self,
        shape: Shape = (),
        *,
        low: float = 0.0,
        high: float = 1.0,
        dtype: DType | None = None,
        device: str | None = None,
        seed: int | None = None,
    ) -> Tensor:
        """Uniformly distributed in [low, high): floating-point, float64 by default."""
        return self._draw("uniform", seed, device, dtype, shape=shape, low=low, high=high)

    def normal(
        self,
        shape: Shape = (),
        *,
        mean: float = 0.0,
        std: float = 1.0,
        dtype: DType | None = None,
        device: str | None = None,
        seed: int | None = None,
    ) -> Tensor:
        """Normally distributed: floating-point or complex, float64 by default.

        Real and imaginary part of a complex number are independent, with half of the variance each.
        """
        return self._draw("normal", seed, device, dtype, shape=shape, mean=mean, std=std)

    def integers(
        self,
        low: int,
        high: int | None = None,
        /,
        shape: Shape = (),
        *,
        dtype: DType | None = None,
        device: str | None = None,
        seed: int | None = None,
    ) -> Tensor:
        """Integers in [low, high), or with one bound in [0, low), all equally likely; int64 by default.

        OverflowError if the dtype does not hold all of them.
        """
        first, end = (0, low) if high is None else (low, high)
        return self._draw("integers", seed, device, dtype, low=first, high=end, shape=shape)

    def bernoulli(
        self, p: float = 0.5, /, shape: Shape = (), *, device: str | None = None, seed: int | None = None
    ) -> Tensor:
        """Bool, True with probability p."""
        return self._draw("bernoulli", seed, device, None, p=p, shape=shape)

    def permutation(self, x: int | Tensor, /, *, seed: int | None = None, device: str | None = None) -> Tensor:
        """The integers in [0, x) in random order, as int64; or the rows of the tensor x in that same order.

        The rows are those along the first axis; the result is on x's device unless another is given.
        """
        if isinstance(x, Tensor):
            return self._session.call("permute", (x, *self._stream(seed)), device=device)[0]
        return self._draw("permutation", seed, device, None, n=x)

    def _draw(self, name: str, seed: int | None, device: str | None, dtype: DType | None, **attributes: Any) -> Tensor:
        if dtype is not None:
            attributes["dtype"] = dtype
        return self._session.call(name, self._stream(seed), attributes, device=device)[0]

    def _stream(self, seed: int | None) -> tuple[Any, ...]:
        capture = capture_of(self._session._outbox)
        if capture is not None and (seed is None or is_symbolic(seed)):
            return capture.draw() if seed is None else (seed,)
        return self._state.next() if seed is None else (as_seed(seed),)


def is_symbolic(seed: Any) -> bool:
    """Is it an int that each run of a routine computes?"""
    return type(seed) in OPERANDS and isinstance(seed, int)


def as_seed(seed: Any) -> int:
    """The seed as a Python int; MetadataError unless it is an int in [0, 2**64)."""
    if isinstance(seed, bool) or not isinstance(seed, Integral):
        raise located(MetadataTypeError(f"seed: expected an int, got {type(seed).__name__}", op="seed"))
    found = int(seed)
    try:
        check_seed(found, (), {})
    except ValueError as error:
        raise located(metadata_error(error, f"seed: {error}", "seed")) from None
    return found

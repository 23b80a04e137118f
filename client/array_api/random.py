"""Random tensors: `session.random`. The values depend on the seed and the number of the call, never on scheduling.

The client numbers the calls: each method puts the seed and the session's next number into its instruction. So the
machine keeps no state of random numbers, and the same program draws the same values on any device, embedded or on a
daemon. The threads of one session share the numbers: a thread draws reproducible values only if it passes its own
seeds.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from ..calls.by_name import call
from ..calls.checks import Device
from ..core.core import as_seed
from ..outbox.current import capture_of, refuse_captured
from ..tensor.operators import OPERANDS
from ..tensor.tensor import Tensor
from .creation import DType
from .functions import Functions

Shape: TypeAlias = int | tuple[int, ...]


class Random(Functions):
    """Draws tensors for a session, each from the next call of the session's seed; or, given `seed=`, from it alone.

    A seed is an int in [0, 2**64). Tensors are made on `device`, by default the first one. MetadataError for parameters
    that define no distribution.
    """

    def seed(self, seed: int, /) -> None:
        """Start again from this seed. A session starts with a random seed, which cannot be read."""
        refuse_captured(self._core.outbox, "the seed cannot be set (seed= is for single calls)")
        self._core.random_state.seed(seed)

    def uniform(
        self,
        shape: Shape = (),
        *,
        low: float = 0.0,
        high: float = 1.0,
        dtype: DType | None = None,
        device: Device | None = None,
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
        device: Device | None = None,
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
        device: Device | None = None,
        seed: int | None = None,
    ) -> Tensor:
        """Integers in [low, high), or with one bound in [0, low), all equally likely; int64 by default.

        OverflowError if the dtype does not hold all of them.
        """
        first, end = (0, low) if high is None else (low, high)
        return self._draw("integers", seed, device, dtype, low=first, high=end, shape=shape)

    def bernoulli(
        self, p: float = 0.5, /, shape: Shape = (), *, device: Device | None = None, seed: int | None = None
    ) -> Tensor:
        """Bool, True with probability p."""
        return self._draw("bernoulli", seed, device, None, p=p, shape=shape)

    def permutation(self, x: int | Tensor, /, *, seed: int | None = None, device: Device | None = None) -> Tensor:
        """The integers in [0, x) in random order, as int64; or the rows of the tensor x in that same order.

        The rows are the slices along the first axis; the result is on x's device unless another is given.
        """
        if isinstance(x, Tensor):
            return call(self._core, "permute", (x, *self._stream(seed)), device=device)[0]
        return self._draw("permutation", seed, device, None, n=x)

    def _draw(
        self, name: str, seed: int | None, device: Device | None, dtype: DType | None, **attributes: Any
    ) -> Tensor:
        if dtype is not None:
            attributes["dtype"] = dtype
        return call(self._core, name, self._stream(seed), attributes, device=device)[0]

    def _stream(self, seed: int | None) -> tuple[Any, ...]:
        capture = capture_of(self._core.outbox)
        symbolic = type(seed) in OPERANDS and isinstance(seed, int)  # an int that each run of a routine computes
        if capture is not None and (seed is None or symbolic):
            return capture.draw() if seed is None else (seed,)
        return self._core.random_state.next() if seed is None else (as_seed(seed),)

"""The seed of a session, and the numbers of its random calls. `array_api/random` says what they are for."""

from __future__ import annotations

import itertools
import os
from numbers import Integral
from typing import Any

from ...interpreter.errors import MetadataTypeError, metadata_error
from ...interpreter.ops.random import check_seed
from ..locations.locations import located


class RandomState:
    """The seed of one session, and the number of calls that it has served, for all threads.

    Both are one value, so that no call ever gets the new seed with an old number. Without a seed, the operating system
    gives one.
    """

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

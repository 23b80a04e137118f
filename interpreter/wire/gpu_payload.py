"""An upload's array in the memory of a GPU. It is never sent: its sender and the machine are one process."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class GpuPayload(NamedTuple):
    """A packed CuPy array without another user, which is complete once `event` has passed."""

    array: Any
    event: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    @property
    def dtype(self) -> np.dtype[np.generic]:
        found: np.dtype[np.generic] = self.array.dtype
        return found

    @property
    def nbytes(self) -> int:
        return int(self.array.nbytes)

"""Unique ids of NCCL as CuPy has them: bytes, and before version 14 tuples of signed numbers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tensord.streams.cuda.nccl import new_id, rank_of
from tensord.streams.library import ID_BYTES

from ..fake_cuda.gpu import Gpu
from ..fake_cuda.module import installed

OLD = tuple(range(-ID_BYTES // 2, ID_BYTES // 2))


class OldCommunicator:
    """A rank as CuPy 13 makes it."""

    def __init__(self, ndev: int, commId: tuple[int, ...], rank: int) -> None:  # noqa: N803 - CuPy's name
        if type(commId) is not tuple:
            raise TypeError(f"Argument 'commId' has incorrect type (expected tuple, got {type(commId).__name__})")
        self.made = (ndev, commId, rank)


@pytest.mark.parametrize("given", [OLD, bytes(number & 255 for number in OLD)])
def test_travel_as_bytes(monkeypatch: pytest.MonkeyPatch, given: object) -> None:
    with installed(Gpu(nccl=True)):
        import cupy

        monkeypatch.setattr(cupy.cuda.nccl, "get_unique_id", lambda: given)
        found = new_id()
    assert found == bytes(number & 255 for number in OLD)
    assert rank_of(SimpleNamespace(NcclCommunicator=OldCommunicator), 2, found, 1).made == (2, OLD, 1)
    assert rank_of(SimpleNamespace(NcclCommunicator=lambda *given: given), 2, found, 1) == (2, found, 1)

"""Arrays in files: their elements in their order, piece by piece."""

from __future__ import annotations

import numpy as np
import pytest

from tensord.interpreter.errors import FileError
from tensord.interpreter.types.meta import Meta
from tensord.streams.disk import stored
from tensord.streams.disk.stored import StoredArray, Stretch, pieces

from ...each_case import each_case

PIECE = 96  # bytes, in place of some MiB
SPAN = 64  # bytes, in place of 64 KiB: longer ranges are read in halves


class InMemory(Stretch):
    """Bytes as of a file; every read is noted."""

    __slots__ = ("content", "reads")

    def __init__(self, content: bytes, *, has_checksum: bool = False) -> None:
        super().__init__(len(content), has_checksum=has_checksum)
        self.content = content
        self.reads: list[int] = []

    def read(self, target: memoryview, offset: int) -> None:
        self.reads.append(len(target))
        target[:] = self.content[offset : offset + len(target)]


class Damaged(InMemory):
    """A file whose checksum fails after its last bytes."""

    def in_order(self):
        read = super().in_order()

        def checked(target: memoryview) -> None:
            read(target)
            if sum(self.reads) == self.nbytes:
                raise FileError("it has another checksum")

        return checked


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(stored, "STORE_PIECE_BYTES", PIECE)
    monkeypatch.setattr(stored, "SPAN_BYTES", SPAN)


def joined(array):
    """All pieces joined, after a check that only arrays packed in memory come as one large piece."""
    found = []
    for piece in pieces(array):
        assert piece.flags.c_contiguous
        assert piece.nbytes <= PIECE or np.shares_memory(piece, array)
        found.append(piece.tobytes())
    return b"".join(found)


def views_of(base):
    yield from (base, base[1:], base[:, 2:5], base.transpose(2, 0, 1), base[::-1, :, ::-2], base[2, 3], base[:1])
    yield from (base[1, 2, 3, ...], np.broadcast_to(base[:, :1, :1], (5, 40, 2)), base[:0], base[None, :, ::2])


@each_case("number", range(11))
def test_the_pieces_of_an_array_are_its_elements_in_order(number):
    base = np.random.default_rng(number).random((5, 7, 6))
    view = list(views_of(base))[number]
    stretch = InMemory(base.tobytes())
    offset = view.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    strides = None if view.flags.c_contiguous else view.strides
    there = StoredArray(stretch, Meta.of(view.shape, view.dtype), offset, strides)
    assert joined(there) == joined(view) == view.tobytes()


def test_packed_bytes_are_read_once():
    content = np.random.default_rng(1).bytes(1000)
    stretch = InMemory(content, has_checksum=True)
    assert joined(StoredArray(stretch, Meta.of((125,), "float64"))) == content
    assert sum(stretch.reads) == 1000


def test_no_bytes_are_not_read():
    class Gone(InMemory):
        def opened(self) -> Stretch:
            raise FileError("gone")

    assert joined(StoredArray(Gone(b""), Meta.of((0, 3), "float64"), 0, (8, 8))) == b""


@pytest.mark.parametrize(("shape", "strides"), [((125,), None), ((5, 25), (8, 40))])
def test_damage_is_noticed_before_the_last_piece_is_given(shape, strides):
    """A reader that writes the pieces elsewhere has not written all of them by then, and can undo the rest."""
    stretch = Damaged(bytes(1000), has_checksum=True)
    given: list[int] = []
    with pytest.raises(FileError, match="checksum"):
        given.extend(piece.nbytes for piece in pieces(StoredArray(stretch, Meta.of(shape, "float64"), 0, strides)))
    assert sum(given) < 1000

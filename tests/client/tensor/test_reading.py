"""Reading a tensor piece by piece gives the same values as fetching each piece, with any writes in between."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensord as td
from tensord.client.calls.calls import Calls
from tensord.client.requests.answers import Answers
from tensord.client.tensor import reading

from ...each_case import each_case


@contextmanager
def counted(session: td.Session) -> Iterator[list[int]]:
    """The tensors that are fetched inside, by id."""
    fetched: list[int] = []
    fetch = Answers.fetch

    def note(answers: Answers, tensor: td.Tensor) -> np.ndarray:
        if answers is session._core.answers:
            fetched.append(tensor._id)
        return fetch(answers, tensor)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Answers, "fetch", note)
        yield fetched


def test_the_second_piece_brings_the_whole_and_the_others_nothing(session):
    values = np.arange(12.0).reshape(3, 4)
    x = session.asarray(values)
    with counted(session) as fetched:
        pieces = [x[row, column].item() for row in range(3) for column in range(4)]
        rows = [x[row].tolist() for row in (0, 1, -1)]
        assert x[::-1, None][0].tolist() == values[::-1, None][0].tolist()
    assert pieces == values.ravel().tolist()
    assert rows == values[[0, 1, -1]].tolist()
    assert len(fetched) == 2
    assert fetched[1] == x._id


def test_a_large_tensor_is_fetched_piece_by_piece(session):
    x = session.asarray(np.zeros(reading.MAX_WHOLE_BYTES // 8 + 1))
    with counted(session) as fetched:
        assert [x[i].item() for i in range(4)] == [0.0] * 4
    assert x._id not in fetched
    assert len(fetched) == 4


def test_what_is_read_is_the_readers_own(session):
    x = session.asarray(np.zeros((3, 3)))
    for _ in range(3):
        row = x[1].numpy()
        assert row.tolist() == [0.0] * 3
        row += 1


WRITES = {
    "setitem": lambda _s, x, value: x.__setitem__((..., 0), value),
    "by a tensor": lambda s, x, value: x.__setitem__(s.asarray([0]), value),
    "in place": lambda _s, x, value: x.__iadd__(value),
    "out=": lambda s, x, value: s.call("add", [x, value], out=[x]),
}


@each_case("way", WRITES)
def test_after_a_write_pieces_are_new_and_those_taken_before_are_old(session, way):
    x, model = session.asarray(np.arange(6.0).reshape(2, 3)), np.arange(6.0).reshape(2, 3)
    known = [x[0, 0], x[0, 1], x[1]]
    assert [piece.numpy().tolist() for piece in known] == [0.0, 1.0, [3.0, 4.0, 5.0]]
    unread = x[0]
    WRITES[way](session, x, 7.0)
    model = {"setitem": lambda: put(model, (..., 0)), "by a tensor": lambda: put(model, [0])}.get(
        way, lambda: model + 7
    )()
    for _ in range(3):
        assert x[0, 0].item() == model[0, 0]
        assert x[0].tolist() == model[0].tolist()
        assert x[1].tolist() == model[1].tolist()
    assert unread.tolist() == [0.0, 1.0, 2.0]
    assert [piece.numpy().tolist() for piece in known] == [0.0, 1.0, [3.0, 4.0, 5.0]]


def put(array: np.ndarray, index: Any) -> np.ndarray:
    """A copy with sevens there."""
    array = array.copy()
    array[index] = 7.0
    return array


def test_a_piece_that_is_written_to_is_its_own_value(session):
    x = session.asarray(np.zeros((2, 2)))
    piece = x[0]
    assert [x[1, 0].item(), x[1, 1].item(), piece.tolist()] == [0.0, 0.0, [0.0, 0.0]]
    piece += 5
    assert piece.tolist() == [5.0, 5.0]
    assert [piece[0].item(), piece[1].item(), piece[0].item()] == [5.0, 5.0, 5.0]
    assert x[0].tolist() == [0.0, 0.0]


def test_what_another_session_may_write_to_is_never_remembered(make_session):
    mine, theirs = make_session("local:reading"), make_session("local:reading", devices=None)
    x = mine.asarray(np.zeros(3))
    before = x[0]
    assert [x[i].item() for i in range(3)] == [0.0] * 3
    mine.publish("x", x)
    for value in (1.0, 2.0, 3.0):
        y = theirs.lookup("x")
        theirs.call("full", [value], {"shape": (3,)}, out=[y])
        theirs.sync()
        assert [x[i].item() for i in range(3)] == [value] * 3
        assert [y[i].item() for i in range(3)] == [value] * 3
        x += 0.0  # a write of our own does not make it ours
    assert before.item() == 0.0


def test_nothing_is_kept_alive(session):
    x = session.asarray(np.zeros(3))
    gone = weakref.ref(x)
    piece = x[1]
    del x
    gc.collect()
    assert gone() is None
    assert [piece.item(), piece.item(), piece.item()] == [0.0] * 3


def test_reading_a_piece_of_what_failed_raises_its_error(session):
    x = session.xp.linalg.inv(session.asarray(np.zeros((2, 2))))
    for _ in range(3):
        with pytest.raises(td.KernelError, match="ingular"):
            x[0].numpy()


def test_a_released_tensor_is_not_fetched_for_its_pieces(session):
    x = session.asarray(np.arange(3.0))
    pieces = [x[i] for i in range(3)]
    x.release()
    assert [piece.item() for piece in pieces] == [0.0, 1.0, 2.0]


def test_pieces_of_pieces_may_be_as_deep_as_one_likes(session):
    """A piece's memory does not grow with the depth of its pieces."""
    x = session.asarray(np.arange(4.0))
    for _ in range(1200):  # more than Python recurses
        x = x[::-1]
    gc.collect()
    before = sum(isinstance(each, reading.TensorReading) for each in gc.get_objects())
    for _ in range(300):
        x = x[::-1]
    assert sum(isinstance(each, reading.TensorReading) for each in gc.get_objects()) <= before + reading.MAX_DEPTH
    assert x.numpy().tolist() == [0.0, 1.0, 2.0, 3.0]
    with counted(session) as fetched:
        assert [x[i].item() for i in range(4)] == [0.0, 1.0, 2.0, 3.0]
    assert len(fetched) <= 3


def test_a_queue_that_is_read_to_its_end(session):
    x, heads = session.asarray(np.arange(200.0)), []
    while x.size:
        heads.append(x[0])
        x = x[1:]
    assert [head.item() for head in heads] == list(range(200))


def test_a_piece_that_was_taken_while_a_thread_wrote_is_what_the_machine_has(session, monkeypatch):
    x = session.asarray(np.zeros(3))
    assert [x[i].item() for i in range(3)] == [0.0] * 3
    operate = Calls.operate

    def write_first(*arguments: Any, **named: Any) -> td.Tensor:
        session.call("add", [x, 1.0], out=[x])
        return operate(*arguments, **named)

    monkeypatch.setattr(Calls, "operate", write_first)
    piece = x[0]
    monkeypatch.undo()
    assert piece.item() == (piece + 0).item() == 1.0


def test_who_looks_at_what_is_being_published_does_not_begin_to_remember_it(session):
    x = session.asarray(np.zeros(3))
    reading.mark_shared(x)
    assert reading._begun(x) is None
    assert x._reading is reading.SHARED


def known(session: td.Session) -> td.Tensor:
    """A piece of a tensor whose value has come."""
    x = session.asarray(np.arange(3.0))
    assert [x[i].item() for i in range(3)] == [0.0, 1.0, 2.0]
    piece = x[1]
    session.sync()
    return piece


def test_a_known_piece_is_no_way_around_a_cancellation(session):
    piece = known(session)
    session.cancel()
    late = piece[...]
    for each in (piece, late):
        with pytest.raises(td.CancelledError):
            each.numpy()
    session.restart()
    assert piece.item() == 1.0
    for _ in range(3):
        with pytest.raises(td.CancelledError):
            late.numpy()
    assert [piece[...].item() for _ in range(3)] == [1.0] * 3


def test_a_known_piece_cannot_be_read_inside_an_atomic_block_nor_after_the_end(session):
    piece = known(session)
    with session.atomic(), pytest.raises(td.ProtocolError, match="inside atomic"):
        piece.numpy()
    assert piece.item() == 1.0
    session.close()
    with pytest.raises(td.ConnectionLost):
        piece.numpy()


@settings(max_examples=20)
@given(st.lists(st.tuples(st.sampled_from("rrrrtwiv"), st.integers(0, 3), st.integers(0, 2)), max_size=25))
def test_any_order_of_reads_and_writes_gives_what_numpy_gives(steps):
    with td.connect("local", devices=["cpu:0"]) as session:
        tensors, models = [session.asarray(np.arange(12.0).reshape(4, 3))], [np.arange(12.0).reshape(4, 3)]
        pieces = []
        for number, (step, row, column) in enumerate(steps):
            x, model = tensors[number % len(tensors)], models[number % len(tensors)]
            if step == "r":
                assert x[row, column].item() == model[row, column]
            elif step == "t":
                pieces.append((x[row], model[row].copy()))
            elif step == "w":
                x[row, column], model[row, column] = float(number), number
            elif step == "i":
                x += 1.0
                model += 1
            else:
                tensors.append(x[::-1])
                models.append(model[::-1].copy())
        for piece, expected in pieces:
            np.testing.assert_array_equal(piece.numpy(), expected)
        for x, model in zip(tensors, models, strict=True):
            np.testing.assert_array_equal([x[row].numpy() for row in range(4)], model)


def test_a_thread_that_writes_leaves_no_stale_piece_behind(session):
    """Every piece of one turn has the value of that turn's writes, or of a later one; never of an earlier one."""
    x = session.asarray(np.zeros(4))
    written, stop = [0.0], threading.Event()

    def write() -> None:
        while not stop.is_set():
            session.call("add", [x, 1.0], out=[x])
            written[0] += 1.0

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(4):
            least = written[0]
            assert all(x[i].item() >= least for i in range(4))
    finally:
        stop.set()
        writer.join()
    assert [x[i].item() for i in range(4)] == [written[0]] * 4

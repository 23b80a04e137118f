"""RETURN on a daemon: accepted and refused answers to a host call."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.wire.segments import MemorySegment

from ...daemon import Daemon
from ...each_case import each_case
from .raw_client import EFFECT, Failed, Gone, RawClient, Refused, host_text

RETURN, CALL = 7, 6
LARGE = 1 << 14  # elements


@pytest.fixture
def connect(daemon: Daemon) -> Iterator[Callable[..., RawClient]]:
    opened: list[RawClient] = []

    def connected(**options: Any) -> RawClient:
        opened.append(RawClient(daemon.address).hello(**options))
        return opened[-1]

    yield connected
    for client in opened:
        client.close()


def called(client: RawClient, *ids: int, metas: Any = (((1,), "float64"),)) -> tuple[int, list[int], Any]:
    """Ask for a host call: its number, the ids of its results, and the answer."""
    outputs = [next(client.ids) for _ in metas]
    number, values = client.ask(EFFECT, ids, 0, None, ..., 0, False, False, outputs, metas, "cpu:0")
    return number, outputs, values


def wire(array: Any) -> tuple[Any, ...]:
    """A small array, in the header."""
    return (array.dtype.name, array.shape, array.tobytes())


def test_a_client_written_from_the_page_answers_a_call(connect: Callable[..., RawClient]) -> None:
    client = connect()
    number, (y,), values = called(client, client.upload([2.0]))
    assert [(name, shape) for name, shape, *_ in values] == [("float64", [1])]
    client.send([RETURN, number, None, [wire(np.array([5.0]))]])
    assert client.fetch(y).tolist() == [5.0]


def test_a_large_result_comes_in_a_frame_or_in_a_memory_file(connect: Callable[..., RawClient]) -> None:
    client, values = connect(host=host_text()), np.arange(float(LARGE))
    number, (y,), _ = called(client, metas=(((LARGE,), "float64"),))
    client.send([RETURN, number, None, [("float64", (LARGE,), 0)]], values.tobytes())
    number, (z,), _ = called(client, metas=(((LARGE,), "float64"),))
    segment = MemorySegment.create(values.nbytes, 0)
    np.ndarray(LARGE, np.float64, segment)[:] = values
    client.send([RETURN, number, None, [("float64", (LARGE,), (segment.fd, segment.size))]])
    for id_ in (y, z):
        assert np.array_equal(client.fetch(id_), values)
    assert fcntl.fcntl(segment.fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SEAL


@each_case(
    "error",
    [
        ["KernelError", "host_call: OSError: no", None, None, None, None],
        ["KernelValueError", "host_call: OSError: no", "x", "y", 7, ["OSError", "OSError", "no"]],
        ["SystemExit", "host_call: OSError: no", None, None, None, 7],
    ],
)
def test_an_error_is_that_of_the_results(connect: Callable[..., RawClient], error: Any) -> None:
    client = connect()
    number, (y,), _ = called(client)
    client.send([RETURN, number, error, []])
    with pytest.raises(Failed, match=r"Kernel.*: host_call: OSError: no"):
        client.fetch(y)


@each_case("kind", [[], [wire(np.zeros(2))], [wire(np.zeros(1, np.int8))], [wire(np.zeros(1))] * 3])
def test_a_result_of_another_meta_fails_the_call_and_ends_nothing(connect: Callable[..., RawClient], kind: Any) -> None:
    client = connect()
    number, (y,), _ = called(client)
    client.send([RETURN, number, None, kind])
    with pytest.raises(Failed, match="host_call: the function returned"):
        client.fetch(y)


def test_what_comes_twice_or_for_no_call_of_the_session_is_dropped(connect: Callable[..., RawClient]) -> None:
    client, stranger = connect(), connect()
    number, (y,), _ = called(client)
    for one in (number + 1, 0, 1 << 62):
        client.send([RETURN, one, None, [("no dtype", "no shape", None)]])
    stranger.send([RETURN, number, None, [wire(np.array([666.0]))]])
    stranger.sync()
    client.send([RETURN, number, None, [wire(np.array([5.0]))]])
    client.send([RETURN, number, None, [wire(np.array([666.0]))]])
    assert client.fetch(y).tolist() == [5.0]


@each_case(
    "rest",
    [
        [],
        ["one", None, []],
        [-1, None, []],
        [..., None, 7],
        [..., None, [7]],
        [..., None, [("float64", [1])]],
        [..., None, [("float65", [1], b"x")]],
        [..., None, [("float64", ["x"], b"x")]],
        [..., None, [("float64", [-1], b"")]],
        [..., None, [("float64", [1], b"x")]],
        [..., None, [("float64", [1], 0)]],
        [..., None, [("float64", [1], -1)]],
        [..., None, [("float64", [1], (0, 8))]],
        [..., None, [("float64", [1], (1 << 40, 8))]],
        [..., None, [("float64", [1], (0, 1 << 62))]],
        [..., None, [("float64", [1], (0, 0))]],
        [..., "no", []],
        [..., ["KernelError"], []],
        [..., [1, 2, 3, 4, 5, 6], []],
    ],
)
def test_a_damaged_return_ends_its_connection_alone(connect: Callable[..., RawClient], rest: Any) -> None:
    client, other = connect(host=host_text()), connect()
    number, _, _ = called(client)
    client.send([RETURN, *[number if field is ... else field for field in rest]])
    with pytest.raises((Refused, Gone)):
        client.sync()
    client.close()
    assert other.fetch(other.upload([1.0])).tolist() == [1.0]


def test_a_memory_file_that_is_none_ends_the_connection(connect: Callable[..., RawClient], tmp_path: Any) -> None:
    (tmp_path / "file").write_bytes(bytes(1 << 17))
    fd = os.open(tmp_path / "file", os.O_RDWR)
    try:
        client = connect(host=host_text())
        number, _, _ = called(client, metas=(((LARGE,), "float64"),))
        client.send([RETURN, number, None, [("float64", (LARGE,), (fd, 1 << 17))]])
        with pytest.raises((Refused, Gone)):
            client.sync()
    finally:
        os.close(fd)


def test_a_return_overtakes_batches_that_wait_for_it(connect: Callable[..., RawClient]) -> None:
    """The connection's batches lie undecoded while its run waits; see also the loops of tests/client/calls."""
    client = connect()
    number, (y,), _ = called(client)
    request = next(client.requests)
    client.batch([4, [y], request, 0])
    client.send([RETURN, number, None, [wire(np.array([5.0]))]])
    assert client.answer(request)


def test_a_client_that_dies_leaves_an_error_in_what_others_hold(connect: Callable[..., RawClient]) -> None:
    client, other = connect(), connect()
    _, (y,), _ = called(client)
    client.ask(10, ["held"], [y], ..., False)
    mine = next(other.ids)
    other.ask(11, ["held"], [mine], ..., False)
    client.close()
    with pytest.raises(Failed, match="the program whose function was to compute this"):
        other.fetch(mine)
    other.ask(12, ["held"], ...)

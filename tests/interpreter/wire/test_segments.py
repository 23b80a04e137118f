"""Memory files: sealed, mapped, and refused where a peer's file could harm the process that maps it."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tensord.interpreter.errors import ProtocolError
from tensord.interpreter.wire.segments import (
    F_SEAL_FUTURE_WRITE,
    MemorySegment,
    array_at,
    available,
    new_number,
    offset_in_segment,
    open_descriptors,
    segment_of,
)

from ...each_case import each_case

pytestmark = pytest.mark.skipif(not available(), reason="no sealed memory files here")

PAGE = mmap.PAGESIZE
# The code by which each hostile process gets `fd`; it then prints it and waits for its end of input.
HOSTILE = {
    "fifo": "r, fd = os.pipe()",
    "named fifo": "import tempfile; d = tempfile.TemporaryDirectory(); p = d.name + '/f'; os.mkfifo(p); "
    "fd = os.open(p, os.O_RDWR)",
    "tty": "r, fd = os.openpty()",
    "regular file": "import tempfile; f = tempfile.TemporaryFile(); f.truncate(1 << 20); fd = f.fileno()",
    "directory": "fd = os.open('/', os.O_RDONLY)",
    "socket": "import socket; s = socket.socket(); fd = s.fileno()",
    "unsealed": "fd = os.memfd_create('x', os.MFD_ALLOW_SEALING); os.ftruncate(fd, 1 << 20)",
    "unsealable": "fd = os.memfd_create('x'); os.ftruncate(fd, 1 << 20)",
    "too short": "fd = os.memfd_create('x', os.MFD_ALLOW_SEALING); os.ftruncate(fd, 100); "
    "fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)",
    "huge pages": "fd = os.memfd_create('x', os.MFD_ALLOW_SEALING | os.MFD_HUGETLB); os.ftruncate(fd, 2 << 20); "
    "fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)",
    "/dev/zero": "fd = os.open('/dev/zero', os.O_RDWR)",
    "path only": "fd = os.open('/', os.O_PATH)",
    "eventfd": "fd = os.eventfd(0)",
    "closed": "fd = os.dup(0); os.close(fd)",
}


def start(code: str) -> tuple[subprocess.Popen[str], int]:
    """A process that has made a descriptor, and its number."""
    script = f"import fcntl, os, sys\n{code}\nprint(fd, flush=True)\nsys.stdin.read()"
    command = [sys.executable, "-c", script]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603
    assert process.stdout is not None
    line = process.stdout.readline()
    return process, int(line or -1)


def count_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def end(process: subprocess.Popen[str]) -> None:
    process.communicate()


@each_case("what", HOSTILE)
def test_what_is_no_sealed_memory_file_is_refused_with_a_sentence(what: str) -> None:
    process, fd = start(HOSTILE[what])
    try:
        if fd < 0:
            pytest.skip(f"no {what} here")
        for writable in (True, False):
            with pytest.raises(ProtocolError, match=rf"descriptor {fd} of process {process.pid} .+; memory is shared"):
                MemorySegment.open_peer(process.pid, fd, PAGE, 1, writable)
    finally:
        end(process)


def test_a_process_that_is_gone_has_no_descriptors() -> None:
    process, fd = start("fd = 0")
    end(process)
    with pytest.raises(ProtocolError, match="cannot be opened"):
        MemorySegment.open_peer(process.pid, fd, PAGE, 1, False)


def test_a_file_that_its_maker_has_sealed_against_writing_is_not_mapped_writable() -> None:
    code = (
        "fd = os.memfd_create('x', os.MFD_ALLOW_SEALING); os.ftruncate(fd, 1 << 20); "
        "fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_WRITE)"
    )
    process, fd = start(code)
    try:
        with pytest.raises(ProtocolError, match="cannot be mapped"):
            MemorySegment.open_peer(process.pid, fd, PAGE, 1, True)
        assert not array_at(MemorySegment.open_peer(process.pid, fd, PAGE, 1, False), 0, (4,), "int32").any()
    finally:
        end(process)


def test_a_peers_file_is_mapped_and_outlives_it() -> None:
    code = (
        "fd = os.memfd_create('x', os.MFD_ALLOW_SEALING); os.write(fd, bytes(range(64)) * 64); "
        "fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)"
    )
    process, fd = start(code)
    segment = MemorySegment.open_peer(process.pid, fd, 4096, 7, True)
    end(process)
    assert (segment.owner, segment.number, segment.size) == (process.pid, 7, 4096)
    array = array_at(segment, 0, (4096,), "uint8")
    assert array.tolist() == list(range(64)) * 64
    array[:] = 1


@pytest.mark.parametrize("cut", [lambda fd: os.ftruncate(fd, 1), lambda fd: os.ftruncate(fd, 3 * PAGE)])
def test_a_segment_cannot_change_its_size(cut: Callable[[int], None]) -> None:
    segment = MemorySegment.create(PAGE, new_number())
    with pytest.raises(OSError, match="not permitted") as caught:
        cut(segment.fd)
    assert caught.value.errno == errno.EPERM


def test_after_sealing_nobody_else_writes_but_the_maker_does() -> None:
    segment = MemorySegment.create(PAGE, new_number())
    mine = array_at(segment, 0, (PAGE,), "uint8")
    segment.seal_future_writes()
    assert fcntl.fcntl(segment.fd, fcntl.F_GET_SEALS) & (F_SEAL_FUTURE_WRITE | fcntl.F_SEAL_SEAL)
    with pytest.raises(ProtocolError, match="cannot be mapped"):
        MemorySegment.open_peer(os.getpid(), segment.fd, PAGE, 1, True)
    with pytest.raises(OSError, match="not permitted"):
        os.pwrite(segment.fd, b"x", 0)
    theirs = array_at(MemorySegment.open_peer(os.getpid(), segment.fd, PAGE, 1, False), 0, (PAGE,), "uint8")
    mine[:] = 3
    assert theirs.sum() == 3 * PAGE
    with pytest.raises(ValueError, match="read-only"):
        theirs[0] = 1


def test_a_segment_has_one_descriptor_and_closes_it() -> None:
    before = open_descriptors(), count_descriptors()
    segments = [MemorySegment.create(PAGE, new_number()) for _ in range(10)]
    assert (open_descriptors(), count_descriptors()) == (before[0] + 10, before[1] + 10)
    array = array_at(segments[0], 0, (8,), "float64")
    segments[0].close_descriptor()
    segments[0].close_descriptor()
    assert segments[0].fd == -1
    assert open_descriptors() == before[0] + 9
    segments.clear()
    assert (open_descriptors(), count_descriptors()) == before
    array[:] = 1.0
    assert array.sum() == 8.0


def test_it_cannot_be_closed_under_its_arrays() -> None:
    segment = MemorySegment.create(PAGE, new_number())
    with pytest.raises(BufferError):
        segment.close()


def test_places_are_found_through_any_view() -> None:
    segment = MemorySegment.create(1 << 16, new_number())
    array = array_at(segment, 64, (8, 16), "float32")
    for view, offset in ((array, 64), (array[2:, 3:], 64 + 2 * 64 + 12), (array.T, 64), (array[::-1], 64 + 7 * 64)):
        assert offset_in_segment(view) == (segment, offset)
        again = array_at(segment, offset, view.shape, view.dtype, view.strides)
        assert again.__array_interface__["data"] == view.__array_interface__["data"]
    assert segment_of(np.frombuffer(segment, np.uint8)[5:]) is segment
    assert offset_in_segment(np.zeros(3)) is None


@each_case(
    ("offset", "shape", "strides"),
    [
        (PAGE - 4, (1,), None),
        (-8, (1,), None),
        (0, (PAGE,), None),
        (0, (2,), (-8,)),
        (0, (2, 2), (8, PAGE)),
        (0, (2,), (8, 8)),
        (0, (-1,), None),
        (64, (-1,), None),
        (0, (1 << 40, 1 << 40), None),
        (0, (2,), (1 << 70,)),
        (0, (0, 1 << 70), None),
        (0, (2,), ("a",)),
    ],
)
def test_an_array_that_is_not_all_in_the_segment_is_refused(
    offset: int, shape: tuple[int, ...], strides: object
) -> None:
    segment = MemorySegment.create(PAGE, new_number())
    with pytest.raises(ProtocolError, match="no float64"):
        array_at(segment, offset, shape, "float64", strides)


def test_an_array_may_fill_the_segment_and_be_empty_or_broadcast() -> None:
    segment = MemorySegment.create(PAGE, new_number())
    assert array_at(segment, 0, (PAGE // 8,), "float64").nbytes == PAGE
    assert array_at(segment, 0, (0, 5), "float64").shape == (0, 5)
    assert array_at(segment, PAGE - 8, (100, 100), "float64", (0, 0)).shape == (100, 100)
    assert array_at(segment, PAGE - 8, (), "float64").shape == ()

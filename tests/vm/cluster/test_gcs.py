"""One call of Ray's control service, by hand. `on_ray/` makes it to a real one."""

from __future__ import annotations

import socket
import time

import pytest

from tensord.vm.cluster.gcs import (
    DATA,
    GOAWAY,
    HEADERS,
    KEY_MESSAGE,
    PREFACE,
    SETTINGS,
    CallOutcome,
    call,
    frames,
    outcome_of,
    request,
)

ENDS = 1  # flags
REPLY = (HEADERS, 4, 1, b"\x88"), (DATA, 0, 1, b"\0\0\0\0\x02ab"), (HEADERS, 5, 1, b"@\x0bgrpc-status\x010")


def refusal(code):
    return (HEADERS, 4 | ENDS, 1, b"\x88\0\x0bgrpc-status\x02" + code + b"\0\x0cgrpc-message\x01x")


def answer(*received):
    return outcome_of(iter(received)).outcome


HELLO = (SETTINGS, 0, 0, b""), (8, 0, 0, b"\0\0\0\5"), (SETTINGS, ENDS, 0, b"")


def test_a_reply_means_that_the_caller_was_let_in():
    assert answer(*HELLO, *REPLY) is CallOutcome.ADMITTED


def test_versions_are_read_from_the_reply_and_are_none_where_it_has_none():
    told = b'\0\0\0\0T\n\0\x12P{"ray_version": "2.60.0", "python_version": "3.11.2", "ray_init_cluster": false}'
    reply = outcome_of(iter((*HELLO, (DATA, 0, 1, told))))
    assert reply == (CallOutcome.ADMITTED, {"ray": "2.60.0", "python": "3.11.2"})
    assert outcome_of(iter((*HELLO, *REPLY))).versions == {}


def test_a_refusal_is_told_from_a_service_without_that_call_and_from_other_errors():
    assert answer(*HELLO, refusal(b"16")) is CallOutcome.REFUSED
    assert answer(*HELLO, refusal(b"12")) is CallOutcome.FOREIGN
    assert answer(*HELLO, refusal(b"14")) is CallOutcome.UNKNOWN


def test_what_does_not_begin_as_http2_does_is_foreign_and_what_ends_early_unknown():
    assert answer() is CallOutcome.FOREIGN
    assert answer((0x54, 0x50, 7, b"")) is CallOutcome.FOREIGN
    assert answer(*HELLO) is answer(*HELLO, (GOAWAY, 0, 0, b"")) is CallOutcome.UNKNOWN


def test_frames_of_other_streams_are_not_the_answer():
    assert answer(*HELLO, (DATA, ENDS, 3, b""), refusal(b"16")) is CallOutcome.REFUSED


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


def soon():
    return time.monotonic() + 10.0


def test_a_request_is_three_frames_with_the_token_among_the_fields(pair):
    ours, theirs = pair
    token = "t" * 300  # its length takes two bytes more than the prefix
    ours.sendall(request("h:1", token).removeprefix(PREFACE))
    ours.shutdown(socket.SHUT_WR)
    settings, headers, data = frames(theirs, soon())
    assert (settings[0], headers[:3], data) == (
        SETTINGS,
        (HEADERS, 4, 1),
        (DATA, ENDS, 1, b"\0\0\0\0\x1b" + KEY_MESSAGE),
    )
    field = f"Bearer {token}".encode()
    beyond = len(field) - 0x7F
    assert b"\x0dauthorization\x7f" + bytes((beyond & 0x7F | 0x80, beyond >> 7)) + field in headers[3]
    assert b"authorization" not in request("h:1", "")


@pytest.mark.parametrize("said", [b"", b"\0\0", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH\r\n" * 9])
def test_bytes_that_are_no_frames_end_them(pair, said):
    ours, theirs = pair
    ours.sendall(said)
    ours.close()
    assert list(frames(theirs, soon())) == []


def test_there_is_an_end_to_frames_and_to_waiting(pair):
    ours, theirs = pair
    ours.sendall((b"\0\0\0" + bytes((SETTINGS, 0)) + b"\0\0\0\0") * 100)
    assert len(list(frames(theirs, soon()))) < 100
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(TimeoutError):
        call("127.0.0.1", silent.getsockname()[1], "", 0.02)

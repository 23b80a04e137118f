"""Addresses: the valid ones, their sockets, and whether a daemon listens there."""

from __future__ import annotations

import fcntl
import os
import socket

import pytest

from tensord.interpreter.errors import MetadataError
from tensord.interpreter.wire.addresses import (
    default_address,
    find_daemon,
    for_client,
    is_loopback,
    lock_path,
    parse,
    pid_of,
)

from ...each_case import each_case


@pytest.fixture
def runtime(tmp_path, monkeypatch):
    monkeypatch.delenv("TENSORD_ADDRESS", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "tensord").mkdir(mode=0o700)
    return tmp_path / "tensord"


@pytest.fixture
def held(runtime):
    """The default address's lock, held as a daemon holds it."""
    with (runtime / "socket.lock").open("w") as lock:
        lock.write("4711\n")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


def test_the_default_is_in_the_runtime_directory_else_in_one_of_the_user(monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1")
    assert default_address() == "ipc:///run/user/1/tensord/socket"
    for unusable in ("", "relative"):
        monkeypatch.setenv("XDG_RUNTIME_DIR", unusable)
        assert default_address() == f"ipc:///tmp/tensord-{os.getuid()}/socket"


@each_case(
    ("address", "host", "port"),
    [
        ("tcp://127.0.0.1:7700", "127.0.0.1", 7700),
        ("tcp://[::1]:7700", "::1", 7700),
        ("tcp://[fe80::1%eth0]:1", "fe80::1%eth0", 1),
        ("tcp://eth0:65535", "eth0", 65535),
        ("tcp://*:7700", "*", 7700),
        ("tcp://some-host.example:0", "some-host.example", 0),
    ],
)
def test_tcp_addresses(address, host, port):
    parsed = parse(address)
    assert (parsed.kind, parsed.host, parsed.port, str(parsed)) == ("tcp", host, port, address)


@each_case(
    ("address", "told"),
    [
        ("", "ipc:///an/absolute/path"),
        ("local", "tcp://HOST:PORT"),
        ("inproc://x", "tcp://HOST:PORT"),
        ("/run/socket", "ipc:///an/absolute/path"),
        ("ipc://relative", "absolute path"),
        ("ipc://@abstract", "absolute path"),
        ("ipc:///directory/", "absolute path"),
        ("ipc:///nul\0", "absolute path"),
        ("tcp://127.0.0.1", "tcp://HOST:PORT"),
        ("tcp://127.0.0.1:x", "tcp://HOST:PORT"),
        ("tcp://127.0.0.1:65536", "up to 65535"),
        ("tcp://::1:7700", "brackets"),
        ("tcp://[::g]:7700", "not an IPv6 address"),
        ("tcp://a/b:1", "tcp://HOST:PORT"),
    ],
)
def test_what_is_no_address_says_what_to_write(address, told):
    with pytest.raises(MetadataError, match=told):
        parse(address)


def test_a_socket_path_has_107_bytes_at_most():
    assert parse("ipc:///" + "a" * 106).kind == "ipc"
    with pytest.raises(MetadataError, match=r"at most 107 bytes, this one has 108.*ipc:///tmp"):
        parse("ipc:///" + "a" * 107)
    with pytest.raises(MetadataError, match="has 109"):
        parse("ipc:///" + "é" * 54)


@each_case("address", ["tcp://*:7700", "tcp://0.0.0.0:7700", "tcp://[::]:7700", "tcp://127.0.0.1:0"])
def test_a_client_needs_one_host_and_port(address):
    with pytest.raises(MetadataError, match="name the daemon's host and port"):
        for_client(address)
    assert for_client("tcp://127.0.0.1:7700").port == 7700


@each_case(
    ("address", "expected"),
    [
        ("ipc:///x", True),
        ("tcp://127.0.0.1:1", True),
        ("tcp://127.9.9.9:1", True),
        ("tcp://[::1]:1", True),
        ("tcp://[::ffff:127.0.0.1]:1", True),
        ("tcp://lo:1", True),
        ("tcp://localhost:1", True),
        ("tcp://*:1", False),
        ("tcp://0.0.0.0:1", False),
        ("tcp://[::]:1", False),
        ("tcp://192.0.2.1:1", False),
        ("tcp://[::ffff:192.0.2.1]:1", False),
    ],
)
def test_loopback_is_what_only_this_machine_reaches(address, expected):
    assert is_loopback(address) is expected


def test_a_name_that_looks_like_loopback_is_judged_by_where_it_leads(monkeypatch):
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(2, 1, 6, "", ("192.0.2.1", 0))])
    assert not is_loopback("tcp://localhost:1")


def test_an_unknown_host_is_an_error_that_names_it(monkeypatch):
    def unknown(*_, **__):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(MetadataError, match="nowhere"):
        is_loopback("tcp://nowhere:1")


def test_locks_lie_beside_the_socket_or_in_the_runtime_directory(runtime):
    assert str(lock_path("ipc:///a/socket")) == "/a/socket.lock"
    assert lock_path("tcp://[::1]:1") == runtime / "tcp---1-1.lock"
    assert lock_path("tcp://lo:1") == lock_path("tcp://127.0.0.1:1") == runtime / "tcp-127.0.0.1-1.lock"


def test_a_daemon_is_found_while_its_lock_is_held(runtime, held):
    address = f"ipc://{runtime}/socket"
    assert (find_daemon(), pid_of(address)) == (address, 4711)
    held.close()
    assert (find_daemon(), pid_of(address)) == (None, None)


def test_a_daemon_whose_pid_is_not_written_yet_is_found(held):
    held.truncate(0)
    assert find_daemon() is not None
    assert pid_of(default_address()) == 0


def test_nothing_is_found_where_there_is_no_lock_or_no_directory(runtime, monkeypatch):
    assert find_daemon() is None
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime / "missing"))
    assert find_daemon() is None
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/" + "x" * 200)
    assert find_daemon() is None


def test_a_socket_where_others_may_write_is_not_found(runtime, held):
    assert not held.closed
    runtime.chmod(0o777)
    assert find_daemon() is None


def test_a_lock_that_is_a_pipe_does_not_block_who_looks(runtime):
    os.mkfifo(runtime / "socket.lock")
    assert find_daemon() is None


def test_the_environment_comes_first(held, monkeypatch):
    assert not held.closed
    monkeypatch.setenv("TENSORD_ADDRESS", "tcp://somewhere:1")
    assert find_daemon() == "tcp://somewhere:1"

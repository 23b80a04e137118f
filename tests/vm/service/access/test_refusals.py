"""Refusals are logged with their reason and the peer's address; a flood of them does not flood the log."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import zmq

import tensord as td
from tensord.interpreter.wire import keys
from tensord.interpreter.wire.monitor import SocketEvent
from tensord.vm.service.access.refusals import BURST_LINES, LINE_INTERVAL, RefusalLog
from tensord.vm.service.connections.listener import Listener

from ....daemon import Daemon
from ....each_case import each_case
from ....puppet import eventually


def test_a_flood_has_few_lines_and_the_next_one_says_how_many_had_none(caplog: pytest.LogCaptureFixture) -> None:
    now = 100.0
    refusals = RefusalLog(lambda: now)
    for n in range(BURST_LINES + 7):
        refusals.tell("refused", peer=f"127.0.0.1:{n}")
    assert len(caplog.records) == BURST_LINES
    now += LINE_INTERVAL
    refusals.tell("refused", peer="")
    assert "unlogged=7" in caplog.text
    assert "peer='gone already'" in caplog.text
    now += LINE_INTERVAL
    refusals.tell("refused", peer="")
    assert caplog.text.count("unlogged") == 1


@each_case(
    ("kind", "value", "keyed", "local", "reason"),
    [
        (zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH, True, False, "has no keys"),
        (zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH, False, False, "uses keys"),
        (zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC, True, False, "server.key that"),
        (zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, 0x10000001, True, False, "0x10000001"),
        (zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL, 104, True, False, "not a tensord client"),
        (zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL, 32, False, True, ""),
    ],
)
def test_a_failed_handshake_has_a_reason(kind: int, value: int, keyed: bool, local: bool, reason: str) -> None:
    listener: Any = Listener.__new__(Listener)
    listener.keyed, listener.local = keyed, local
    found = listener.reason_of(SocketEvent(kind, value))
    assert reason in found if reason else not found


@pytest.fixture(scope="module")
def key_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys of a server, of alice, who is allowed, and of bob, who is not; carol has another server's key."""
    directory = tmp_path_factory.mktemp("keys")
    for name in ("server", "alice", "bob"):
        keys.create(directory, name)
    for name in ("server", "carol"):
        keys.create(directory / "elsewhere", name)
    allow = directory / "allowed"
    allow.write_bytes(keys.read_public(directory / "alice.key") + b" alice\n")
    allow.chmod(0o600)
    return directory


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory, key_files: Path) -> Any:
    """A daemon that listens on tcp, with keys."""
    home = tmp_path_factory.mktemp("keyed")
    config = home / "c.toml"
    config.write_text(f'[security]\nserver_secret = "{key_files}/server.key_secret"\nallow = "{key_files}/allowed"\n')
    with Daemon.start(home, "--config", str(config), address=free_address()) as running:
        yield running
        assert running.stop() == 0


def free_address() -> str:
    with zmq.Context() as context, context.socket(zmq.REP) as probe:
        return f"tcp://127.0.0.1:{probe.bind_to_random_port('tcp://127.0.0.1')}"


def test_a_client_with_the_right_keys_comes_in(keyed: Daemon, key_files: Path) -> None:
    with keyed.connect(keys=key_files / "alice.key_secret") as session:
        assert session.asarray([1.0]).tolist() == [1.0]


@pytest.mark.parametrize(
    ("who", "told", "logged"),
    [
        ("", "requires keys", "has no keys"),
        ("elsewhere/carol.key_secret", "is not its key", "the server.key that it was given is not this daemon's"),
        ("bob.key_secret", "not in its allow list; add it with `tensord keygen --allow`", "not in the allow list"),
    ],
)
def test_a_refused_client_hears_what_to_do_and_the_log_names_it(
    keyed: Daemon, key_files: Path, who: str, told: str, logged: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TENSORD_KEYS", raising=False)
    with pytest.raises(td.ConnectionLost, match=told):
        keyed.connect(keys=key_files / who if who else None)
    eventually(lambda: logged in keyed.log)
    line = next(line for line in keyed.log.splitlines() if logged in line)
    if "allow list" in logged:  # the peer waits for the answer, so its address can be read
        assert re.search(r"peer='?127\.0\.0\.1:\d+", line)
        assert f"address={keyed.address!r}" in line
        assert keyed.log.count(logged) == 1
    assert re.search("peer='?(127.0.0.1|gone already)", line)  # gone before it could be asked for its address


def test_a_client_with_keys_is_told_by_a_daemon_without(tmp_path: Path, key_files: Path) -> None:
    with Daemon.start(tmp_path, address=free_address()) as running:
        with pytest.raises(td.ConnectionLost, match=r"uses no keys|has closed the connection"):
            running.connect(keys=key_files / "alice.key_secret")
        eventually(lambda: "uses keys" in running.log)

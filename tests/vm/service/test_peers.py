"""Daemons that know each other's addresses link up, by TLS unless configured otherwise; and impossible settings."""

from __future__ import annotations

import gc
import select
import socket
import struct
import sys
from functools import partial
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.interpreter.wire.members import member_of
from tensord.vm.service import certificates
from tensord.vm.service.peers import PeerLinks, check_peers, introduce, peer_warnings
from tensord.vm.service.preflight import open_runtime
from tensord.vm.service.process.errors import StartError
from tensord.vm.service.settings.config import Config, load

from ...daemon import Daemon
from ...each_case import each_case
from ...puppet import eventually

TOKEN = "t" * 40


def ask(session: Any, what: str, *arguments: Any) -> Any:
    return session._core.answers.query(what, *arguments)


def says(daemon: Daemon, text: str) -> bool:
    return text in daemon.log


def start(tmp_path, number: int, *options: str) -> Daemon:
    folder = tmp_path / str(number)
    folder.mkdir()
    return Daemon.start(folder, "--node", f"node{number}", "--values", "127.0.0.1:0", *options)


@pytest.mark.parametrize("encryption", ["tls", "none"])
def test_daemons_that_are_told_of_each_other_link_up(encryption, tmp_path):
    options = ("--encryption", encryption)
    with start(tmp_path, 0, *options) as first, start(tmp_path, 1, *options) as second:
        with first.connect() as one, second.connect() as other:
            table = [ask(session, "members")[0] for session in (one, other)]
            entries = [member_of(row) for row in table]
            assert [bool(entry.fingerprint) for entry in entries] == [encryption == "tls"] * 2
            assert all(entry.address.startswith("ipc://") for entry in entries)
            for session in (one, other):
                assert ask(session, "join", table, TOKEN) == 2
            for daemon in (first, second):
                assert eventually(partial(says, daemon, "a node is linked"))
            with td.connect_cluster(first.address) as session:
                for nbytes in (0, 100, 3 << 20):
                    value = np.arange(nbytes, dtype=np.uint8)
                    there = session.asarray(value, device="node0/cpu:0").to_device("node1/cpu:0")
                    back = (there + np.uint8(1)).to_device("node0/cpu:0")
                    np.testing.assert_array_equal(back.numpy(), value + np.uint8(1))
            second.kill()
            assert eventually(partial(says, first, "a link is broken"))
            lost = [table[0], {**table[1], "state": "lost"}]
            assert ask(one, "join", lost, TOKEN) == 2
        assert first.stop() == 0
        assert TOKEN not in first.log


def cluster(**table: Any) -> Config:
    return load(None, {"node": "node0", "cluster": {"values": "127.0.0.1:0", **table}})


def test_tls_needs_its_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    for check in (check_peers, PeerLinks):
        with pytest.raises(StartError, match=r'pip install "tensord\[cluster\]", or choose encryption = "none"'):
            check(cluster())
    check_peers(cluster(encryption="none"))
    check_peers(load(None, {}))


def test_a_port_that_is_taken_is_told_and_the_next_of_a_range_is_used():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for check in (check_peers, PeerLinks):
            with pytest.raises(StartError, match=f"cannot receive values at 127.0.0.1:{port}: Address already in use"):
                check(cluster(values=f"127.0.0.1:{port}", encryption="none"))
        peers = PeerLinks(cluster(values=f"127.0.0.1:{port}-{port + 20}", encryption="none"))
        assert port < int(peers.links.address.rpartition(":")[2]) <= port + 20
        assert peers.close(5.0)


@each_case(
    ("given", "doubt"),
    [
        ({"cluster": {"values": "127.0.0.1:0"}}, "for a machine that is a node"),
        ({"node": "a", "cluster": {"values": "10.0.0.5:7701", "encryption": "none"}}, "as plain text"),
        ({"node": "a", "cluster": {"values": "10.0.0.5:7701"}}, None),
        ({"node": "a", "cluster": {"values": "127.0.0.1:0", "encryption": "none"}}, None),
        ({}, None),
    ],
)
def test_doubts(given, doubt):
    found = peer_warnings(load(None, given))
    assert len(found) == (doubt is not None)
    assert doubt is None or doubt in found[0]


@each_case(
    ("bound", "address"),
    [
        (["ipc:///run/x", "tcp://127.0.0.1:7700"], "tcp://127.0.0.1:7700"),
        (["ipc:///run/x"], "ipc:///run/x"),
        (["tcp://0.0.0.0:7700"], ""),
        (["tcp://0.0.0.0:7700", "ipc:///run/x"], "ipc:///run/x"),
    ],
)
def test_a_daemons_own_entry_says_where_clients_reach_it(bound, address):
    config = load(None, {"node": "node0"})
    runtime = open_runtime(config, lambda _tasks: None)
    members = runtime.about.members
    assert members is not None
    introduce(members, config, bound)
    assert members.own.address == members.table["node0"].address == address
    assert member_of(members.own.row()) == members.own
    runtime.close(1.0)


def test_certificates_are_of_one_daemon_and_leave_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, second = certificates.make_tls("node0"), certificates.make_tls("node0")
    assert len(first.fingerprint) == 64
    assert first.fingerprint != second.fingerprint
    assert not list(tmp_path.iterdir())


def test_a_connection_that_has_ended_before_tls_begins_is_left_to_whoever_dialled():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
        other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        other.close()  # by a reset
        select.select([connection], [], [], 10)
        with pytest.raises(OSError):  # noqa: PT011 - whichever of them the system raises
            certificates.make_tls("node0").dial(connection, "")
        connection.close()
        gc.collect()  # a socket left open would be warned of

"""The ports of a daemon."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from tensord.interpreter.errors import MetadataError
from tensord.vm.cluster.ports import Locks, NoPort, can_listen, choose, parse_range

from ...each_case import each_case


def test_ranges_are_a_first_and_a_last_port():
    assert parse_range("7700-7709") == (7700, 7709)


@each_case("text", ["", "x", "7700", "7700-7700", "7700-", "7709-7700", "0-5", "1-2-3"])
def test_other_texts_are_refused_with_an_example(text):
    with pytest.raises(MetadataError, match="written as 7700-7709"):
        parse_range(text)


def test_ports_that_a_node_had_come_first_and_each_once():
    assert choose(2, (12, 11), (10, 14), lambda _port: True) == (12, 11)
    assert choose(2, (12, 12), (10, 14), lambda _port: True) == (12, 10)
    assert choose(2, (12, 11), (10, 14), lambda port: port != 12) == (11, 10)


def test_no_more_ports_are_taken_than_are_needed():
    asked = []

    def take(port):
        asked.append(port)
        return True

    choose(1, (), (10, 14), take)
    assert asked == [10]


def test_too_few_free_ports_raise():
    with pytest.raises(NoPort, match="1 of the 2 ports"):
        choose(2, (), (10, 14), lambda port: port == 13)


def test_a_port_on_which_somebody_listens_is_not_taken(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        locks = Locks(tmp_path / "locks")
        assert not can_listen("127.0.0.1", port)
        assert not locks.take_port("127.0.0.1", port)
    assert locks.take_port("127.0.0.1", port)
    locks.close()


def test_an_address_of_another_machine_is_an_error_and_not_a_taken_port():
    with pytest.raises(OSError, match="assign"):
        can_listen("192.0.2.1", 0)


HOLDS = """
import sys
from pathlib import Path
from tensord.vm.cluster.ports import Locks
print(Locks(Path(sys.argv[1])).take("port-7"), flush=True)
"""


def test_what_one_process_has_no_other_gets(tmp_path):
    locks = Locks(tmp_path / "locks")
    assert locks.take("port-7")
    assert locks.take("port-7")

    def other():
        command = [sys.executable, "-c", HOLDS, str(tmp_path / "locks")]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603 - as above

    assert other() == "False"
    locks.give_back("port-7")
    assert other() == "True"
    locks.close()

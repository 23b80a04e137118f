"""Notifications to systemd, on a real datagram socket."""

from __future__ import annotations

import os
import socket

import pytest

from tensord.vm.service.process.notify import Notifier

from ....each_case import each_case


@pytest.fixture(params=["path", "abstract"])
def manager(request, tmp_path):
    """(the value of NOTIFY_SOCKET, the socket behind it)."""
    name = str(tmp_path / "notify") if request.param == "path" else f"@tensord-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(name.replace("@", "\0", 1))
        listener.settimeout(5)
        yield name, listener


def test_each_message_is_one_datagram(manager):
    name, listener = manager
    notifier = Notifier({"NOTIFY_SOCKET": name})
    notifier.ready("listening on\nipc://x")
    notifier.status("2 sessions")
    notifier.watchdog()
    notifier.stopping("draining")
    heard = [listener.recv(4096).decode() for _ in range(4)]
    notifier.close()
    assert heard == [
        f"READY=1\nMAINPID={os.getpid()}\nSTATUS=listening on ipc://x",
        "STATUS=2 sessions",
        "WATCHDOG=1",
        "STOPPING=1\nSTATUS=draining",
    ]


def test_nothing_is_said_without_a_manager():
    notifier = Notifier({})
    assert notifier.watchdog_period is None
    notifier.ready()
    notifier.close()


def test_a_manager_that_is_gone_or_does_not_read_is_no_failure(tmp_path):
    for name in (str(tmp_path / "nobody"), "vsock:2:1"):
        notifier = Notifier({"NOTIFY_SOCKET": name})
        notifier.watchdog()
        notifier.close()
        notifier.watchdog()


def test_a_full_queue_stops_nobody(manager):
    notifier = Notifier({"NOTIFY_SOCKET": manager[0]})
    for _ in range(10_000):
        notifier.watchdog()
    notifier.close()


@each_case(
    ("environment", "period"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_the_watchdog_is_fed_at_half_its_time(environment, period):
    assert Notifier(environment).watchdog_period == period

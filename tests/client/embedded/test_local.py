"""Machines in this process: their engines, and refused options."""

from __future__ import annotations

import ctypes
import gc
from _thread import start_new_thread
from collections.abc import Callable, Iterator
from threading import Event, get_ident
from typing import Any

import pytest

import tensord as td
from tensord.client.embedded import local, serial_transport
from tensord.client.embedded.in_process import EmbeddedTransport
from tensord.client.embedded.serial_transport import SerialTransport
from tensord.client.session.session import Session

from ...puppet import eventually

WAIT = 30.0  # seconds until a test that hangs is given up; never slept
VM, SERIAL = EmbeddedTransport, SerialTransport
NAME = "local:engines"


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[Callable[..., Session]]:
    """td.connect, without a daemon and without settings in the environment. Sessions that it opens are closed at the
    end.
    """
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("TENSORD_ENGINE", raising=False)
    monkeypatch.delenv("TENSORD_ADDRESS", raising=False)
    opened: list[Session] = []

    def connect(*arguments: Any, **options: Any) -> Session:
        opened.append(td.connect(*arguments, **options))
        return opened[-1]

    yield connect
    for session in opened:
        session.close()


@pytest.mark.parametrize(
    ("environment", "arguments", "options", "kind"),
    [
        (None, ["local"], {}, VM),
        (None, ["local"], {"engine": "vm"}, VM),
        (None, ["local"], {"engine": "serial"}, SERIAL),
        (None, [], {"engine": "serial"}, SERIAL),
        ("", ["local"], {}, VM),
        ("serial", ["local"], {}, SERIAL),
        ("serial", [NAME], {}, SERIAL),
        ("serial", [], {}, SERIAL),
        ("serial", [], {"devices": ["cpu:0"]}, SERIAL),
        ("serial", ["local"], {"engine": "vm"}, VM),
        ("vm", ["local"], {"engine": "serial"}, SERIAL),
    ],
)
def test_the_engine_is_that_of_the_call_else_that_of_the_environment(
    connect, monkeypatch, environment, arguments, options, kind
):
    if environment is not None:
        monkeypatch.setenv("TENSORD_ENGINE", environment)
    session = connect(*arguments, **options)
    assert type(session._core.transport) is kind
    assert (session.asarray([1.0]) + 1).tolist() == [2.0]


@pytest.mark.parametrize("address", [None, "local", "local:one"])
@pytest.mark.parametrize("devices", ["cpu:0", {"name": "cpu:0"}, 5])
def test_a_device_that_is_not_in_a_list_is_refused_as_such_on_every_machine(connect, address, devices):
    with pytest.raises(td.MetadataError, match="devices must be given as a list"):
        connect(address, devices=devices)
    connect("local:one")
    with pytest.raises(td.MetadataError, match="devices must be given as a list"):
        connect("local:one", devices=devices)


@pytest.mark.parametrize("engine", ["naive", "", "VM", None.__class__, 3])
def test_what_is_no_engine_is_refused(connect, engine):
    with pytest.raises(td.MetadataError, match='engine= is "vm" or "serial", not'):
        connect("local", engine=engine)


def test_what_is_no_engine_in_the_environment_is_refused(connect, monkeypatch):
    monkeypatch.setenv("TENSORD_ENGINE", "naive")
    with pytest.raises(td.MetadataError, match=r'\$TENSORD_ENGINE is "vm" or "serial", not \'naive\''):
        connect("local")


@pytest.mark.parametrize("engine", ["vm", "serial"])
@pytest.mark.parametrize("address", ["ipc:///tmp/nobody", "tcp://127.0.0.1:9"])
def test_a_daemon_has_its_own_engine(connect, address, engine):
    with pytest.raises(td.MetadataError, match="engine= is for machines of this process"):
        connect(address, engine=engine)


def test_the_environment_names_no_engine_for_a_daemon_that_the_program_addresses(connect, monkeypatch, tmp_path):
    monkeypatch.setenv("TENSORD_ENGINE", "serial")
    with pytest.raises(td.ConnectionLost):
        connect(f"ipc://{tmp_path}/nobody")


def test_an_engine_and_a_daemon_in_the_environment_contradict_each_other(connect, monkeypatch, tmp_path):
    monkeypatch.setenv("TENSORD_ENGINE", "serial")
    monkeypatch.setenv("TENSORD_ADDRESS", f"ipc://{tmp_path}/nobody")
    with pytest.raises(td.MetadataError, match=r"TENSORD_ENGINE=serial .*TENSORD_ADDRESS .*unset one of the two"):
        connect()
    with pytest.raises(td.MetadataError, match="unset one of the two"):
        vars(type(td.array_api))["_connect"](td.array_api)
    assert type(connect("local")._core.transport) is SERIAL
    monkeypatch.setenv("TENSORD_ADDRESS", "local:addressed")
    assert type(connect()._core.transport) is SERIAL


@pytest.mark.parametrize(("first", "second"), [("vm", "serial"), ("serial", "vm")])
def test_a_shared_machine_has_one_engine(connect, first, second):
    one = connect(NAME, engine=first)
    with pytest.raises(td.MetadataError, match=f'{NAME}.* exists already, with engine="{first}"; leave engine= out'):
        connect(NAME, engine=second)
    with pytest.raises(td.MetadataError, match=r"exists already, with devices cpu:0; leave devices= out"):
        connect(NAME, devices=["cpu:1"])
    other = connect(NAME)
    one.publish("x", one.asarray([1.0]))
    assert other.lookup("x").tolist() == [1.0]
    assert type(other._core.transport) is type(one._core.transport)


def test_the_environment_does_not_contradict_a_shared_machine(connect, monkeypatch):
    connect(NAME, engine="vm")
    monkeypatch.setenv("TENSORD_ENGINE", "serial")
    assert type(connect(NAME)._core.transport) is VM


def test_a_shared_serial_machine_ends_with_its_last_session(connect):
    one, other = connect(NAME, engine="serial"), connect(NAME)
    machine = one._core.transport.machine
    one.close()
    assert not machine.closed
    other.close()
    assert machine.closed
    assert NAME.partition(":")[2] not in local._shared
    with pytest.raises(td.ConnectionLost):
        other.names()


def test_a_dropped_session_is_closed(connect):
    keeper = connect(NAME, engine="serial")
    machine = keeper._core.transport.machine
    dropped = td.connect(NAME)
    del dropped
    gc.collect()
    eventually(lambda: len(machine.engine.sessions) == 1)


class Thrown(BaseException):
    pass


def test_what_is_thrown_while_a_dropped_session_gets_a_thread_comes_once_the_thread_runs(connect, monkeypatch):
    """Before, the exception could hit the new thread, which has its starter's number at first, and would not close the
    session.
    """
    closed = Event()

    def start(function: Callable[..., Any], arguments: tuple[Any, ...]) -> int:
        me, thrown = ctypes.c_ulong(get_ident()), ctypes.py_object(Thrown)
        assert ctypes.pythonapi.PyThreadState_SetAsyncExc(me, thrown) == 1
        return start_new_thread(tell, (function, arguments))

    def tell(function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        function(*arguments)
        closed.set()

    monkeypatch.setattr(serial_transport, "start_new_thread", start)
    session = connect("local", engine="serial")
    with pytest.raises(Thrown):
        session._core.transport.abandon()
    assert closed.wait(WAIT)
    assert session.closed


def test_strict_and_tracing_change_nothing_on_the_serial_engine(connect):
    s = connect("local", devices=["cpu:0", "sim:0"], engine="serial", strict=True, tracing=False)
    assert (s.asarray([1.0]) + s.asarray([1.0], device="sim:0")).tolist() == [2.0]

"""The module `tensord.array_api`, the namespace of the default session; and namespaces as objects."""

from __future__ import annotations

import copy
import gc
import math
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord import array_api
from tensord.client.array_api.namespace import Namespace
from tensord.client.core.core import Core
from tensord.client.session import default_namespace
from tensord.client.session.session import Session

from ...daemon import Daemon
from ...each_case import each_case
from ...puppet import PATIENCE, Failed, Puppet

THREADS = 8
NOBODY = "ipc:///tmp/tensord-nobody/socket"  # an address without a listener


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Session]]:
    """The default sessions that were opened here; at the end of a test there is none, as before."""
    sessions: list[Session] = []
    connect = vars(default_namespace)["connect"]

    def noted(address: str | None) -> Session:
        sessions.append(connect(address))
        return sessions[-1]

    monkeypatch.setattr(default_namespace, "connect", noted)
    yield sessions
    for name in ("_core", "_address"):
        vars(array_api).pop(name, None)
    for session in sessions:
        session.close()


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No daemon can be found."""
    monkeypatch.delenv("TENSORD_ADDRESS", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@pytest.fixture
def xp(opened: list[Session], alone: None) -> Any:
    """The module, whose session will be embedded."""
    del opened, alone
    return array_api


def embedded(session: Session) -> bool:
    return hasattr(session._core.transport, "machine")


# -- importing ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def puppet() -> Iterator[Puppet]:
    """A process that has imported all modules, with no daemon to connect to."""
    with Puppet.start(TENSORD_ADDRESS=NOBODY) as puppet:
        puppet.do("import threading\nbefore = set(os.listdir('/proc/self/fd'))")
        puppet.do("import tensord.array_api as xp\nfrom tensord import array_api")
        puppet.do("from tensord.array_api import fft, linalg, sin, float32")
        puppet.do("star = {}\nexec('from tensord.array_api import *', star)\ndel star['__builtins__']")
        yield puppet


def test_importing_it_connects_to_nothing(puppet):
    assert puppet.do("array_api is xp is td.array_api")
    assert puppet.do("'_core' in vars(xp), threading.active_count(), set(os.listdir('/proc/self/fd')) - before") == [
        False,
        1,
        "set()",
    ]


def test_what_needs_no_tensors_needs_no_session(puppet):
    assert puppet.do(
        "xp.isdtype(float32, 'real floating') and xp.can_cast(xp.int8, xp.int16) and xp.bool == np.dtype(bool)"
    )
    assert puppet.do("xp.result_type(float32, 1.0) == np.float32 and xp.finfo(float32).bits == 32 and xp.pi") == math.pi
    assert puppet.do("repr(xp), hasattr(xp, 'sparse'), '_core' in vars(xp)") == [
        "<module 'tensord.array_api'>",
        False,
        False,
    ]


def test_all_that_is_imported_by_a_star_is_the_standard_s(puppet):
    names = set(puppet.do("list(star)"))
    assert names == set(puppet.do("xp.__all__"))
    assert {"sum", "linalg", "fft", "float32", "bool", "newaxis", "asarray", "pi"} <= names
    assert not [name for name in names if name.startswith("_")]


def test_where_nobody_listens_what_makes_a_tensor_says_so_and_may_be_tried_again(puppet, daemon):
    for code in ("xp.ones(3)", "fft.fftfreq(4)", "xp.__array_namespace_info__()", "linalg.inv(np.ones((2, 2)))"):
        with pytest.raises(Failed, match="tensord serve") as failed:
            puppet.do(code)
        assert failed.value.kind == "NoDaemon"
    puppet.do(f"os.environ['TENSORD_ADDRESS'] = {daemon.address!r}")
    assert puppet.do("star['sum'](sin(xp.zeros(3)) + 1.0).item()") == 3.0
    assert puppet.do("td.array_api._core.transport._link.address") == daemon.address


def test_it_has_the_name_it_is_imported_by(xp, opened):
    assert xp.__name__ == "tensord.array_api"
    assert isinstance(xp, ModuleType)
    assert dir(xp) == sorted(dir(xp))
    assert {"__array_api_version__", "__array_namespace_info__", "sum"} <= set(dir(xp))
    with pytest.raises(AttributeError, match=r"module 'tensord\.array_api' has no attribute 'frobnicate'"):
        _ = xp.frobnicate
    with pytest.raises(AttributeError, match=r"'tensord\.array_api\.linalg' has no attribute 'frobnicate'"):
        _ = xp.linalg.frobnicate
    assert not opened


# -- the default session -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("alone")
def test_it_is_where_the_environment_says(daemon, monkeypatch, opened):
    monkeypatch.setenv("TENSORD_ADDRESS", daemon.address)
    x = array_api.ones((2, 3), device="sim:0")
    assert (x.device, array_api.sum(x).item()) == ("sim:0", 6.0)
    assert array_api.__array_namespace_info__().devices() == ("cpu:0", "sim:0")
    assert [session._core.transport._link.address for session in opened] == [daemon.address]


def test_threads_that_need_it_first_get_the_same_one(xp, opened, monkeypatch):
    """The thread that opens the session is held up until all the others want it, too."""
    connect, wanted, all_want = vars(default_namespace)["connect"], threading.Semaphore(0), threading.Event()

    def slow(address: str | None) -> Session:
        for _ in range(THREADS):
            assert wanted.acquire(timeout=PATIENCE)
        all_want.set()
        return connect(address)

    monkeypatch.setattr(default_namespace, "connect", slow)
    found: list[Any] = []

    def want(function: Callable[[], Any]) -> None:
        wanted.release()
        found.append(function())

    ways = (lambda: xp.ones(2)._core, lambda: xp._core, lambda: xp.linalg._core, lambda: xp.fft._core)
    threads = [threading.Thread(target=want, args=(ways[n % len(ways)],)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert all_want.is_set()
    assert len(found) == THREADS
    assert set(found) == {session._core for session in opened}
    assert len(opened) == 1


MAKERS: dict[str, Callable[[Any], Any]] = {
    "asarray": lambda xp: xp.asarray([1.0, 2.0]),
    "from_dlpack": lambda xp: xp.from_dlpack(np.ones(2)),
    "fftfreq": lambda xp: xp.fft.fftfreq(4),
    "rfftfreq": lambda xp: xp.fft.rfftfreq(4),
    "full": lambda xp: xp.full(2, 1.0),
    "info": lambda xp: xp.__array_namespace_info__().default_device(),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_once_it_was_closed_the_next_function_that_makes_something_opens_another(xp, opened, make):
    sin, linalg = xp.sin, xp.linalg
    old = xp.asarray([[1.0]])
    opened[0].close()
    for use in (lambda: sin(old), lambda: linalg.inv(old), lambda: xp.zeros_like(old), lambda: old + 1.0, old.numpy):
        with pytest.raises(td.ConnectionLost, match="closed"):
            use()
    make(xp)
    assert len(opened) == 2
    new = xp.asarray([[1.0]])
    for use in (lambda: sin(old), lambda: linalg.inv(old), lambda: new + old, lambda: xp.asarray(old)):
        with pytest.raises(td.ConnectionLost, match="the tensor's session has ended, and the tensor with it"):
            use()
    assert sin(new).item() == math.sin(1.0)  # functions and extensions that the program has kept follow
    assert linalg.inv(new).item() == 1.0
    assert len(opened) == 2


@pytest.mark.usefixtures("alone")
def test_after_the_daemon_has_died_the_next_one_is_taken(tmp_path, monkeypatch, opened):
    with Daemon.start(tmp_path) as daemon:
        monkeypatch.setenv("TENSORD_ADDRESS", daemon.address)
        old = array_api.ones(3)
        old.wait()
        daemon.kill()
        for use in (array_api.sum, array_api.negative):
            with pytest.raises(td.ConnectionLost):
                use(old).numpy()
        with pytest.raises(td.ConnectionLost, match="tensord serve"):
            array_api.ones(3)
        with Daemon.start(tmp_path, address=daemon.address, XDG_RUNTIME_DIR=str(daemon.home)):
            assert array_api.sum(array_api.ones(3)).item() == 3.0
            with pytest.raises(td.ConnectionLost, match="the tensor's session has ended"):
                array_api.sum(old)
    assert len(opened) == 2


def test_a_machine_in_this_process_does_not_take_the_place_of_a_daemon_that_has_ended(tmp_path, monkeypatch, opened):
    """Otherwise a program would go on alone without notice."""
    with Daemon.start(tmp_path) as daemon:
        monkeypatch.setenv("TENSORD_ADDRESS", daemon.address)
        array_api.ones(3).wait()
        assert daemon.stop() == 0
    monkeypatch.delenv("TENSORD_ADDRESS")
    with pytest.raises(td.ConnectionLost):
        array_api.ones(3).numpy()
    with pytest.raises(td.ConnectionLost, match="tensord serve"):
        array_api.ones(3)
    assert len(opened) == 1


# -- forks -------------------------------------------------------------------------------------------------------------

FORK = """
import json
ours, theirs = os.pipe()
child = os.fork()
if not child:
    signal.alarm(20)
    told = []
    try:
        xp.sum(old)
    except td.ConnectionLost as error:
        told.append(str(error))
    z = xp.ones((300, 300))
    told.append((z @ z)[0, 0].item())
    told.append(xp._core is not old._core)
    try:
        xp.sum(old)
    except td.ConnectionLost as error:
        told.append(str(error))
    os.write(theirs, json.dumps(told).encode())
    os._exit(0)
os.waitpid(child, 0)
os.close(theirs)
json.loads(os.read(ours, 1 << 16))
"""


@pytest.mark.parametrize("where", ["embedded", "daemon"])
def test_a_child_opens_its_own(where, daemon, tmp_path):
    """Also where its parent's machine had threads, which the child does not have; and the parent's goes on."""
    environment = {"TENSORD_ADDRESS": daemon.address if where == "daemon" else "", "XDG_RUNTIME_DIR": str(tmp_path)}
    with Puppet.start(**environment) as parent:
        parent.do("import tensord.array_api as xp\nz = xp.ones((300, 300))\nold = z @ z\nold.wait()")
        mine, computed, another, lost = parent.do(FORK)
        assert "connect again after a fork" in mine
        assert computed == 300.0
        assert another
        assert "the tensor's session has ended" in lost
        assert parent.do("xp.sum(old).item()") == 300.0**3


def test_a_child_does_not_wait_for_who_is_opening_one_in_its_parent(tmp_path):
    """A lock that a thread held at the fork is free in the child."""
    with Puppet.start(TENSORD_ADDRESS="", XDG_RUNTIME_DIR=str(tmp_path)) as parent:
        parent.do(
            "import threading\nimport tensord.array_api as xp\nfrom tensord.client.session import default_namespace"
        )
        parent.do("connect, inside, on = default_namespace.connect, threading.Event(), threading.Event()")
        parent.do("def slow(address):\n    inside.set()\n    on.wait(30)\n    return connect(address)")
        parent.do("default_namespace.connect = slow\nopening = threading.Thread(target=xp.ones, args=(3,))")
        parent.do("opening.start()\ninside.wait(30)")
        child = (
            "signal.alarm(20)\n    default_namespace.connect = connect\n    os._exit(int(xp.sum(xp.ones(3)).item()))"
        )
        fork = f"child = os.fork()\nif not child:\n    {child}\n"
        assert parent.do(f"{fork}os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])") == 3
        assert parent.do("on.set()\nopening.join(30)\nxp.sum(xp.ones(3)).item()") == 3.0


# -- tensors of other sessions -----------------------------------------------------------------------------------------

USES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "one": lambda xp, _, there: xp.sin(there),
    "left": lambda xp, here, there: xp.add(there, here),
    "right": lambda xp, here, there: xp.add(here, there),
    "attributes": lambda xp, _, there: xp.sum(there, axis=0),
    "several": lambda xp, here, there: xp.concat([here, there]),
    "asarray": lambda xp, _, there: xp.asarray(there),
    "nested": lambda xp, here, there: xp.asarray([here, there]),
    "like": lambda xp, _, there: xp.zeros_like(there),
    "full": lambda xp, _, there: xp.full(3, there[0]),
    "astype": lambda xp, _, there: xp.astype(there, xp.float64, copy=False),
    "broadcast_arrays": lambda xp, here, there: xp.broadcast_arrays(here, there),
    "meshgrid": lambda xp, here, there: xp.meshgrid(here, there),
    "unstack": lambda xp, _, there: xp.unstack(there),
    "where": lambda xp, here, there: xp.where(here > 0.0, here, there),
    "linalg": lambda xp, here, there: xp.linalg.outer(here, there),
    "fft": lambda xp, _, there: xp.fft.fft(there),
    "operator": lambda _, here, there: here + there,
    "in place": lambda _, here, there: here.__iadd__(there),
    "index": lambda _, here, there: here[there > 0.0],
    "value": lambda _, here, there: here.__setitem__(0, there[0]),
}


@each_case("use", USES.values(), ids=USES)
def test_a_tensor_of_another_session_is_refused_with_what_to_do(xp, session, use):
    here, there = xp.ones(2), session.xp.ones(2)
    with pytest.raises(td.MetadataError, match="belongs to another session; publish it and look it up") as error:
        use(xp, here, there)
    assert Path(__file__).name in str(error.value)


# -- namespaces as objects ---------------------------------------------------------------------------------------------


def test_a_tensor_says_the_same_namespace_each_time(xp, session, make_session):
    x, y, there = session.asarray(1.0), session.asarray(2.0), make_session().asarray(1.0)
    mine = x.__array_namespace__()
    assert mine is x.__array_namespace__() is y.__array_namespace__() is session.xp
    assert there.__array_namespace__() != mine
    assert xp.ones(1).__array_namespace__() is xp is xp._core.as_session().xp
    assert len({mine, session.xp, there.__array_namespace__(), there._core.as_session().xp, xp, array_api}) == 3
    assert mine.__name__ == "tensord.array_api"
    assert repr(mine) == "<array API namespace of <tensord.Session at local, in this process: cpu:0>>"


def test_a_namespace_is_asked_for_by_version(session):
    x = session.asarray(1.0)
    for version in (None, "2021.12", "2022.12", "2023.12", "2024.12", "2025.12"):
        assert x.__array_namespace__(api_version=version) is session.xp
    for version in ("2030.12", "1"):
        with pytest.raises(ValueError, match=r"no array API .*2024\.12, 2025\.12"):
            x.__array_namespace__(api_version=version)


def test_threads_that_ask_first_get_the_same_namespace(session, monkeypatch):
    """The thread that makes it is held up until the other one asks, too."""
    make, wanted, found = Namespace.__init__, threading.Barrier(2), []

    def slow(made: Any, owner: Core) -> None:
        wanted.wait(PATIENCE)
        make(made, owner)

    def want(*, first: bool) -> None:
        if not first:
            wanted.wait(PATIENCE)
        found.append(session.xp)

    monkeypatch.setattr(Namespace, "__init__", slow)
    threads = [threading.Thread(target=want, kwargs={"first": n == 0}) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert found[0] is found[1]


def test_a_namespace_keeps_its_session_and_a_session_no_namespace(make_session):
    session = make_session()
    xp = weakref.ref(session.xp)
    gc.collect()
    assert xp() is None
    assert session.xp.ones(1)._core is session._core


def test_copies_of_namespaces_and_functions_are_themselves(xp, session):
    """As with functions of modules: a copy of an estimator with a function in it keeps the function."""
    for each in (xp, xp.linalg, xp.fft, session.xp, session.xp.linalg, xp.sin, session.xp.linalg.inv):
        assert copy.copy(each) == each
        assert copy.deepcopy(each) == each
    assert copy.deepcopy(session.xp) is session.xp


def unpickled(thing: Any) -> Any:
    """The object as a pickle would restore it."""
    if isinstance(thing, str):
        return thing
    function, arguments = thing.__reduce_ex__(4)
    return function(*map(unpickled, arguments))


def test_the_module_is_pickled_by_name_and_a_session_s_namespace_not_at_all(xp, session):
    for each in (xp, xp.linalg, xp.fft, xp.sin, xp.linalg.inv):
        assert unpickled(each) == each
    for each in (session.xp, session.xp.linalg, session.xp.fft, session.xp.sin):
        with pytest.raises(TypeError, match=r"use the functions of the module tensord\.array_api"):
            unpickled(each)


def test_a_session_that_was_connected_to_is_not_the_default_one(xp, opened):
    with td.connect("local:default") as session:
        x = session.xp.ones(2)
        assert x._core is session._core
        assert not opened
        with pytest.raises(td.MetadataError, match="another session"):
            xp.sum(x)
        session.publish("x", x)  # the same machine: the default session finds tensors published there
        assert xp.sum(xp._core.as_session().lookup("x")).item() == 2.0
        session.unpublish("x")
    assert [each is session for each in opened] == [False]

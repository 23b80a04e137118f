"""Descriptors, memory, disk space and sessions are freed in time: none waits for the cycle collector.

The collector is off in these tests, so objects in a reference cycle stay.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import tensord as td
from tensord.vm.machine import MACHINES

from .looking_inside import WAIT, machine_of

BIG = 5 << 20  # elements: 40 MiB
ENGINES = (None, "serial")


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def open_files(below: Path) -> list[str]:
    """Files that this process has open in a directory, removed ones included."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.append(str(descriptor.readlink()))
    return [path for path in found if path.startswith(str(below))]


def resident() -> int:
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a file of tensors and a directory of checkpoints with an `x`."""
    np.savez(tmp_path / "some.npz", x=np.arange(8.0))
    with td.connect("local") as session:
        session.publish("x", session.asarray(np.zeros(4)))
        session.checkpoint(tmp_path / "checkpoints").wait()
    return tmp_path


# -- files -------------------------------------------------------------------------------------------------------------


def restore(session: td.Session, files: Path) -> None:
    session.restore(files / "checkpoints")


def restore_and_read(session: td.Session, files: Path) -> None:
    session.restore(files / "checkpoints")
    assert session.lookup("x").tolist() == [0.0] * 4


def load(session: td.Session, files: Path) -> None:
    assert session.load(files / "some.npz")["x"].numpy()[1] == 1


def publish_loaded(session: td.Session, files: Path) -> None:
    session.publish("loaded", session.load(files / "some.npz")["x"])


def publish_a_view_of_loaded(session: td.Session, files: Path) -> None:
    session.publish("loaded", session.load(files / "some.npz")["x"][2:4])


def save(session: td.Session, files: Path) -> None:
    session.save(files / "saved.safetensors", {"x": session.asarray(np.ones(4))}).wait()


def checkpoint_what_was_restored(session: td.Session, files: Path) -> None:
    session.restore(files / "checkpoints")
    session.publish("y", session.asarray(np.ones(4)))
    session.checkpoint(files / "checkpoints", keep=1).wait()
    session.publish("x", session.asarray(np.ones(4)))
    session.checkpoint(files / "checkpoints", keep=1).wait()


def fail_to_load(session: td.Session, files: Path) -> None:
    (files / "bad.npz").write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(td.TensordError):
        session.load(files / "bad.npz")


def leave_a_checkpoint_to_itself(session: td.Session, files: Path) -> None:
    session.publish("y", session.asarray(np.ones(4)))
    session.checkpoint(files / "checkpoints")


USES = (
    restore,
    restore_and_read,
    load,
    publish_loaded,
    publish_a_view_of_loaded,
    save,
    checkpoint_what_was_restored,
    fail_to_load,
    leave_a_checkpoint_to_itself,
)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("use", USES)
def test_no_file_is_open_once_a_machine_is_closed(
    files: Path, use: Callable[[td.Session, Path], None], engine: Literal["serial"] | None
):
    with td.connect("local", engine=engine) as session:
        use(session, files)
    assert open_files(files) == []


def test_no_file_is_open_once_a_machine_with_durable_names_and_a_store_is_closed(files):
    (files / "store").mkdir()
    store = {"name": "store:0", "directory": str(files / "store"), "quota": 1 << 24, "durable": str(files / "durable")}
    for _ in range(2):
        with td.connect("local", devices=[{"name": "cpu:0", "memory": 1 << 20}, store]) as session:
            for each in range(4):
                session.publish(f"x{each}", session.asarray(np.full(1 << 16, each)), durable=True)
            with suppress(td.TensordError):
                session.restore(files / "durable")
            session.sync(durable=True)
        assert open_files(files) == []


def test_no_file_is_open_once_a_machine_with_a_fault_is_closed(files):
    with td.connect("local") as session:
        session.restore(files / "checkpoints")
        publish_loaded(session, files)
        session.sync()
        machine = machine_of(session)
        machine.fault = td.ConnectionLost("made by the test")
        machine.close()
    assert open_files(files) == []


def test_what_a_name_held_in_files_is_closed_while_the_machine_goes_on(files):
    with td.connect("local") as session:
        restore_and_read(session, files)
        publish_loaded(session, files)
        session.unpublish("x", "loaded")
        session.sync()
        assert open_files(files) == []


def test_closed_machines_keep_no_removed_generation_on_the_disk(files):
    with td.connect("local") as before:
        before.restore(files / "checkpoints")
    with td.connect("local") as session:
        for value in range(3):
            session.publish("x", session.asarray(np.full(4, value)))
            session.checkpoint(files / "checkpoints", keep=1).wait()
        assert [path for path in open_files(files) if path.endswith("(deleted)")] == []
        assert len(list((files / "checkpoints").glob("*.values"))) <= 1


# -- memory ------------------------------------------------------------------------------------------------------------


def publish(session: td.Session) -> None:
    session.publish("x", session.asarray(np.ones(BIG)))


def publish_on_sim(session: td.Session) -> None:
    session.publish("x", session.asarray(np.ones(BIG), device="sim:0"))


def compute(session: td.Session) -> None:
    x = session.asarray(np.ones(BIG))
    y = x + 1
    assert y[0].item() == 2.0


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("use", [publish, publish_on_sim, compute])
def test_no_memory_is_kept_once_a_machine_is_closed(
    use: Callable[[td.Session], None], engine: Literal["serial"] | None
):
    def run() -> None:
        with td.connect("local", devices=["cpu:0", "sim:0"], engine=engine) as session:
            use(session)

    run()
    before = resident()
    for _ in range(3):
        run()
    assert resident() - before < 40 << 20


# -- sessions that are never closed ------------------------------------------------------------------------------------


def a_routine(session: td.Session) -> None:
    step = session.routine(lambda x, rate: x * rate + session.random.normal((4,)))
    step(session.asarray(np.ones(4)), 2.0).wait()
    step(session.asarray(np.ones(4)), 2.0).wait()


def a_routine_with_control_flow(session: td.Session) -> None:
    step = session.routine(lambda x: session.repeat(3, lambda y: y + session.random.normal((4,)), x))
    step(session.asarray(np.ones(4))).wait()


def a_routine_that_fails(session: td.Session) -> None:
    step = session.routine(lambda x: x.item())
    with suppress(td.CaptureError):
        step(session.asarray(np.ones(4)))


def a_published_routine(session: td.Session) -> None:
    w = session.asarray(np.ones(4))
    step = session.routine(lambda x: x * w)
    x = session.asarray(np.ones(4))
    step(x)
    session.publish("step", step)
    session.lookup("step")(x).wait()


def the_namespaces(session: td.Session) -> None:
    x = session.asarray(np.ones(4))
    for made in (session.xp.sum(x), session.xp.fft.fft(x), session.nn.relu(x), session.random.normal((3,))):
        made.wait()


def a_context_and_a_span(session: td.Session) -> None:
    with session.context() as context, session.span("part"):
        context["y"] = session.asarray(np.ones(4)) + 1


def an_error(session: td.Session) -> None:
    with suppress(td.TensordError):
        session.xp.linalg.inv(session.asarray(np.zeros((2, 2)))).wait()
    with suppress(td.TensordError):
        session.asarray(np.ones(3)) @ session.asarray(np.ones(4))


def effects(session: td.Session) -> None:
    session.effect(lambda _: None, session.asarray(np.ones(4)))
    session.check_chain()


def a_handler(session: td.Session) -> None:
    session.handler = td.handlers.LoggingHandler(session.handler)
    (session.asarray(np.ones(4)) + 1).wait()


@pytest.mark.parametrize(
    "use",
    [
        a_routine,
        a_routine_with_control_flow,
        a_routine_that_fails,
        a_published_routine,
        the_namespaces,
        a_context_and_a_span,
        an_error,
        effects,
        a_handler,
    ],
)
def test_a_session_ends_with_its_last_reference(use: Callable[[Any], None]):
    session = td.connect("local")
    use(session)
    (machine,) = (one for one in MACHINES if not one.closed)
    del session
    machine.background.thread.join(WAIT)
    assert machine.closed

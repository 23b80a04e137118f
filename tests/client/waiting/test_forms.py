"""Each call that waits has an awaitable form, and none of the forms blocks the loop's thread.

The daemon stands still while a form is called (SIGSTOP): a form that waited on the loop's thread would hang there.
"""

from __future__ import annotations

import asyncio
import inspect
import signal
from collections.abc import Iterator
from typing import Any

import pytest

import tensord as td
from tensord.client.files.checkpoints import Checkpointing
from tensord.client.files.saving import Saving
from tensord.client.host_arrays.host_arrays import HostPool
from tensord.client.linking.linked_routine import LinkedRoutine
from tensord.client.linking.linking import LinkedProgram
from tensord.client.outbox.outbox import Outbox
from tensord.client.routines.routine import Routine
from tensord.client.session.session import Session
from tensord.client.tensor.tensor import Tensor

from ...behaviours.looking_inside import WAIT
from ...daemon import Daemon
from ...each_case import each_case
from ...puppet import paused
from ..public_entries import entries, names_for, program
from .forms import FORMS, given
from .watching import watch

KINDS = (Tensor, Session, HostPool, Routine, LinkedRoutine, LinkedProgram, Saving, Checkpointing)
TIMEOUTS = {"timeout"}  # parameters that `asyncio.timeout` stands for
UNANSWERED = {"Session.close_async", "Session.flush_async", "Session.save_async"}  # they may need no answer
TURNS = 20  # of the loop, in which a form could end if it needed no answer

# Blocking entry -> its awaitable form.
IN_PLACE = {
    **dict.fromkeys(("wait", "shape", "dtype", "ndim", "size", "nbytes"), "Tensor.__await__"),
    **dict.fromkeys(("__iter__", "__len__"), "Tensor.__await__"),
    **dict.fromkeys(("__bool__", "__int__", "__float__", "__complex__", "__index__"), "Tensor.item_async"),
    **dict.fromkeys(("__contains__", "__format__"), "Tensor.item_async"),
    **dict.fromkeys(("__dlpack__", "__str__"), "Tensor.numpy_async"),
}


def awaitable_forms() -> dict[str, Any]:
    """The public awaitable forms of all kinds, by name."""
    return {
        f"{kind.__name__}.{name}": getattr(kind, name)
        for kind in KINDS
        for name in dir(kind)
        if name == "__await__" or (name.endswith("_async") and not name.startswith("_"))
    }


def test_each_form_is_tried_here():
    assert set(FORMS) == set(awaitable_forms())


@each_case("name", [name for name in awaitable_forms() if name.endswith("_async")])
def test_a_form_takes_what_its_namesake_takes(name):
    kind = next(one for one in KINDS if one.__name__ == name.partition(".")[0])
    namesake = getattr(kind, name.partition(".")[2].removesuffix("_async"))
    if isinstance(namesake, property):
        namesake = namesake.fget
    wanted = {key: one for key, one in inspect.signature(namesake).parameters.items() if key not in TIMEOUTS}
    assert dict(inspect.signature(awaitable_forms()[name]).parameters) == wanted


class Noting:
    """Notes the entries that wait; in place of `Watch` in their program."""

    def __init__(self) -> None:
        self.current = ""
        self.waiting: set[str] = set()

    def begin(self, name: str) -> None:
        """The following calls belong to that entry."""
        self.current = name

    def fail(self, error: Exception) -> None:
        """The entry has raised an error."""

    def installed(self, patch: pytest.MonkeyPatch) -> None:
        """Note from now on."""
        await_reply = Outbox.await_reply

        def noted(outbox: Outbox, *args: Any, **kwargs: Any) -> Any:
            self.waiting.add(self.current)
            return await_reply(outbox, *args, **kwargs)

        patch.setattr(Outbox, "await_reply", noted)


def test_whatever_waits_has_one(daemon, monkeypatch):
    """Every public entry is called, and those that ask the machine and wait for it are noted."""
    noting = Noting()
    with daemon.connect() as session:
        text, _ = program(entries(session), "")
        names = names_for(session) | {"watch": noting}
        with monkeypatch.context() as patch:
            noting.installed(patch)
            exec(compile(text, "job.py", "exec"), names)  # noqa: S102 - a program of calls
    forms = {name.partition(".")[2].removesuffix("_async") for name in awaitable_forms()}
    assert {"numpy", "fetch", "sync", "names", "stats", "publish", "is_ready", "error"} <= noting.waiting
    assert not noting.waiting - forms - set(IN_PLACE)


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon of this module's own."""
    with Daemon.start(tmp_path_factory.mktemp("far"), "--device", "cpu:0") as running:
        yield running


@each_case("name", FORMS)
def test_none_holds_up_the_loop_of_a_client_whose_daemon_stands_still(far, name, tmp_path, monkeypatch):
    form, folder = FORMS[name], tmp_path / name
    folder.mkdir()
    with td.connect(far.address) as session:
        g = given(session, folder, files=form.files)

        async def main() -> None:
            task = asyncio.ensure_future(form.call(g))
            for _ in range(TURNS):
                await asyncio.sleep(0)
            done = task.done()
            far.signal(signal.SIGCONT)
            assert name in UNANSWERED or not done
            results.append(await asyncio.wait_for(task, WAIT))

        results: list[Any] = []  # not the task's result, since `asyncio.run` makes a text of its task at the end
        with paused(far), monkeypatch.context() as patch:
            sleeps = watch(patch)
            asyncio.run(main())
        assert sleeps == []
        assert form.is_right(results[0])


@each_case("engine", ["vm", "serial"])
@each_case("name", FORMS)
def test_none_holds_up_the_loop_of_a_process_that_holds_the_machine(engine, name, tmp_path, monkeypatch):
    if (engine, name) == ("serial", "Session.trace_async"):
        pytest.skip("the serial engine keeps no trace")
    form, folder = FORMS[name], tmp_path / engine / name
    folder.mkdir(parents=True)
    with td.connect("local", engine=engine) as session:
        g = given(session, folder, files=form.files)

        async def main() -> None:
            results.append(await asyncio.wait_for(asyncio.ensure_future(form.call(g)), WAIT))

        results: list[Any] = []
        with monkeypatch.context() as patch:
            sleeps = watch(patch)
            asyncio.run(main())
        assert sleeps == []
        assert form.is_right(results[0])
        if not session.closed:
            session.unpublish(*session.names())

"""Side effects, on every kind of machine."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.client.outbox.callbacks import refusing
from tensord.client.requests import printing

from ...behaviours.looking_inside import WAIT
from ...forked import run_script


def test_a_callback_sees_the_context_variables_of_the_thread_that_waits():
    mode: ContextVar[str] = ContextVar("mode", default="usual")
    seen: list[str] = []
    with td.connect("local", devices=["cpu:0"]) as session:
        mode.set("the caller's")
        session.effect(lambda _: seen.append(mode.get()), session.asarray([1.0]))
        session.check_chain()
    assert seen == ["the caller's"]


def test_a_callback_may_cancel_and_the_effects_behind_it_do_not_run(session):
    """The effect that cancels has run; earlier calls that have not run are cancelled."""
    x = session.asarray(np.ones(4))
    seen: list[str] = []

    def cancel(_: object) -> None:
        seen.append("cancels")
        session.cancel()

    session.effect(cancel, x)
    for _ in range(3):
        session.effect(lambda _: seen.append("behind it"), x)
    with pytest.raises(td.CancelledError):
        session.check_chain()
    assert seen == ["cancels"]
    with pytest.raises(td.CancelledError):
        (x + 1.0).wait()
    session.restart()
    session.effect(lambda _: seen.append("afterwards"), x)
    session.check_chain()
    assert seen == ["cancels", "afterwards"]
    assert (x + 1.0).tolist() == [2.0] * 4


def test_a_callback_that_cancels_and_raises_breaks_no_chain_for_good(session):
    def fail() -> None:
        session.cancel()
        raise ValueError("after the cancellation")

    session.effect(fail)
    with pytest.raises((td.CancelledError, td.KernelError)):
        session.check_chain()
    session.restart()
    seen: list[str] = []
    session.effect(lambda: seen.append("afterwards"))
    session.check_chain()
    assert seen == ["afterwards"]


ISSUES: list[Callable[[Any, Any], object]] = [
    lambda _, x: x + 1.0,
    lambda _, x: x.__iadd__(1.0),
    lambda session, x: session.call("sum", [x]),
    lambda session, _: session.asarray([1.0]),
    lambda session, _: session.print("inside"),
    lambda session, _: session.chain(),
]


@pytest.mark.parametrize("unsent", [False, True])
@pytest.mark.parametrize("issue", ISSUES)
def test_a_callback_may_not_issue(session, capsys, issue, unsent):
    """The first message is refused, whether or not others wait to be sent; nothing of it is left."""
    x = session.asarray(np.ones(4))
    (x + 1.0).wait()
    before = x + 1.0 if unsent else None
    session.effect(lambda _: issue(session, x), x)
    with pytest.raises(td.ProtocolError, match="may neither send nor wait"):
        session.check_chain()
    assert x.tolist() == [1.0] * 4
    assert before is None or before.tolist() == [2.0] * 4
    assert capsys.readouterr().out == ""


def spanned(session: Any, x: Any) -> None:
    with session.span("inside"):
        x + 1.0


@pytest.mark.parametrize("issue", [*ISSUES, spanned])
def test_a_callback_is_refused_although_another_thread_is_inside_the_session(session, issue):
    """A line is numbered under the session's lock, too: the callback's thread does not wait for the lock."""
    x = session.asarray(np.ones(4))
    (x + 1.0).wait()
    outbox, refused = session._core.outbox, []

    def call() -> None:
        with pytest.raises(td.ProtocolError, match="may neither send nor wait") as caught:
            refusing(outbox, issue)(session, x)
        refused.append(caught.value)

    thread = threading.Thread(target=call)
    with outbox.lock:
        thread.start()
        thread.join(WAIT)
        assert not thread.is_alive()
    assert len(refused) == 1
    assert x.tolist() == [1.0] * 4


@pytest.mark.parametrize("engine", ["vm", "serial"])
def test_a_callback_is_refused_by_all_sessions_of_its_machine(engine):
    """The thread inside the other session may be waiting for the machine, which the callback's thread holds."""
    refused = []
    with td.connect("local:callbacks", engine=engine) as one, td.connect("local:callbacks", engine=engine) as other:
        x = other.asarray(np.ones(4))

        def issue() -> None:
            with pytest.raises(td.ProtocolError, match="may neither send nor wait") as caught:
                x + 1.0
            refused.append(caught.value)

        one.effect(issue)
        one.check_chain()
        thread = threading.Thread(target=refusing(one._core.outbox, issue))
        with other._core.outbox.lock:
            thread.start()
            thread.join(WAIT)
            assert not thread.is_alive()
        assert len(refused) == 2
        assert (x + 1.0).tolist() == [2.0] * 4


def test_while_a_callback_runs_other_threads_issue(session):
    x = session.asarray(np.ones(4))
    made: list[Any] = []

    def wait() -> None:
        thread = threading.Thread(target=lambda: made.append(x + 1.0))
        thread.start()
        thread.join(10.0)

    refusing(session._core.outbox, wait)()
    assert [one.tolist() for one in made] == [[2.0] * 4]


def test_a_callback_may_not_restart(session):
    session.effect(session.restart)
    with pytest.raises(td.ProtocolError, match="may neither send nor wait"):
        session.check_chain()


def test_an_exception_whose_text_cannot_be_made_is_an_error_of_its_effect(session):
    class UnspeakableError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    def fail() -> None:
        raise UnspeakableError

    session.effect(fail)
    with pytest.raises(td.KernelError, match="UnspeakableError"):
        session.check_chain()
    assert session.asarray([1.0]).tolist() == [1.0]


# -- print -------------------------------------------------------------------------------------------------------------


def failed(session: Any) -> Any:
    return session.xp.linalg.inv(session.asarray(np.zeros((2, 2))))


def test_a_failed_tensor_prints_its_error_in_its_place_and_the_chain_goes_on(session, capsys):
    x = session.asarray([1.0, 2.0])
    session.print("before")
    session.print("bad", failed(session), "good", x)
    session.print("after", x + 1.0)
    session.check_chain()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "before"
    assert lines[1].startswith("bad <KernelValueError: inv: LinAlgError: Singular matrix [")
    assert "test_effects.py" in lines[1]
    assert lines[1].endswith("]> good [1. 2.]")
    assert lines[2] == "after [2. 3.]"


def test_prints_are_ordered_with_the_other_effects_of_their_chain(session, capsys):
    x, chain = session.asarray([1.0]), session.chain()
    session.effect(lambda: sys.stdout.write("one\n"), chain=chain)
    session.print("two", x, chain=chain, sep=": ")
    x += 1.0
    session.effect(lambda array: sys.stdout.write(f"three {array}\n"), x, chain=chain)
    session.check_chain(chain)
    assert capsys.readouterr().out.splitlines() == ["one", "two: [1.]", "three [2.]"]


def test_a_print_shows_other_objects_as_they_were_at_the_call(session, capsys):
    things = ["then"]
    session.print(things, failed(session).dtype)
    things[0] = "now"
    session.check_chain()
    assert capsys.readouterr().out == "['then'] float64\n"


def test_behind_an_error_of_another_effect_nothing_is_printed_and_the_end_says_so(make_session, capsys, caplog):
    session = make_session()
    session.effect(lambda: 1 // 0)
    session.print("behind it")
    session.close()
    assert not capsys.readouterr().out
    assert "1 prints were lost with the end of their session: effect: ZeroDivisionError" in caplog.text


def test_open_prints_are_written_before_a_session_ends(make_session, capsys, caplog):
    session = make_session(devices=["cpu:0", {"name": "sim:0", "compute_delay": 0.02}])
    with session:
        session.print("the end", session.asarray([1.0], device="sim:0") + 1.0)
    assert capsys.readouterr().out == "the end [2.]\n"
    assert not caplog.text


def test_prints_that_were_cancelled_are_dropped(make_session, capsys, caplog):
    session = make_session(devices=["cpu:0", {"name": "sim:0", "compute_delay": 0.05}])
    session.print("dropped", session.asarray([1.0], device="sim:0") + 1.0)
    session.flush()
    session.cancel()
    session.close()
    assert capsys.readouterr().out in {"", "dropped [2.]\n"}  # the serial engine prints at once
    assert not caplog.text


def test_prints_that_are_not_ready_in_time_are_counted(make_session, capsys, caplog, monkeypatch):
    monkeypatch.setattr(printing, "PATIENCE", 0.02)
    session = make_session(devices=["cpu:0", {"name": "sim:0", "compute_delay": 0.6}])
    for _ in range(3):
        session.print("late", session.asarray([1.0], device="sim:0") + 1.0)
    session.close()
    if "lost" in caplog.text:  # the serial engine is never late
        assert "3 prints were lost with the end of their session: they were not ready within 0.02 s" in caplog.text
        assert not capsys.readouterr().out


SCRIPT = """
import tensord as td
s = td.connect({0!r}, {1})
def dropped():
    t = td.connect({0!r}, {1})
    t.print("of a session that was dropped", t.asarray([1.0], device="sim:0") + 1.0)
dropped()
s.print("last line", s.asarray([1.0], device="sim:0") + 2.0)
"""


@pytest.mark.parametrize("where", ["here", "daemon"])
def test_prints_are_written_before_a_script_ends(request, where, tmp_path):
    if where == "daemon":
        source = SCRIPT.format(request.getfixturevalue("daemon").address, "")
    else:
        source = SCRIPT.format("local", 'devices=["cpu:0", {"name": "sim:0", "compute_delay": 0.05}]')
    (tmp_path / "script.py").write_text(source)
    done = run_script(str(tmp_path / "script.py"))
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == ["last line [3.]", "of a session that was dropped [2.]"]
    assert not done.stderr


def test_an_op_right_behind_a_new_chain_is_on_its_way_although_nobody_asks(session):
    """The chain's message is the first one of the batch, so the op's is not, and wakes no thread."""
    x = session.asarray(np.ones(4))
    (x + 1.0).wait()
    background = session._core.transport.machine.background
    assert session._core.transport.machine.wait_until(lambda: not background.awake, WAIT)
    session.chain()
    keep = x + 1.0
    assert background.awake
    assert keep.numpy().tolist() == [2.0] * 4


@pytest.fixture
def inside():
    """inside(session): another thread enters an atomic block of the session, and leaves it after the test."""
    leave, threads = threading.Event(), []

    def enter(session, work=lambda: None):
        entered = threading.Event()

        def block():
            with session.atomic():
                work()
                entered.set()
                leave.wait(WAIT)

        threads.append(threading.Thread(target=block))
        threads[-1].start()
        assert entered.wait(WAIT)
        return threads[-1]

    yield enter
    leave.set()
    for thread in threads:
        thread.join(WAIT)


def test_the_exit_waits_for_prints_although_another_thread_is_inside_atomic(make_session, inside, capsys, caplog):
    session = make_session(devices=["cpu:0", {"name": "sim:0", "compute_delay": 0.1}])
    session.print("sent before", session.asarray([1.0], device="sim:0") + 1.0)
    session.flush()
    thread = inside(session)
    printing.EXIT.finish()
    assert thread.is_alive()
    assert capsys.readouterr().out == "sent before [2.]\n"
    assert not caplog.text


def test_the_exit_gives_up_prints_that_another_thread_keeps_from_being_sent(
    make_session, inside, capsys, caplog, monkeypatch
):
    monkeypatch.setattr(printing, "PATIENCE", 0.02)
    session = make_session()
    thread = inside(session, lambda: session.print("unsent"))
    printing.EXIT.finish()
    assert thread.is_alive()
    assert not capsys.readouterr().out
    assert "1 prints were lost with the end of their session: they were not ready within" in caplog.text


def test_the_exit_has_one_deadline_for_all_sessions(make_session, monkeypatch):
    sessions = [make_session() for _ in range(2)]
    deadlines = []
    for session in sessions:
        session.print("one")
        session.check_chain()
    with monkeypatch.context() as patch:
        patch.setattr(printing.Printing, "finish", lambda _, deadline=None: deadlines.append(deadline))
        printing.EXIT.finish()
    assert len(deadlines) >= 2
    assert len(set(deadlines)) == 1
    assert None not in deadlines


def test_a_callback_may_show_a_tensor(session):
    """A log line or a debugger shows tensors anywhere."""
    x, shown = session.asarray(np.ones(4)), []
    session.effect(lambda: shown.append(repr(x)))
    session.check_chain()
    assert shown == [f"<tensor {x._id} float64[4] on {x.device}, pending>"]


@pytest.mark.parametrize("engine", ["vm", "serial"])
def test_an_output_that_issues_ops_is_refused_and_the_chain_says_so(monkeypatch, engine):
    """A print calls the program's `sys.stdout.write`, which may not send either."""
    with td.connect("local", engine=engine) as session:
        x = session.asarray(np.ones(4))
        refused = []

        class Issuing(io.StringIO):
            def write(self, _text: str) -> int:
                try:
                    return (x + 1.0).size
                except td.ProtocolError as error:
                    refused.append(error)
                    raise

        monkeypatch.setattr(sys, "stdout", Issuing())
        session.print("a line")
        with pytest.raises(td.TensordError, match="may neither send nor wait"):
            session.check_chain()
        assert refused
        assert x.tolist() == [1.0] * 4

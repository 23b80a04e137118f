"""Linked programs on every kind of machine: runs, side effects, lines, releases."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tensord as td
from tensord.client.linking.linked import Bindings, ProgramBinding
from tensord.client.session.session import Session
from tensord.interpreter.programs.builder import Builder
from tensord.interpreter.programs.numbers import PARAMETER
from tensord.interpreter.programs.program import Program
from tensord.interpreter.types.meta import Meta

from ...each_case import each_case
from ...forked import run_script

ONE = Meta.of((1,), "float64")

anywhere = pytest.mark.parametrize("machines", ["here", "serial", "daemon"], indirect=True)


def step(*, effects: bool = False) -> Program:
    """(x, y, n; captured w): x += y * n; returns x + w. Perhaps it prints x in between, and calls back with it."""
    builder = Builder()
    x, y = builder.parameter(ONE), builder.parameter(ONE)
    n = builder.number("float", PARAMETER)
    (product,) = builder.op("multiply", [y, ~n], location="model.py:1")
    (x,) = builder.op("add", [x, product], into=[x], location="model.py:2")
    if effects:
        builder.print(["x is", None], [x], location="model.py:3")
        builder.effect(0, [x], location="model.py:4")
    w = builder.captured(ONE)
    (total,) = builder.op("add", [x, w], location="model.py:5")
    return builder.finish([total])


def failing(*, effect: bool = False) -> Program:
    """(x): returns the square roots of a matrix that may have none, perhaps after a call back with them."""
    builder = Builder()
    x = builder.parameter(ONE)
    (matrix,) = builder.op("reshape", [x], {"shape": (1, 1)}, location="model.py:1")
    (root,) = builder.op("cholesky", [matrix], location="model.py:2")
    if effect:
        builder.effect(0, [root], location="model.py:3")
    return builder.finish([root])


def linked(session: Session, w: td.Tensor, callback: Callable[..., None] | None = None) -> ProgramBinding:
    return ProgramBinding(
        session._core, step(effects=callback is not None), Bindings(["cpu:0"], [w], (), [callback] if callback else ())
    )


@anywhere
def test_runs_are_what_their_ops_are(session: Session) -> None:
    x, y = session.asarray([1.0]), session.asarray([2.0])
    f = linked(session, session.asarray([100.0]))
    assert x.tolist() == [1.0]  # known from here on, and no longer true after a run
    totals = [f.run([x, y], [n])[0] for n in (1.0, 10.0)]
    assert [total.tolist() for total in totals] == [[103.0], [123.0]]
    assert x.tolist() == [23.0]
    assert (totals[0].shape, totals[0].dtype, totals[0].device) == ((1,), x.dtype, x.device)


@anywhere
def test_effects_and_prints_of_runs_come_in_their_order_with_their_values(
    make_session: Callable[..., Session], capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[float] = []
    with make_session() as session:
        x, y = session.asarray([0.0]), session.asarray([1.0])
        f = linked(session, y, lambda array: seen.append(float(array[0])))
        for _ in range(3):
            f.run([x, y], [1.0])
        session.print("behind", x)
        session.check_chain()
    assert seen == [1.0, 2.0, 3.0]
    assert capsys.readouterr().out == "x is [1.]\nx is [2.]\nx is [3.]\nbehind [3.]\n"


@anywhere
def test_the_end_of_a_session_waits_for_the_prints_of_runs(
    make_session: Callable[..., Session], capsys: pytest.CaptureFixture[str]
) -> None:
    with make_session() as session:
        x = session.asarray([0.0])
        linked(session, x, lambda _: None).run([x, x], [1.0])
    assert capsys.readouterr().out == "x is [0.]\n"


@anywhere
def test_effects_go_to_the_chains_that_they_are_linked_to(session: Session) -> None:
    def fail(_: Any) -> None:
        raise ValueError("no")

    x, chain = session.asarray([1.0]), session.chain()
    ProgramBinding(session._core, step(effects=True), Bindings(["cpu:0"], [x], [chain], [fail])).run([x, x], [1.0])
    session.check_chain()
    with pytest.raises(td.KernelError):
        session.check_chain(chain)


@anywhere
def test_a_callback_may_not_run_a_routine(session: Session) -> None:
    found: list[BaseException] = []

    def again(_: Any) -> None:
        try:
            f.run([x, x], [1.0])
        except td.ProtocolError as error:
            found.append(error)

    x = session.asarray([1.0])
    f = linked(session, x, again)
    f.run([x, x], [1.0])
    session.check_chain()
    assert ["may neither send nor wait" in str(error) for error in found] == [True]


@anywhere
def test_an_error_has_the_line_of_the_step(session: Session) -> None:
    f = ProgramBinding(session._core, failing(effect=True), Bindings(["cpu:0"], callbacks=[print]))
    (root,) = f.run([session.asarray([-1.0])])
    with pytest.raises(td.KernelError) as caught:
        root.numpy()
    assert (caught.value.op, caught.value.location) == ("cholesky", "model.py:2")
    with pytest.raises(td.KernelError) as caught:
        session.check_chain()
    assert caught.value.location == "model.py:2"
    assert f.run([session.asarray([4.0])])[0].tolist() == [[2.0]]


@anywhere
def test_the_lines_of_two_programs_are_not_mixed_up(session: Session) -> None:
    roots = []
    for name in ("first.py:7", "second.py:7"):
        builder = Builder()
        matrix = builder.parameter(Meta.of((1, 1), "float64"))
        program = builder.finish(list(builder.op("cholesky", [matrix], location=name)))
        roots.append(ProgramBinding(session._core, program, Bindings(["cpu:0"])).run([session.asarray([[-1.0]])])[0])
    for root, name in zip(roots, ("first.py:7", "second.py:7"), strict=True):
        with pytest.raises(td.KernelError) as caught:
            root.numpy()
        assert caught.value.location == name


@anywhere
def test_what_a_cancelled_session_runs_is_cancelled_at_the_callers_line(session: Session) -> None:
    x = session.asarray([1.0])
    f = linked(session, session.asarray([1.0]))
    session.flush()
    session.cancel()
    (total,) = f.run([x, x], [1.0])
    session.restart()
    with pytest.raises(td.CancelledError):
        total.numpy()
    y = session.asarray([1.0])
    ProgramBinding(session._core, step(), Bindings(["cpu:0"], [y])).run([y, y], [1.0])
    assert y.tolist() == [2.0]


# -- releases ------------------------------------------------------------------------------------------------------


@anywhere
@each_case("sent", [False, True])
def test_what_a_routine_captures_lives_until_its_last_run(session: Session, sent: bool) -> None:
    """The handles are dropped together, and a run that was issued before does not name the captured tensor."""
    x, y = session.asarray([1.0]), session.asarray([1.0])
    f = linked(session, session.asarray([100.0]))
    if sent:
        session.flush()
    (total,) = f.run([x, y], [1.0])
    del f, x, y
    assert total.tolist() == [102.0]


@anywhere
def test_what_a_routine_captures_lives_until_the_end_of_a_group(session: Session) -> None:
    x = session.asarray([1.0])
    with session.atomic():
        (total,) = linked(session, session.asarray([100.0])).run([x, x], [1.0])
    assert total.tolist() == [102.0]


@anywhere
def test_a_dropped_routine_is_released_behind_its_runs(
    session: Session, machines: str, machine_of: Callable[[Session], Any]
) -> None:
    x = session.asarray([1.0])
    totals = [linked(session, session.asarray([100.0])).run([x, x], [1.0])[0] for _ in range(5)]
    assert [total.tolist() for total in totals] == [[102.0], [104.0], [108.0], [116.0], [132.0]]
    session.sync()
    if machines == "here":
        (mine,) = machine_of(session).engine.directory.sessions.values()
        assert (mine.programs, mine.routines, mine.steps, mine.operands) == ({}, {}, 0, 0)
        assert len(mine.tensors) == 6


@anywhere
def test_results_that_nobody_keeps_are_released(
    session: Session, machines: str, machine_of: Callable[[Session], Any]
) -> None:
    x = session.asarray([1.0])
    f = linked(session, session.asarray([0.0]))
    for _ in range(300):
        f.run([x, x], [0.0])
    session.sync()
    if machines == "here":
        (mine,) = machine_of(session).engine.directory.sessions.values()
        assert len(mine.tensors) == 2


# -- ends ----------------------------------------------------------------------------------------------------------


@anywhere
def test_a_closed_session_runs_nothing_and_waits_for_no_print(make_session: Callable[..., Session]) -> None:
    with make_session() as session:
        x = session.asarray([1.0])
        f = linked(session, x, lambda _: None)
    with pytest.raises(td.ConnectionLost):
        f.run([x, x], [1.0])
    with pytest.raises(td.ConnectionLost):
        linked(session, x)
    assert not session._core.printing._open


@anywhere
def test_a_run_that_a_full_group_refuses_has_no_print_to_wait_for(
    make_session: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tensord.client.outbox.batches.GROUP", 1)
    with make_session() as session:
        x = session.asarray([1.0])
        f = linked(session, x, lambda _: None)
        with session.atomic():
            f.run([x, x], [1.0])
            with pytest.raises(td.ProtocolError, match="at most 1 messages"):
                f.run([x, x], [1.0])
        session.check_chain()
        assert not session._core.printing._open
        assert x.tolist() == [2.0]


@anywhere
def test_of_a_program_that_a_full_group_takes_in_part_nothing_is_left(
    make_session: Callable[..., Session],
    monkeypatch: pytest.MonkeyPatch,
    machines: str,
    machine_of: Callable[[Session], Any],
) -> None:
    monkeypatch.setattr("tensord.client.outbox.batches.GROUP", 1)
    monkeypatch.setattr("tensord.client.linking.linked.RECORDS_PER_MESSAGE", 1)
    with make_session() as session:
        x = session.asarray([1.0])
        with session.atomic(), pytest.raises(td.ProtocolError, match="at most 1 messages"):
            linked(session, x)
        assert x.tolist() == [1.0]
        session.sync()
        if machines == "here":
            (mine,) = machine_of(session).engine.directory.sessions.values()
            assert (mine.programs, mine.steps) == ({}, 0)


FORKED = """
import os, sys, warnings
import tensord as td
from tensord.client.linking.linked import Bindings, ProgramBinding
from tensord.interpreter.programs.builder import Builder
from tensord.interpreter.types.meta import Meta

builder = Builder()
x = builder.parameter(Meta.of((1,), "float64"))
builder.print(["x is", None], [x])
program = builder.finish(list(builder.op("negative", [x])))
with td.connect("local") as session:
    x = session.asarray([1.0])
    f = ProgramBinding(session._core, program, Bindings(["cpu:0"]))
    f.run([x])
    warnings.simplefilter("ignore")
    child = os.fork()
    if not child:
        try:
            f.run([x])
        except td.ConnectionLost as error:
            assert "connect again after a fork" in str(error)
            del f
            sys.exit(3)
        sys.exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    print(f.run([x])[0].tolist())
"""


def test_in_a_forked_child_a_routine_says_so_and_its_end_releases_nothing(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(FORKED)
    found = run_script(str(tmp_path / "script.py"))
    assert (found.returncode, found.stderr) == (0, "")
    assert sorted(found.stdout.splitlines()) == ["[-1.0]", "x is [1.]", "x is [1.]"]

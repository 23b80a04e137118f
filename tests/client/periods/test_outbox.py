"""Sessions that find periods: calls leave as runs, which differ from calls in the counts alone."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.client.periods import catalogue
from tensord.client.periods.learning import Learning
from tensord.client.session.session import Session
from tensord.client.tensor.tensor import Tensor
from tensord.interpreter.wire.message_kinds import CALL, LINK, PROGRAM, RELEASE, RUN

from ...each_case import each_case
from ...puppet import eventually

anywhere = pytest.mark.parametrize("machines", ["here", "daemon"], indirect=True)
SIZE = 4
OPS = 12  # of a step


@pytest.fixture
def auto(make_session: Callable[..., Session]) -> Session:
    return make_session(routines="auto", devices=["cpu:0", "sim:0"])


def ones(session: Session, *shape: int) -> Tensor:
    return session.asarray(np.ones(shape or SIZE))


def step(x: Tensor, w: Tensor, rate: float) -> Tensor:
    """Twelve calls, one of which writes `w`."""
    a = x * rate
    b = a + w
    c = b * b
    d = c - a
    e = d * 0.5
    f = e + x
    g = f - 1.0
    h = g * 0.25
    w -= h
    i = w * x
    j = i - h
    return j + a


def rounds(session: Session, count: int = 40, rate: float = 0.5) -> tuple[Tensor, Tensor]:
    x, w = ones(session), ones(session)
    for _ in range(count):
        x = step(x, w, rate)
    return x, w


def reference(count: int = 40, rate: float = 0.5) -> tuple[Any, Any]:
    """The same in NumPy."""
    x, w = np.ones(SIZE), np.ones(SIZE)
    for _ in range(count):
        a = x * rate
        c = (a + w) * (a + w)
        h = ((c - a) * 0.5 + x - 1.0) * 0.25
        w = w - h
        x = w * x - h + a
    return x, w


def counts(session: Session) -> dict[str, int]:
    found: dict[str, int] = session.stats()["periods"]
    return found


def learn(session: Session) -> None:
    """Run the step until its period is known and linked."""
    rounds(session, 60)
    session.sync()
    rounds(session, 30)
    session.sync()
    assert counts(session)["runs"] > 0


@anywhere
def test_a_loop_is_sent_as_runs_with_the_values_of_its_calls(auto: Session) -> None:
    learn(auto)
    found = [each.numpy() for each in rounds(auto, 100)]
    assert [each.tobytes() for each in found] == [each.tobytes() for each in reference(100)]
    assert counts(auto)["ops"] > 60 * OPS


@anywhere
def test_a_loop_that_asks_in_each_round_is_sent_as_runs(auto: Session) -> None:
    x, w = ones(auto), ones(auto)
    for number in range(30):
        x = step(x, w, 0.5)
        assert x.numpy().tobytes() == reference(number + 1)[0].tobytes()
    assert counts(auto)["runs"] > 15


@anywhere
def test_a_loop_that_uploads_in_each_round_is_sent_as_runs(auto: Session) -> None:
    w = ones(auto)
    for count in (60, 60):
        for number in range(count):
            x = auto.asarray(np.full(SIZE, float(number)))
            y = auto.asarray(np.full(SIZE, 1.0))
            last = step(x, w, 0.5) + y
        auto.sync()  # its program is linked
    assert counts(auto)["runs"] > 15
    assert last.numpy().shape == (SIZE,)


def test_numbers_may_change_from_round_to_round(auto: Session) -> None:
    learn(auto)
    before = counts(auto)["runs"]
    x, w, y, v = ones(auto), ones(auto), np.ones(SIZE), np.ones(SIZE)
    for number in range(100):
        rate = 1 / (number + 2)
        x = step(x, w, rate)
        a = y * rate
        h = (((a + v) * (a + v) - a) * 0.5 + y - 1.0) * 0.25
        v = v - h
        y = v * y - h + a
    assert x.numpy().tobytes() == y.tobytes()
    assert counts(auto)["runs"] > before


@anywhere
def test_large_ops_are_sent_as_runs_too(auto: Session) -> None:
    """Each large op would leave at once."""
    x, w, y, v = ones(auto, 600, 600), ones(auto, 600, 600), np.ones(SIZE), np.ones(SIZE)
    for number in range(24):
        x = step(x, w, 0.5)
        a = y * 0.5
        h = (((a + v) * (a + v) - a) * 0.5 + y - 1.0) * 0.25
        v = v - h
        y = v * y - h + a
        if number % 6 == 0:
            assert x[0, 0].item() == y[0]
            x, w, y, v = ones(auto, 600, 600), ones(auto, 600, 600), np.ones(SIZE), np.ones(SIZE)
    assert np.unique(x.numpy()).tolist() == [y[0]]
    assert counts(auto)["known"] > 0


@anywhere
def test_periods_and_their_runs_are_named_by_the_line_that_they_begin_at(auto: Session) -> None:
    learn(auto)
    rows = auto.stats()["periods"]["each"]
    named = re.compile(rf"auto:(?:.*/)?{Path(__file__).name}:(\d+)")
    lines = [int(found[1]) for row in rows if (found := named.fullmatch(row["name"]))]
    first = step.__code__.co_firstlineno
    assert len(lines) == len(rows) == counts(auto)["known"]
    assert all(first < line <= first + OPS for line in lines)
    assert [row["calls"] % OPS for row in rows] == [0] * len(rows)
    assert sum(row["runs"] for row in rows) == counts(auto)["runs"]
    trace = auto.trace()
    ran = {record.op for record in trace.records if record.part is not None}
    assert ran
    assert ran <= {f"run {row['name']}" for row in rows}
    assert {routine.name for routine in trace.routines.values()} <= {row["name"] for row in rows}


def test_without_the_option_nothing_is_counted(session: Session) -> None:
    assert "periods" not in session.stats()


@each_case("wrong", ["Auto", "", True, 1, b"auto"])
def test_other_values_of_the_option_are_refused(wrong: Any) -> None:
    with pytest.raises(td.MetadataError, match='routines= is "auto" or None'):
        td.connect("local", routines=wrong)


@pytest.mark.parametrize("machines", ["serial"], indirect=True)
def test_the_serial_engine_executes_each_call_as_ever(make_session: Callable[..., Session]) -> None:
    session = make_session(routines="auto")
    assert rounds(session, 50)[0].numpy().tobytes() == reference(50)[0].tobytes()
    assert counts(session)["runs"] == 0


# -- messages that send the held calls -------------------------------------------------------------------------------


def begun(session: Session) -> tuple[Tensor, Tensor, Tensor]:
    """Some calls of the period, which are held back; the newest result, and the tensors behind it."""
    learn(session)
    x, w = ones(session), ones(session)
    session.sync()
    y = x
    for _ in range(3):  # whole periods, and the calls of a fourth one
        y = step(y, w, 0.5)
    a = y * 0.5
    b = a + w
    return b, x, w


def is_held(session: Session) -> bool:
    return session._core.outbox.messages != []


def expected() -> Any:
    y, w = reference(3)
    return y * 0.5 + w


@anywhere
def test_a_question_sends_what_is_held(auto: Session) -> None:
    b, _, _ = begun(auto)
    assert is_held(auto)
    assert b.numpy().tobytes() == expected().tobytes()


@anywhere
def test_an_idle_moment_sends_what_is_held(auto: Session) -> None:
    b, _, _ = begun(auto)
    eventually(lambda: not is_held(auto))
    assert b.numpy().tobytes() == expected().tobytes()


def test_another_threads_question_sends_what_is_held(auto: Session) -> None:
    b, _, w = begun(auto)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(b.numpy()))
    thread.start()
    thread.join()
    assert found[0].tobytes() == expected().tobytes()
    assert w.numpy().tobytes() == reference(3)[1].tobytes()


def test_a_group_comes_behind_what_is_held(auto: Session) -> None:
    b, _, _ = begun(auto)
    with auto.atomic():
        c = b + 1.0
        assert len(auto._core.outbox.messages) == 2  # its signature, and the call
    assert c.numpy().tobytes() == (expected() + 1.0).tobytes()


def test_effects_and_names_see_what_is_held(auto: Session) -> None:
    b, _, _ = begun(auto)
    seen: list[Any] = []
    auto.effect(lambda array: seen.append(array.copy()), b)
    auto.publish("held", b)
    assert auto.lookup("held").numpy().tobytes() == expected().tobytes()
    auto.unpublish("held")
    auto.check_chain()
    assert seen[0].tobytes() == expected().tobytes()


def test_what_a_held_call_needs_may_be_released(auto: Session) -> None:
    learn(auto)
    x, w = ones(auto), ones(auto)
    auto.sync()
    a = x * 0.5
    b = a + w
    x.release()
    del a
    w.release()
    assert is_held(auto)
    assert b.tolist() == [1.5] * SIZE


def test_a_handler_that_interrupts_the_sending_may_issue_and_not_ask(
    auto: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupt in the middle of the replacement of calls by runs, as a signal handler would."""
    learn(auto)
    x, w = ones(auto), ones(auto)
    issued: list[Tensor] = []
    learning = Learning.learn

    def interrupted(own: Learning, messages: Any) -> None:
        if not issued:
            issued.append(x + 1.0)
            with pytest.raises(td.ProtocolError, match="neither send nor wait"):
                issued[0].numpy()
        learning(own, messages)

    monkeypatch.setattr(Learning, "learn", interrupted)
    y = x
    for _ in range(20):
        y = step(y, w, 0.5)
    assert y.numpy().tobytes() == reference(20)[0].tobytes()
    assert issued[0].tolist() == [2.0] * SIZE


def test_a_session_is_closed_with_held_calls(auto: Session) -> None:
    b, _, _ = begun(auto)
    auto.close()
    with pytest.raises(td.ConnectionLost):
        b.numpy()


@anywhere
def test_cancellation_cancels_what_is_held_and_restart_goes_on(auto: Session) -> None:
    b, _, _ = begun(auto)
    auto.cancel()
    with pytest.raises(td.CancelledError):
        b.numpy()
    x, _ = rounds(auto, 3)
    with pytest.raises(td.CancelledError):
        x.numpy()
    auto.restart()
    assert rounds(auto, 50)[0].numpy().tobytes() == reference(50)[0].tobytes()


def test_a_context_that_ends_releases_what_is_held(auto: Session) -> None:
    learn(auto)
    x, w = ones(auto), ones(auto)
    with auto.context() as c:
        c.keep(y := step(step(x, w, 0.5), w, 0.5))
    x_, w_ = np.ones(SIZE), np.ones(SIZE)
    for _ in range(2):
        a = x_ * 0.5
        h = (((a + w_) * (a + w_) - a) * 0.5 + x_ - 1.0) * 0.25
        w_ = w_ - h
        x_ = w_ * x_ - h + a
    assert y.numpy().tobytes() == x_.tobytes()


@each_case("cut", range(OPS))
def test_a_period_may_be_left_at_any_call(auto: Session, cut: int) -> None:
    """Other calls, or a question, come in the middle of the period."""
    learn(auto)
    for leave in (lambda t: t.numpy(), lambda t: t + 3.0, lambda _: auto.flush()):
        x, w = ones(auto), ones(auto)
        y, v = np.ones(SIZE), np.ones(SIZE)
        for number in range(4):
            count = cut if number == 2 else OPS
            run_until(x, w, count, leave)
            run_until(y, v, count, lambda _: None)
            x, y = x * 2.0, y * 2.0
        assert w.numpy().tobytes() == v.tobytes()
        assert x.numpy().tobytes() == y.tobytes()


def run_until(x: Any, w: Any, count: int, leave: Callable[[Any], Any]) -> None:
    """The first calls of the step."""
    steps = calls_of_step(x, w)
    made = [each for _, each in zip(range(count), steps, strict=False)]
    leave(made[-1] if made else x)


def calls_of_step(x: Any, w: Any) -> Iterator[Any]:
    """The step, call by call: at its own lines, which is another period."""
    yield (a := x * 0.5)
    yield (b := a + w)
    yield (c := b * b)
    yield (d := c - a)
    yield (e := d * 0.5)
    yield (f := e + x)
    yield (g := f - 1.0)
    yield (h := g * 0.25)
    w -= h
    yield w
    yield (i := w * x)
    yield (j := i - h)
    yield j + a


# -- results, errors, lines ------------------------------------------------------------------------------------------


def test_handles_that_live_on_have_their_values(auto: Session) -> None:
    """All results of all rounds are kept: each set of results is a program of its own, or calls leave one by one."""
    learn(auto)
    x, w, kept = ones(auto), ones(auto), []
    for number in range(60):
        x = step(x, w, 0.5)
        if number % 3:
            kept.append((number + 1, x, w.copy()))
    for number, value, weight in kept:
        assert value.numpy().tobytes() == reference(number)[0].tobytes()
        assert weight.numpy().tobytes() == reference(number)[1].tobytes()


def roots(m: Tensor) -> Tensor:
    """Nine calls, one of which fails for a matrix that is not positive definite."""
    a = m * 1.0
    b = a + 0.0
    (c,) = m._core.calls.call(m._core, "cholesky", [b])
    d = c * 2.0
    e = d + 1.0
    f = b + 1.0
    g = f * 2.0
    h = e - g
    return h + f


@anywhere
def test_an_error_inside_names_the_line_of_its_call_and_spares_the_others(make_session: Callable[..., Session]) -> None:
    texts = []
    for routines in (None, "auto"):
        session = make_session(routines=routines)
        matrices = [session.asarray(np.eye(2) * (-1 if number == 150 else 1)) for number in range(200)]
        for number, matrix in enumerate(matrices):
            if number == 100:
                session.sync()  # the machine has taken the program by then
            result = roots(matrix) + roots(matrix)
            if number == 150:
                failed = result
        assert result.tolist() == (roots(matrices[0]) + roots(matrices[0])).tolist()
        with pytest.raises(td.KernelError) as caught:
            failed.numpy()
        texts.append((caught.value.op, str(caught.value.location), str(caught.value)))
        assert session.sync() >= 1
        if routines:
            assert counts(session)["runs"] > 80
    assert texts[0] == texts[1]
    assert "cholesky" in texts[0][2]
    assert "in roots" in texts[0][1]


def test_metadata_errors_are_raised_by_the_call(auto: Session) -> None:
    learn(auto)
    x, w = ones(auto), ones(auto, SIZE + 1)
    with pytest.raises(td.MetadataError, match="add"):
        step(x, w, 0.5)
    assert rounds(auto, 20)[0].numpy().tobytes() == reference(20)[0].tobytes()


def test_a_tensor_that_is_another_one_in_the_period_is_not_mistaken(auto: Session) -> None:
    """The same calls on one tensor instead of two: the tensor that is written is also read."""
    learn(auto)
    x = ones(auto)
    step(x, x, 0.5)
    step(x, x, 0.5)
    y = np.ones(SIZE)
    for _ in range(2):
        a = y * 0.5
        h = (((a + y) * (a + y) - a) * 0.5 + y - 1.0) * 0.25
        y = y - h
    assert x.numpy().tobytes() == y.tobytes()


def test_a_snapshot_keeps_its_value(auto: Session) -> None:
    learn(auto)
    x, w = ones(auto), ones(auto)
    copy, row = w.copy(), w[0:2]
    for _ in range(10):
        x = step(x, w, 0.5)
    assert copy.tolist() == [1.0] * SIZE
    assert row.tolist() == [1.0] * 2
    assert w.numpy().tobytes() == reference(10)[1].tobytes()


def test_random_calls_draw_what_they_draw_one_by_one(make_session: Callable[..., Session]) -> None:
    found = []
    for routines in (None, "auto"):
        session = make_session(routines=routines)
        session.random.seed(7)
        x = ones(session)
        for number in range(80):
            for _ in range(10):
                x = x * 0.5 + session.random.uniform((SIZE,))
            if number % 20 == 0:
                x = x + session.random.normal((SIZE,))
        found.append(x.numpy().tobytes())
        if routines:
            assert counts(session)["runs"] > 5
    assert found[0] == found[1]


@pytest.mark.parametrize("inside", [False, True])
def test_spans_are_those_of_the_calls(auto: Session, inside: bool) -> None:
    for number in range(80):
        x, w = ones(auto), ones(auto)
        with auto.span(f"round {number}"):
            x = step(x, w, 0.5)
            if inside:
                with auto.span("inner"):
                    x = step(x, w, 0.5)
    auto.sync()
    assert counts(auto)["runs"] > 20
    spans = {record.span for record in auto.trace().records if record.op not in {"upload", "sync", "release"}}
    wanted = {(f"round {number}",) for number in range(80)}
    assert {tuple(span) for span in spans} >= wanted | ({("round 79", "inner")} if inside else set())


def test_calls_in_two_spans_are_no_run(auto: Session) -> None:
    def once(x: Tensor, w: Tensor, cut: int) -> None:
        calls = calls_of_step(x, w)
        with auto.span("first"):
            found = [each for _, each in zip(range(cut), calls, strict=False)]
        with auto.span("second"):
            found += list(calls)

    x, w = ones(auto), ones(auto)
    for _ in range(200):
        once(x, w, OPS)
    auto.sync()
    before = counts(auto)["runs"]
    assert before > 2
    for _ in range(20):
        once(x, w, 5)
    auto.sync()
    assert counts(auto)["runs"] == before
    assert ("second",) in {tuple(record.span) for record in auto.trace().records}


def test_what_is_released_was_defined(auto: Session) -> None:
    """The inner values of a run belong to the machine."""
    learn(auto)
    transport, sent = auto._core.transport, []
    send: Callable[[Any], None] = transport.send

    def noting(messages: Any) -> None:
        sent.extend(messages)
        send(messages)

    transport.send = noting
    rounds(auto, 40)
    auto.sync()
    transport.send = send
    runs = [message for message in sent if message[0] == RUN]
    assert len(runs) > 5
    inner = set(range(min(run[4][0] for run in runs), auto._core.outbox.ids))
    inner -= {id_ for run in runs for id_ in run[4]}
    inner -= {id_ for message in sent if message[0] == CALL for id_ in message[3]}
    inner -= {message[1] for message in sent if message[0] in (PROGRAM, LINK)}
    assert not inner & {id_ for message in sent if message[0] == RELEASE for id_ in message[1]}


def test_an_operand_that_is_elsewhere_raises_as_ever_in_a_strict_session(make_session: Callable[..., Session]) -> None:
    texts = []
    for routines in (None, "auto"):
        session = make_session(routines=routines, devices=["cpu:0", "sim:0"], strict=True)
        near, far = session.asarray(np.eye(2)), session.asarray(np.eye(2), "sim:0")
        for number in range(200):
            result = mixed(near, far if number == 150 else near)
            if number == 150:
                failed = result
        assert result.tolist() == mixed(near, near).tolist()
        with pytest.raises(td.TensordError) as caught:
            failed.numpy()
        texts.append(str(caught.value))
        if routines:
            assert counts(session)["runs"] > 100
    assert texts[0] == texts[1]


def mixed(x: Tensor, y: Tensor) -> Tensor:
    """Sixteen calls."""
    y = x * y
    for _ in range(3):
        y = x - y
        y = y * x
        y = y + 1.0
        y = y * 0.5
        y = y - x
    return y


def test_devices_are_those_of_the_calls(auto: Session) -> None:
    def once(x: Tensor, far: Tensor) -> Tensor:
        for _ in range(4):
            x = x * 0.5 + 1.0
            far += 1.0
            x = x - 0.25
        return x

    x, far = ones(auto), auto.asarray(np.zeros(SIZE), "sim:0")
    for _ in range(60):
        x = once(x, far)
    assert counts(auto)["runs"] > 2
    assert far.device == "sim:0"
    assert far.tolist() == [240.0] * SIZE


# -- bounds ------------------------------------------------------------------------------------------------------------


def test_periods_are_bounded_and_what_is_forgotten_is_released(auto: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "MAX_PERIODS", 3)
    for width in range(3, 11):
        x = auto.asarray(np.ones(width))
        for _ in range(30):
            for _ in range(8):
                x = x * 0.5
                x = x + 1.0
            x.numpy()
        assert counts(auto)["known"] <= 3
    auto.sync()
    session = auto._core.transport._session
    assert 0 < len(session.routines) <= 3 * 2
    assert session.programs == {}


@pytest.mark.parametrize("known", [12, 13])
def test_a_signature_whose_number_is_used_again_is_another_one(
    known: int, make_session: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same lines with other shapes get the numbers that they had before with others."""
    monkeypatch.setattr("tensord.client.calls.signatures.MAX_SIGNATURES", known)
    session = make_session(routines="auto")
    for size in (4, 5, 6, 7, 4, 5):
        x, w = ones(session, size), ones(session, size)
        for _ in range(60):
            x = step(x, w, 0.5)
        assert x.tolist() == [reference(60)[0][0]] * size
    assert session.sync() == 0


def test_a_program_that_the_machine_refuses_is_not_run(auto: Session) -> None:
    """With no steps left in its quota, the session computes the same values op by op."""
    session = auto._core.transport._session
    session.limits = replace(session.limits, steps=0)
    assert rounds(auto, 60)[0].numpy().tobytes() == reference(60)[0].tobytes()
    assert counts(auto)["runs"] == 0
    assert auto.sync() == 0


def test_threads_that_issue_side_by_side_get_their_own_values(auto: Session) -> None:
    found: dict[int, bytes] = {}

    def work(number: int) -> None:
        x, _ = rounds(auto, 150)
        found[number] = x.numpy().tobytes()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(found.values()) == {reference(150)[0].tobytes()}

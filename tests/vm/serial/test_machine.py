"""The serial machine's public interface: one answer to each message, also after errors, from any thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.client.session.session import Session
from tensord.interpreter.errors import ProtocolError, TensordError
from tensord.interpreter.schema.opdef import find
from tensord.interpreter.wire.message_kinds import CHAIN, EFFECT, FETCH, UPLOAD
from tensord.vm.serial.machine import SerialMachine


@pytest.fixture
def serial() -> Iterator[Session]:
    with td.connect("local", devices=["cpu:0", "sim:0"], engine="serial") as session:
        yield session


@pytest.fixture
def both() -> Iterator[tuple[Session, Session]]:
    """The same devices on the two engines."""
    with td.connect("local", engine="vm") as vm, td.connect("local", engine="serial") as serial:
        yield vm, serial


def singular(session: Session) -> td.Tensor:
    return session.call("inv", [session.asarray(np.zeros((2, 2)))])[0]


def out_of_bounds(session: Session) -> td.Tensor:
    x = session.asarray(np.ones((2, 2)))
    return x[session.asarray([7]), session.asarray([0])]


def number(error: td.TensordError | None) -> int:
    """The number of the instruction that failed."""
    assert error
    assert error.instruction
    return error.instruction


def test_of_several_errors_the_first_in_program_order_is_raised_in_either_order_of_operands(serial):
    first = singular(serial)
    second = out_of_bounds(serial)
    for x in (second + first, first + second):
        with pytest.raises(td.KernelError, match="inv") as caught:
            x.numpy()
        assert number(caught.value) == number(first.error) < number(second.error)


def test_an_op_that_reads_a_failed_value_raises_its_error_also_after_a_cancellation_and_a_restart(serial):
    bad, good = singular(serial), serial.asarray(np.ones((2, 2)))
    serial.cancel()
    serial.restart()
    with pytest.raises(td.KernelError):
        (good + bad).numpy()
    assert good.tolist() == [[1.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize("fail", [singular, out_of_bounds])
def test_an_error_is_that_of_the_virtual_machine(both, fail):
    theirs, ours = (fail(session).wait for session in both)
    with pytest.raises(td.TensordError) as expected:
        theirs()
    with pytest.raises(td.TensordError) as found:
        ours()
    assert (type(found.value), str(found.value)) == (type(expected.value), str(expected.value))
    assert (found.value.op, found.value.location) == (expected.value.op, expected.value.location)
    assert found.value.instruction
    assert repr(found.value.__cause__) == repr(expected.value.__cause__)


def test_an_effect_that_raises_stops_its_chain_with_that_error_and_with_no_later_one(serial):
    bad = singular(serial)
    seen: list[np.ndarray] = []
    serial.effect(lambda _: 1 / 0, serial.asarray([1.0]))
    serial.effect(seen.append, bad)
    with pytest.raises(td.KernelError, match="effect: ZeroDivisionError"):
        serial.check_chain()
    assert seen == []


def test_memory_that_the_system_does_not_give_is_a_typed_error(serial):
    x = serial.call("zeros", [], {"shape": (1 << 57,), "dtype": "int8"})[0]
    with pytest.raises(td.DeviceMemoryError, match="zeros"):
        x.wait()
    assert serial.asarray([1.0]).tolist() == [1.0]


def test_ops_run_under_the_line_that_issues_them_on_its_thread(serial):
    where: list[int] = []
    thread = threading.Thread(target=lambda: serial.effect(lambda _: where.append(threading.get_ident()), x))
    x = serial.asarray([1.0])
    serial.effect(lambda _: where.append(threading.get_ident()), x)
    assert where == [threading.get_ident()]
    thread.start()
    thread.join()
    assert where == [threading.main_thread().ident, thread.ident]


def test_what_a_handler_issues_while_the_machine_executes_runs_afterwards(serial):
    x = serial.asarray([1.0])
    made: list[td.Tensor] = []

    def handler(_: Any) -> None:
        made.append(x + 1.0)
        made[0].wait()

    serial._core.effects.issue_tolerant(handler, (x._id,), None)  # unlike `effect`, it does not refuse at once
    with pytest.raises(td.ProtocolError, match="may neither send nor wait"):
        serial.check_chain()
    assert made[0].tolist() == [2.0]


def test_a_cancellation_in_a_callback_holds_for_what_comes_after_it(serial):
    x = serial.asarray([1.0])
    serial.effect(lambda _: serial.cancel(), x)
    assert isinstance((x + 1.0).error, td.CancelledError)
    serial.restart()
    assert x.tolist() == [1.0]


def test_a_cancellation_from_another_thread_waits_for_nobody_and_ends_the_batch():
    machine = SerialMachine(["cpu:0"])
    answers: dict[int, TensordError | None] = {}
    session = machine.attach(lambda request, _value, error: answers.__setitem__(request, error))

    def cancel(_: Any) -> None:
        thread = threading.Thread(target=machine.cancel, args=(session,))
        thread.start()
        thread.join()

    upload = [UPLOAD, 1, (1,), "float64", "cpu:0", np.ones(1), 0]
    machine.submit(
        session, [upload, [CHAIN, 2], [EFFECT, (1,), 2, cancel, 0, 0, False, False, (), (), ""], [FETCH, 1, 7, 0, 0]]
    )
    assert isinstance(answers[7], td.CancelledError)
    machine.close()


def test_a_value_that_was_read_is_the_callers_own(serial):
    x = serial.asarray([1.0, 2.0])
    x.numpy()[:] = 7.0
    assert x.tolist() == [1.0, 2.0]


def test_threads_share_a_session(serial):
    total = serial.asarray(np.zeros(1))
    failures: list[BaseException] = []

    def work() -> None:
        try:
            own = serial.asarray(np.ones(1))
            for _ in range(50):
                serial.call("add", [total, own], out=[total])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert total.tolist() == [200.0]


def test_the_questions_have_the_virtual_machines_layout(both):
    def layout(value: Any) -> Any:
        return {key: layout(item) for key, item in value.items()} if isinstance(value, dict) else None

    for session in both:
        session.publish("x", session.asarray([1.0]))
    for what in ("stats", "names"):
        theirs, ours = (session._core.answers.query(what) for session in both)
        if isinstance(ours, list):
            assert len(theirs) == len(ours) == 1, what
            theirs, ours = theirs[0], ours[0]
        ours.pop("engine", None)
        assert layout(ours) == layout(theirs), what
    with pytest.raises(ProtocolError, match=r'engine="serial" keeps no trace.*engine="vm"'):
        both[1].trace()


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (("nothing",), "unknown question 'nothing'"),
        (("names", 1, 2, 3), "arguments do not fit"),
        (("names", -1), "natural number"),
        (("memory", "device", 1, "cpu:7"), "unknown device 'cpu:7'"),
        (("status",), "unknown question 'status'"),
        (("residency", 10_000), "was released"),
    ],
)
def test_a_question_that_nobody_can_answer_is_a_typed_error(serial, question, message):
    with pytest.raises(ProtocolError, match=message):
        serial._core.answers.query(*question)


def test_residency_is_the_home_and_says_what_failed(serial):
    x = serial.asarray(np.ones(2), device="sim:0")
    assert x.residency() == {"sim:0": "valid"}
    assert x.to_device("cpu:0").residency() == {"cpu:0": "valid"}
    assert singular(serial).residency() == {"cpu:0": "poisoned"}


def test_a_cancelled_session_keeps_no_frames_of_what_it_refuses(serial):
    serial.cancel()
    refused = [(serial.asarray([1.0]) + 1.0).error for _ in range(5)]
    session = serial._core.transport._session
    assert all(isinstance(error, td.CancelledError) for error in refused)
    assert session.cancelled.__traceback__ is None


def test_devices_are_checked_as_for_the_virtual_machine():
    for devices in (["gpu:0"], [{"name": "sim:0", "mem": 1}], "cpu:0"):
        with pytest.raises(td.MetadataError) as expected:
            td.connect("local", devices=devices)
        with pytest.raises(td.MetadataError) as found:
            td.connect("local", devices=devices, engine="serial")
        assert found.value.message == expected.value.message


def test_an_op_that_a_device_lacks_falls_back():
    with td.connect("local", devices=["cpu:0", {"name": "sim:0", "missing": ["add"]}], engine="serial") as s:
        x = s.asarray([1.0], device="sim:0") + 1.0
        assert (x.device, x.tolist()) == ("sim:0", [2.0])
        with pytest.raises(td.MetadataError, match="add has no kernel on sim:0"):
            td.handlers.DeviceHandler()(made_call(s))


def made_call(session: Session) -> Any:
    op = find("add")
    return td.handlers.Invocation(session, op, (session.asarray([1.0], device="sim:0"), 1.0), (), None, "sim:0")


def test_after_a_fork_the_child_is_told_and_the_parent_goes_on(serial):
    x = serial.asarray([1.0])
    child = os.fork()
    if not child:
        try:
            x.numpy()
        except td.ConnectionLost as error:
            os._exit(0 if "fork" in error.message else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert x.tolist() == [1.0]

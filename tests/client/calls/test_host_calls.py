"""Host calls, on every kind of machine: tensors computed by functions of the program."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest

import tensord as td

from ...behaviours.looking_inside import WAIT
from ...each_case import each_case

PAIR = ((2, 3), "float64")


@pytest.fixture
def x(session: td.Session) -> td.Tensor:
    return session.asarray(np.arange(6.0).reshape(2, 3))


@pytest.fixture
def on_machine(session: td.Session, machines: str) -> td.Session:
    """A session on a machine that goes on while a function runs; the serial machine runs it inside the call."""
    if machines == "serial":
        pytest.skip("the serial engine runs the function before the call returns")
    return session


def returned(result: Any) -> Any:
    """A function that returns the value."""
    return lambda *_: result


# -- values ------------------------------------------------------------------------------------------------------------


def test_the_result_is_a_tensor_at_once_and_ops_on_it_know_its_meta(session, x):
    y = session.host_call(np.cumsum, x, result=((6,), "float64"))
    assert (y.shape, y.dtype, y.device) == ((6,), np.float64, "cpu:0")
    assert (y[1:] - y[:-1]).tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_several_results_are_a_list(session, x):
    total, small = session.host_call(
        lambda a: (a.sum(), a.astype("float32")), x, result=[((), "float64"), ((2, 3), "float32")]
    )
    assert total.item() == 15.0
    assert small.dtype == np.float32
    (alone,) = session.host_call(lambda a: [a + 1], x, result=(x,))
    assert alone.tolist() == (x + 1).tolist()


def test_a_function_without_operands_makes_a_tensor_on_the_first_device(session):
    made = session.host_call(lambda: np.arange(3), result=((3,), "int64"))
    assert made.device == "cpu:0"
    assert made.tolist() == [0, 1, 2]


@each_case("result", [PAIR, [PAIR], ([2, 3], np.float64), ((2, 3), np.dtype("float64")), np.empty((2, 3))])
def test_a_result_is_a_shape_and_a_dtype_or_has_both(session, x, result):
    many = type(result) is list
    made = session.host_call(lambda a: [a * 2] if many else a * 2, x, result=result)
    assert (made[0] if many else made).tolist() == (x * 2).tolist()


@each_case("dtype", ["bool", "int8", "uint16", "int64", "float16", "float32", "complex64"])
@each_case("shape", [(), (0,), (3, 1, 5), (100, 300)])
def test_values_arrive_as_they_were_returned(session, shape, dtype):
    """Small ones in the message, larger ones in frames, those of 64 KiB and more in memory that both map."""
    values = (np.arange(np.prod(shape, dtype=int)).reshape(shape) % 7).astype(dtype)
    assert np.array_equal(session.host_call(returned(values), result=(shape, dtype)).numpy(), values)


@each_case("values", [np.arange(12.0).reshape(3, 4).T, np.arange(8.0)[::-2], np.float64(3.0), 3.0, 3, [1, 2.5], True])
def test_what_is_no_packed_array_of_the_dtype_is_made_one(session, values):
    meta = (np.shape(values), "float64")
    assert np.array_equal(session.host_call(returned(values), result=meta).numpy(), values)


@each_case(
    "value, dtype", [(255, "uint8"), ([True, 2], "int8"), (1 << 63, "uint64"), (-1, "float16"), (2.5, "complex64")]
)
def test_python_numbers_take_the_dtype_that_is_asked_for(session, value, dtype):
    made = session.host_call(returned(value), result=(np.shape(value), dtype))
    assert made.tolist() == np.asarray(value, dtype).tolist()


@each_case(
    "value, dtype", [(256, "uint8"), (-1, "uint64"), (1 << 70, "int64"), (2.0, "int64"), (1j, "float64"), (1, "bool")]
)
def test_python_numbers_that_do_not_fit_are_an_error(session, value, dtype):
    with pytest.raises(td.KernelError, match="and result= says"):
        session.host_call(returned(value), result=((), dtype)).numpy()


def test_the_function_sees_the_value_at_its_place_in_program_order(session, x):
    before = x.tolist()
    y = session.host_call(lambda a: a + 1, x, result=x)
    x += 100
    assert y.tolist() == (np.array(before) + 1).tolist()


def test_what_the_function_keeps_is_its_own(session):
    kept = np.ones(3)
    y = session.host_call(returned(kept), result=kept)
    y.wait()
    kept[:] = 7
    assert y.tolist() == [1.0, 1.0, 1.0]
    y += 1
    assert kept.tolist() == [7.0, 7.0, 7.0]


def test_its_arrays_cannot_be_written(session, x):
    def write(a: Any) -> Any:
        a[0] = 1
        return a

    with pytest.raises(ValueError, match="read-only"):
        session.host_call(write, x, result=x).numpy()
    assert x.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]


def test_a_result_lives_on_the_device_of_the_first_operand_or_on_the_one_that_is_named(make_session):
    session = make_session(devices=["cpu:0", "sim:0"])
    x = session.asarray([1.0, 2.0], device="sim:0")
    y = session.host_call(lambda a: a + 1, x, result=x)
    z = session.host_call(lambda a: a + 2, x, result=x, device="cpu:0")
    assert (y.device, z.device) == ("sim:0", "cpu:0")
    assert ((y + 1).tolist(), z.tolist()) == ([3.0, 4.0], [3.0, 4.0])


def test_an_operand_whose_shape_data_decide(session):
    few = session.xp.unique_values(session.asarray([1.0, 1.0, 2.0]))
    assert session.host_call(lambda a: a.sum(), few, result=((), "float64")).item() == 3.0


def test_of_a_global_tensor_the_function_gets_the_whole_value(make_session):
    session = make_session(devices=["cpu:0", "cpu:1"])
    whole = session.global_tensor(np.arange(4.0), td.placement(["cpu:0", "cpu:1"]), td.split(0))
    assert session.host_call(lambda a: a.sum(), whole, result=((), "float64")).item() == 6.0


# -- calls that are refused --------------------------------------------------------------------------------------------


@each_case(
    "result, said",
    [
        (None, "shape, dtype"),
        (7, "shape, dtype"),
        ("float64", "shape, dtype"),
        ([], "names no result"),
        ((), "names no result"),
        (((2, -1), "float64"), "negative"),
        (((2,), "float65"), "float65"),
        (((2,), "object"), "object"),
        ([PAIR, 3], "shape, dtype"),
        (((1 << 62, 8), "float64"), "too large"),
    ],
)
def test_a_result_that_is_none_raises_at_the_call(session, x, result, said):
    with pytest.raises(td.MetadataError, match=said) as caught:
        session.host_call(lambda a: a, x, result=result)
    assert "test_host_calls.py" in str(caught.value.location)
    assert (x + 1).tolist()[0] == [1.0, 2.0, 3.0]


def test_what_cannot_be_called_and_other_sessions_tensors_raise_at_the_call(session, make_session, x):
    with pytest.raises(td.MetadataError, match="host_call: a callback must be a function"):
        session.host_call(3, x, result=x)
    with pytest.raises(td.MetadataError, match="use asarray"):
        session.host_call(lambda a: a, 3.0, result=x)
    with pytest.raises(td.MetadataError, match="unknown device"):
        session.host_call(lambda a: a, x, result=x, device="sim:9")
    other = make_session()
    with pytest.raises(td.MetadataError, match="another session"):
        other.host_call(lambda a: a, x, result=PAIR)


# -- errors ------------------------------------------------------------------------------------------------------------


def test_what_the_function_raises_is_the_error_of_its_results_alone(session, x):
    def fail(a: Any) -> Any:
        raise OSError(f"no such file for {a.sum()}")

    one, two = session.host_call(fail, x, result=[x, x])
    dependent, other = one + 1, x + 1
    for wrong in (one, two, dependent):
        with pytest.raises(td.KernelError, match=r"host_call: OSError: no such file for 15\.0") as caught:
            wrong.numpy()
        assert "test_host_calls.py" in str(caught.value.location)
        assert "in test_what_the_function_raises" in str(caught.value.location)
        assert caught.value.op == "host_call"
        assert type(caught.value.__cause__) is OSError
    assert other.tolist()[0] == [1.0, 2.0, 3.0]
    assert session.host_call(lambda a: a, x, result=x).tolist() == x.tolist()


class OwnError(Exception):
    """An error class that no machine knows."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@each_case(
    "error",
    [KeyboardInterrupt(), SystemExit(3), MemoryError("here"), OwnError(), StopIteration(), td.CancelledError("x")],
)
def test_whatever_a_function_raises_is_told_and_the_next_call_runs(session, x, error):
    def fail(_: Any) -> Any:
        raise error

    with pytest.raises(td.KernelError, match=f"host_call: {type(error).__name__}"):
        session.host_call(fail, x, result=x).numpy()
    assert session.host_call(lambda a: a, x, result=x).tolist() == x.tolist()


@each_case(
    "value, said",
    [
        (np.zeros((2, 2)), r"float64\[2, 2\], and result= says float64\[2, 3\]"),
        (np.zeros((2, 3), "float32"), r"float32\[2, 3\], and result= says float64\[2, 3\]"),
        (np.zeros((2, 3), ">f8"), r">f8\[2, 3\], and result= says float64\[2, 3\]"),
        (np.zeros((2, 3), "datetime64[s]"), "datetime64"),
        (None, r"object\[\]"),
        ("text", "<U4"),
        ([[1, 2], [3]], "ValueError"),
        ([[1j] * 3] * 2, "complex128"),
        (1.0, r"float64\[\], and"),
    ],
)
def test_a_result_of_another_meta_is_an_error_that_names_both(session, x, value, said):
    with pytest.raises(td.KernelError, match=said):
        session.host_call(returned(value), x, result=PAIR).numpy()


@each_case(
    "value, said", [(np.zeros((2, 3)), "returned ndarray"), ([], "returned 0 results"), ([1, 2, 3], "returned 3")]
)
def test_other_than_as_many_results_are_an_error(session, x, value, said):
    with pytest.raises(td.KernelError, match=said):
        session.host_call(returned(value), x, result=[((), "float64")] * 2)[1].numpy()


def test_a_function_is_not_called_if_an_operand_has_failed(session, x):
    bad = session.xp.linalg.inv(session.asarray(np.zeros((2, 2))))
    called: list[Any] = []
    y = session.host_call(lambda *given: called.append(given), x, bad, result=x)
    with pytest.raises(td.KernelError, match="inv"):
        y.numpy()
    session.sync()
    assert not called


# -- the session inside ------------------------------------------------------------------------------------------------


def test_a_function_may_use_its_session_even_for_further_calls(on_machine, x):
    session = on_machine

    def outer(a: Any) -> Any:
        inner = session.host_call(lambda b: b + 1, session.asarray(a), result=x)
        return (inner * 2).numpy()

    assert session.host_call(outer, x, result=x).tolist() == ((x + 1) * 2).tolist()
    deep = x
    for _ in range(5):
        deep = session.host_call(outer, deep, result=x)
    assert deep.shape == (2, 3)
    assert np.isfinite(deep.numpy()).all()


def test_calls_within_calls_to_any_depth(on_machine, x):
    session = on_machine

    def down(levels: int) -> Any:
        def function(a: Any) -> Any:
            return a + 1 if not levels else session.host_call(down(levels - 1), session.asarray(a), result=x).numpy()

        return function

    assert session.host_call(down(20), x, result=x).tolist() == (x + 1).tolist()


def test_a_function_may_wait_for_a_call_that_was_issued_after_its_own(on_machine, x):
    session = on_machine
    later: list[td.Tensor] = []
    issued = threading.Event()

    def first(_: Any) -> Any:
        assert issued.wait(WAIT)
        return later[0].numpy() + 1

    one = session.host_call(first, x, result=x)
    later.append(session.host_call(lambda a: a * 10, x, result=x))
    issued.set()
    assert one.tolist() == (x * 10 + 1).tolist()


def test_on_the_serial_engine_a_function_that_uses_the_session_raises_at_once(session, machines, x):
    if machines != "serial":
        pytest.skip("about the serial engine")
    with pytest.raises(td.KernelError, match="may neither send nor wait"):
        session.host_call(lambda _: x.numpy(), x, result=x).numpy()


def test_functions_run_one_at_a_time_on_a_thread_of_the_session(on_machine, x):
    session = on_machine
    inside: list[int] = []
    names: list[tuple[int, str]] = []

    def function(a: Any) -> Any:
        inside.append(1)
        names.append((len(inside), threading.current_thread().name))
        inside.pop()
        return a

    results = [session.host_call(function, x, result=x) for _ in range(20)]
    for result in results:
        result.wait()
    assert set(names) == {(1, "tensord-host-call")}


def test_an_op_and_another_session_go_on_while_a_function_runs(on_machine, x):
    session, go = on_machine, threading.Event()

    def wait(a: Any) -> Any:
        assert go.wait(WAIT)
        return a

    y = session.host_call(wait, x, result=x)
    z = y + 1
    assert (x + 1).tolist()[0] == [1.0, 2.0, 3.0]
    assert session.host_call(np.negative, x[0], result=x[0]).is_ready() is False
    assert not z.is_ready()
    go.set()
    assert z.tolist()[0] == [1.0, 2.0, 3.0]


def test_of_an_effect_and_a_host_call_neither_waits_for_the_other(on_machine, x):
    session, go, seen = on_machine, threading.Event(), []

    def wait(a: Any) -> Any:
        assert go.wait(WAIT)
        return a

    y = session.host_call(wait, x, result=x)
    session.effect(lambda a: seen.append(a.sum()), x)
    session.check_chain()
    assert seen == [15.0]
    session.effect(lambda a: seen.append(a.sum()), y)
    go.set()
    session.check_chain()
    assert seen == [15.0, 15.0]


# -- the end of a call -------------------------------------------------------------------------------------------------


def test_a_cancellation_ends_a_call_whose_function_does_not_return(on_machine, x):
    session, began, go = on_machine, threading.Event(), threading.Event()

    def wait(a: Any) -> Any:
        began.set()
        assert go.wait(WAIT)
        return a

    y = session.host_call(wait, x, result=x)
    seen: list[Any] = []
    queued = session.host_call(seen.append, x, result=x)
    session.flush()
    assert began.wait(WAIT)
    session.cancel()
    for one in (y, y + 1, queued):
        with pytest.raises(td.CancelledError):
            one.numpy()
    session.restart()
    assert (session.asarray([1.0]) + 1).tolist() == [2.0]
    after = session.host_call(lambda a: a + 1, x, result=x)
    go.set()
    assert after.tolist() == (x + 1).tolist()
    assert not seen


def test_a_session_ends_although_a_function_does_not_return(on_machine, x):
    session, began, go = on_machine, threading.Event(), threading.Event()

    def wait(a: Any) -> Any:
        began.set()
        assert go.wait(WAIT)
        return a

    y = session.host_call(wait, x, result=x) + 1
    session.flush()
    assert began.wait(WAIT)
    session.close()
    with pytest.raises(td.ConnectionLost):
        y.numpy()
    go.set()


def test_a_result_that_nobody_wants_any_more_leaves_nothing_behind(session, x):
    for _ in range(10):
        session.host_call(lambda _: np.ones(1 << 14), x, result=((1 << 14,), "float64"))
    session.sync()
    assert session.host_call(lambda a: a, x, result=x).tolist() == x.tolist()


# -- coroutines --------------------------------------------------------------------------------------------------------


def test_a_coroutine_function_runs_on_a_loop_of_the_sessions_own(session, x):
    async def slow(a: Any) -> Any:
        await asyncio.sleep(0)
        return a + 1

    assert session.host_call(slow, x, result=x).tolist() == (x + 1).tolist()


def test_coroutines_run_side_by_side(on_machine, x):
    session = on_machine
    meeting: list[asyncio.Barrier] = []

    async def meet(a: Any) -> Any:
        if not meeting:
            meeting.append(asyncio.Barrier(2))
        await meeting[0].wait()
        return a

    results = [session.host_call(meet, x, result=x) for _ in range(2)]
    assert [one.tolist() for one in results] == [x.tolist()] * 2


def test_what_a_coroutine_raises_is_the_error_of_its_results(session, x):
    async def fail(_: Any) -> Any:
        await asyncio.sleep(0)
        raise LookupError("nothing there")

    with pytest.raises(td.KernelError, match="host_call: LookupError: nothing there"):
        session.host_call(fail, x, result=x).numpy()

    async def wrong(a: Any) -> Any:
        return a[:1]

    with pytest.raises(td.KernelError, match=r"float64\[1, 3\]"):
        session.host_call(wrong, x, result=x).numpy()


def test_a_cancellation_cancels_a_coroutine(on_machine, x):
    session, began, ended = on_machine, threading.Event(), threading.Event()

    async def forever(_: Any) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    y = session.host_call(forever, x, result=x)
    session.flush()
    assert began.wait(WAIT)
    session.cancel()
    with pytest.raises(td.CancelledError):
        y.numpy()
    session.restart()
    session.sync()
    assert ended.wait(WAIT)


# -- in routines -------------------------------------------------------------------------------------------------------


def test_a_routine_calls_the_function_in_each_run(session, x):
    calls: list[float] = []

    def function(a: Any) -> Any:
        calls.append(a.sum())
        return a * 10

    @session.routine
    def step(x: td.Tensor) -> td.Tensor:
        y = x + 1
        return session.host_call(function, y, result=y) - 1

    for k in range(4):
        assert step(x + k).tolist() == ((x + k + 1) * 10 - 1).tolist()
    assert calls == [21.0, 27.0, 33.0, 39.0]


def test_it_cuts_a_segment_and_the_report_says_why(make_session, machines):
    session = make_session()
    if machines == "serial":
        pytest.skip("there are no segments")
    x = session.asarray([1.0, 2.0])

    @session.routine
    def step(x: td.Tensor) -> td.Tensor:
        y = (x + 1) * 2
        return (session.host_call(lambda a: a, y, result=y) - 1) * 3

    for _ in range(3):
        assert step(x).tolist() == [9.0, 15.0]
    pieces = [(piece["how"], piece.get("why", "")) for piece in step.report()["pieces"]]
    assert pieces == [("segment", ""), ("op by op", "a function of the client's"), ("segment", "")]


def test_in_a_loop_the_function_is_called_each_time(session):
    calls: list[float] = []

    def function(a: Any) -> Any:
        calls.append(float(a))
        return a * 2

    x = session.asarray(1.0)
    for _ in range(2):
        found = session.while_loop(lambda x: x < 20.0, lambda x: session.host_call(function, x, result=x), x)
        assert found.item() == 32.0
    assert calls == [1.0, 2.0, 4.0, 8.0, 16.0] * 2


def test_an_error_in_a_run_names_the_line_of_the_call(session, x):
    @session.routine
    def step(x: td.Tensor) -> td.Tensor:
        return session.host_call(lambda _: 1 // 0, x, result=x)

    for _ in range(3):
        with pytest.raises(td.KernelError, match="ZeroDivisionError") as caught:
            step(x).numpy()
        assert str(caught.value.location).endswith("<locals>.step")


def test_a_routine_that_calls_functions_of_the_program_cannot_be_published(session, x):
    @session.routine
    def step(x: td.Tensor) -> td.Tensor:
        return session.host_call(lambda a: a, x, result=x)

    step(x).wait()
    with pytest.raises(td.MetadataError, match="calls functions of its publisher"):
        session.publish("step", step)


def test_in_an_atomic_block_the_call_leaves_with_the_group(session, x):
    with session.atomic():
        y = session.host_call(lambda a: a + 1, x, result=x)
        z = y + 1
    assert z.tolist() == (x + 2).tolist()

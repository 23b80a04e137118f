"""Event loops take steps: positions in program order, lines, cancellation, several loops, the end of the machine."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.client.session.session import Session
from tensord.client.transport.replies import Reply
from tensord.client.waiting.helper import start_work
from tensord.client.waiting.steps import LongWork

from ...behaviours.looking_inside import WAIT, assert_sound, device_of, held, ones
from ...daemon import Daemon
from ...each_case import each_case
from ...puppet import eventually, paused
from .forms import FORMS, given

UNANSWERED = {"Session.close_async", "Session.flush_async", "Session.save_async"}  # they may need no answer


@pytest.fixture
def far(daemon: Daemon) -> Iterator[Session]:
    """A session on a daemon."""
    with daemon.connect() as session:
        yield session
        session.unpublish(*session.names())


async def turns(count: int = 20) -> None:
    """Let the loop go round."""
    for _ in range(count):
        await asyncio.sleep(0)


# -- positions and lines -----------------------------------------------------------------------------------------------


def test_a_form_has_its_place_in_program_order_where_it_is_called(session):
    async def main() -> None:
        x = session.asarray([1.0])
        before = x.numpy_async()
        several = session.fetch_async([x, x + 1])
        x += 100.0
        assert (await before).tolist() == [1.0]
        assert [array.tolist() for array in await several] == [[1.0], [2.0]]
        assert await x.tolist_async() == [101.0]

    asyncio.run(main())


def test_errors_of_arguments_are_raised_where_a_form_is_called(session):
    x = session.asarray([1.0])
    x.release()
    with pytest.raises(td.ProtocolError, match="was released"):
        x.numpy_async()
    with pytest.raises(td.MetadataError, match="takes a list"):
        session.fetch_async(3)
    with pytest.raises(td.MetadataError, match="number of seconds"):
        session.lookup_async("w", wait="long")


def test_errors_name_the_call_that_failed_and_else_the_line_of_the_form(session):
    async def main() -> None:
        bad = session.xp.linalg.inv(session.asarray(np.zeros((2, 2))))  # the line
        task = asyncio.create_task(bad.numpy_async())
        with pytest.raises(td.KernelError) as caught:
            await task
        assert "main" in (caught.value.location or "")
        line = main.__code__.co_firstlineno + 1
        assert f"test_on_loop.py:{line}" in (caught.value.location or "")
        task = asyncio.create_task(session.lookup_async("nothing"))
        with pytest.raises(td.MetadataError) as unknown:
            await task
        assert f"test_on_loop.py:{line + 7}" in (unknown.value.location or "")

    asyncio.run(main())


def test_a_task_that_awaits_ready_values_lets_others_run(session):
    x = session.asarray([1.0])
    seen: list[int] = []

    async def other() -> None:
        while True:
            seen.append(len(seen))
            await asyncio.sleep(0)

    async def main() -> None:
        task = asyncio.create_task(other())
        for _ in range(50):
            await x.numpy_async()
        task.cancel()

    asyncio.run(main())
    assert len(seen) >= 50


def test_many_wait_side_by_side(sim_session):
    s = sim_session

    async def main() -> None:
        x = s.asarray(ones(4), device="sim:0")
        with held(s, "sim:0", "compute"):
            tensors = [x + float(n) for n in range(50)]
            waits = [asyncio.ensure_future(tensor.numpy_async()) for tensor in tensors]
            await turns()
            assert not any(wait.done() for wait in waits)
        found = await asyncio.wait_for(asyncio.gather(*waits), WAIT)
        assert [array[0] for array in found] == [1.0 + n for n in range(50)]

    asyncio.run(main())
    assert_sound(s)


def test_a_pending_shape_is_known_after_an_await(session):
    async def main() -> None:
        x = session.asarray([1.0, 2.0, 3.0])
        few = x[x > 1.5]
        assert (await few).shape == (2,)
        more = x[x > 0.5]
        assert (await more.numpy_async()).shape == more.shape

    asyncio.run(main())


def test_a_routine_that_is_captured_has_no_values(session):
    for call in (lambda x: x.numpy_async(), lambda x: x.item_async(), lambda x: x.__await__()):
        with pytest.raises(td.CaptureError):
            session.routine(call)(session.asarray([1.0]))


# -- cancellation ------------------------------------------------------------------------------------------------------


@each_case("name", sorted(set(FORMS) - UNANSWERED))
def test_a_cancelled_form_leaves_the_session_whole(daemon, far, name, tmp_path):
    """The daemon stands still while a task awaits; the task is cancelled; then all is as if it had not asked."""
    (tmp_path / name).mkdir()
    g = given(far, tmp_path / name, files=FORMS[name].files)

    async def main() -> None:
        with paused(daemon):
            task = asyncio.ensure_future(FORMS[name].call(g))
            await turns()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    before = tensors_of(far)
    asyncio.run(main())
    far.sync()
    assert g.x.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    eventually(lambda: not far._core.transport._incoming.replies and not far._core.transport._attended)
    assert not far._core.outbox.files
    eventually(lambda: tensors_of(far) == before)


def tensors_of(session: Session) -> int:
    """How many tensors the machine keeps for the session."""
    return int(session.stats()["session"]["tensors"])


def test_a_timeout_ends_the_wait_and_nothing_else(session):
    x = session.asarray(ones(4))
    session.sync()

    async def main() -> None:
        with held(session, "cpu:0", "compute"):
            y = x + x
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await y.numpy_async()
        assert await y.tolist_async() == [2.0] * 4

    asyncio.run(main())
    assert_sound(session)


def test_a_loop_that_is_closed_meanwhile_harms_nothing(session):
    x = session.asarray(ones(4))
    session.sync()
    device = device_of(session, "cpu:0")
    device.hold("compute")
    y = x + x
    loop = asyncio.new_event_loop()
    task = loop.create_task(y.numpy_async())
    loop.run_until_complete(turns())
    loop.close()
    device.resume("compute")
    assert y.tolist() == [2.0] * 4
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    del task
    gc.collect()
    assert_sound(session)


@pytest.mark.filterwarnings("ignore:coroutine")
def test_a_form_that_nobody_awaits_harms_nothing(session, tmp_path):
    g = given(session, tmp_path)
    dropped = [g.x.numpy_async(), session.load_async(g.file)]
    dropped.clear()
    gc.collect()
    assert g.x.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert_sound(session)
    session.unpublish("there")


def test_a_cancelled_save_leaves_no_file(far, tmp_path):
    x = far.asarray([1.0])
    far.sync()

    async def main() -> None:
        task = asyncio.create_task(far.save_async(tmp_path / "x.safetensors", {"x": x}))
        await asyncio.sleep(0)
        eventually(lambda: list(tmp_path.iterdir()))  # the file is begun; the loop has not heard of it
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(main())
    eventually(lambda: not list(tmp_path.iterdir()))


def test_a_result_that_a_closed_loop_forgets_is_dropped(monkeypatch):
    """The work ends between the last turn of the loop and its end, so the loop never makes the call that takes it."""
    goes, queued = threading.Event(), threading.Event()
    dropped: list[str] = []
    loop = asyncio.new_event_loop()
    call_soon = loop.call_soon_threadsafe

    def noted(*args: Any, **kwargs: Any) -> Any:
        handle = call_soon(*args, **kwargs)
        queued.set()
        return handle

    def work() -> str:
        assert goes.wait(10)
        return "a result"

    async def begin() -> None:
        start_work(LongWork(work, dropped.append), None)

    loop.run_until_complete(begin())
    monkeypatch.setattr(loop, "call_soon_threadsafe", noted)
    goes.set()
    assert queued.wait(10)
    loop.close()
    eventually(lambda: dropped == ["a result"])


# -- several loops and threads -----------------------------------------------------------------------------------------


def test_several_loops_share_a_session(far):
    found: dict[int, list[float]] = {}
    together = threading.Barrier(3)

    def run(seed: int) -> None:
        together.wait(WAIT)
        found[seed] = asyncio.run(work(seed))

    async def work(seed: int) -> list[float]:
        x = far.asarray(ones(4)) * float(seed)
        values = await asyncio.gather(*((x + float(n)).numpy_async() for n in range(30)))
        return [float(array[0]) for array in values]

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert found == {seed: [float(seed + n) for n in range(30)] for seed in range(3)}


def test_a_loop_goes_on_while_another_thread_is_inside_an_atomic_block(session):
    x = session.asarray([1.0])
    session.sync()
    inside, leave = threading.Event(), threading.Event()

    def block() -> None:
        with session.atomic():
            inside.set()
            leave.wait(WAIT)

    async def main() -> None:
        waits = [asyncio.ensure_future(form) for form in (x.numpy_async(), session.sync_async(), x.is_ready_async())]
        given_up = asyncio.ensure_future(x.tolist_async())
        await turns()
        assert not any(wait.done() for wait in waits)
        given_up.cancel()
        leave.set()
        array, failed, ready = await asyncio.wait_for(asyncio.gather(*waits), WAIT)
        assert (array.tolist(), failed, ready) == ([1.0], 0, True)

    thread = threading.Thread(target=block)
    thread.start()
    assert inside.wait(WAIT)
    asyncio.run(main())
    thread.join(WAIT)
    eventually(lambda: not any(each.name == "tensord helper" for each in threading.enumerate()))
    assert_sound(session)


def test_nothing_is_awaited_inside_an_atomic_block_of_this_thread(session):
    x = session.asarray([1.0])

    async def main() -> None:
        with session.atomic(), pytest.raises(td.ProtocolError, match="inside atomic"):
            await x.numpy_async()

    asyncio.run(main())


def test_answers_that_are_taken_are_not_kept_behind_one_that_is_open(far):
    x = far.asarray([1.0])
    open_one = Reply()
    far._core.transport.attend(open_one)

    async def main() -> None:
        for _ in range(20):
            await x.numpy_async()

    asyncio.run(main())
    eventually(lambda: far._core.transport._attended == {open_one})
    open_one.set(None, None)
    assert not far._core.transport._attended


# -- the end -----------------------------------------------------------------------------------------------------------


def test_the_death_of_the_daemon_ends_each_form(tmp_path):
    with Daemon.start(tmp_path, "--device", "cpu:0") as daemon, daemon.connect() as session:
        g = given(session, tmp_path)

        async def main() -> list[Any]:
            daemon.signal(signal.SIGSTOP)
            tasks = [asyncio.ensure_future(FORMS[name].call(g)) for name in sorted(set(FORMS) - UNANSWERED)]
            await turns()
            daemon.kill()
            return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), WAIT)

        found = dict(zip(sorted(set(FORMS) - UNANSWERED), asyncio.run(main()), strict=True))
        wrong = {name: result for name, result in found.items() if not isinstance(result, td.ConnectionLost)}
        assert not wrong
        with pytest.raises(td.ConnectionLost):
            asyncio.run(g.x.numpy_async())


@pytest.mark.parametrize("close", [lambda s: s.close_async(), lambda s: asyncio.to_thread(s.close)])
def test_closing_the_session_ends_the_waits(session, close):
    device = device_of(session, "cpu:0")
    x = session.asarray(ones(4))
    session.sync()
    device.hold("compute")
    y = x + x

    async def main() -> None:
        task = asyncio.ensure_future(y.numpy_async())
        await turns()
        closing = asyncio.ensure_future(close(session))
        with pytest.raises((td.ConnectionLost, td.CancelledError)):
            await asyncio.wait_for(task, WAIT)
        device.resume("compute")
        await closing

    asyncio.run(main())
    assert session.closed


def test_what_was_saved_is_awaited_after_the_end_of_its_session(session, tmp_path):
    saving = session.save(tmp_path / "x", {"x": session.asarray([1.0])})
    lost = session.save(tmp_path / "y", {"y": session.xp.linalg.inv(session.asarray(np.zeros((2, 2))))})
    session.close()

    async def main() -> None:
        assert (await saving).exists()
        with pytest.raises(td.KernelError):
            await lost

    asyncio.run(main())


def test_a_session_ends_with_its_block(make_session):
    async def main() -> Session:
        async with make_session() as session:
            assert await session.asarray([1.0]).tolist_async() == [1.0]
        return session

    assert asyncio.run(main()).closed


def test_steps_of_signal_handlers_and_callbacks_are_refused(session):
    """A side effect's callback may neither send nor wait, in a loop neither."""
    x = session.asarray([1.0])
    told: list[BaseException] = []

    def callback(_value: Any) -> None:
        attempt(x.numpy_async, told)

    session.effect(callback, x)
    with pytest.raises(td.KernelError):
        session.check_chain()
    assert [type(error) for error in told] == [td.ProtocolError]


def attempt(form: Callable[[], Any], told: list[BaseException]) -> None:
    """Call a form, and note its error."""
    try:
        form()
    except td.ProtocolError as error:
        told.append(error)
        raise RuntimeError from error

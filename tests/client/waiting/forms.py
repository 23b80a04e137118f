"""Every awaitable form, as a call on a session and some of its tensors, and the expected result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tensord.client.session.session import Session
from tensord.client.tensor.tensor import Tensor


class Given(NamedTuple):
    """The arguments of forms. `x` is [[1, 2], [3, 4]], published as "there"; `one` is 7; `routine` has run."""

    session: Session
    x: Tensor
    one: Tensor
    routine: Any
    file: Path
    directory: Path


class Form(NamedTuple):
    """A form. `is_right` judges its result. `files`: it reads some, or the names of a checkpoint."""

    call: Callable[[Given], Awaitable[Any]]
    is_right: Callable[[Any], object]
    files: bool = False


ROWS = [[1.0, 2.0], [3.0, 4.0]]


def given(session: Session, folder: Path, *, files: bool = True) -> Given:
    """All arguments of forms, made in this session."""
    x, one = session.asarray(np.array(ROWS)), session.asarray(7)
    routine = session.routine(lambda x: x + 1)
    routine(x)
    session.publish("there", x)
    known = Given(session, x, one, routine, folder / "x.safetensors", folder / "checkpoints")
    if files and session._core.transport.opens_files:
        session.save(known.file, {"x": x}).wait()
        session.checkpoint(known.directory).wait()
    session.sync()
    return known


async def in_pool(g: Given) -> Any:
    """An array of a pool with one array, which is not handed back yet, as far as the client knows."""
    with g.session.pool((256, 256), count=1) as pool:
        array = await pool.get_async()
        assert array is not None
        array[...] = 1.0
        g.session.asarray(array)
        pool.put(array)
        again = await pool.get_async()
        return None if again is None else again.shape


def same(rows: Any) -> bool:
    """Is that the value of x?"""
    return bool(np.array_equal(rows, ROWS))


def is_x(tensor: Tensor) -> bool:
    """Is that x, or another handle to it?"""
    return tensor.shape == (2, 2)


FORMS: dict[str, Form] = {
    "Tensor.__await__": Form(lambda g: g.x, is_x),
    "Tensor.numpy_async": Form(lambda g: g.x.numpy_async(), same),
    "Tensor.tolist_async": Form(lambda g: g.x.tolist_async(), lambda rows: rows == ROWS),
    "Tensor.item_async": Form(lambda g: g.one.item_async(), lambda number: number == 7),
    "Tensor.residency_async": Form(lambda g: g.x.residency_async(), lambda found: found == {"cpu:0": "valid"}),
    "Tensor.is_ready_async": Form(lambda g: g.x.is_ready_async(), lambda ready: ready is True),
    "Tensor.error_async": Form(lambda g: g.x.error_async(), lambda error: error is None),
    "Session.flush_async": Form(lambda g: g.session.flush_async(), lambda nothing: nothing is None),
    "Session.fetch_async": Form(lambda g: g.session.fetch_async([g.x, g.one]), lambda found: same(found[0])),
    "Session.sync_async": Form(lambda g: g.session.sync_async(), lambda failed: failed == 0),
    "Session.check_chain_async": Form(lambda g: g.session.check_chain_async(), lambda nothing: nothing is None),
    "Session.publish_async": Form(lambda g: g.session.publish_async("there", g.x), lambda nothing: nothing is None),
    "Session.lookup_async": Form(lambda g: g.session.lookup_async("there"), is_x),
    "Session.unpublish_async": Form(lambda g: g.session.unpublish_async("there"), lambda nothing: nothing is None),
    "Session.names_async": Form(lambda g: g.session.names_async("tensor"), lambda names: names == ["there"]),
    "Session.load_async": Form(lambda g: g.session.load_async(g.file), lambda found: is_x(found["x"]), files=True),
    "Session.save_async": Form(
        lambda g: g.session.save_async(g.file.with_name("new"), {"x": g.x}), lambda saving: saving.wait()
    ),
    "Session.restore_async": Form(
        lambda g: g.session.restore_async(g.directory, "there"), lambda report: report["names"] == 1, files=True
    ),
    "Session.stats_async": Form(lambda g: g.session.stats_async("session"), lambda found: "memory" in found),
    "Session.trace_async": Form(lambda g: g.session.trace_async(), lambda trace: trace is not None),
    "Saving.__await__": Form(lambda g: g.session.save(g.file.with_name("y"), {"y": g.x}), lambda path: path.exists()),
    "Checkpointing.__await__": Form(lambda g: g.session.checkpoint(g.directory), lambda report: report["names"] == 1),
    "HostPool.get_async": Form(in_pool, lambda shape: shape == (256, 256)),
    "Routine.report_async": Form(lambda g: g.routine.report_async(), lambda report: report is not None),
    "LinkedRoutine.report_async": Form(lambda g: g.routine.link(g.x).report_async(), lambda report: report is not None),
    "LinkedProgram.report_async": Form(
        lambda g: g.session.link(g.routine.program(g.x)).report_async(), lambda report: report is not None
    ),
    "Session.close_async": Form(lambda g: g.session.close_async(), lambda nothing: nothing is None),
}

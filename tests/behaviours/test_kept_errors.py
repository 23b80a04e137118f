"""Errors that a machine or a session keeps: each is used again and again, and none of them holds on to a frame.

A frame keeps the locals of every function on the way alive: the user's tensors, if the machine is embedded. An error
object that is raised again would also collect the frames of each time.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.client.session.session import Session
from tensord.streams.faults import Fault, FaultKind

from .looking_inside import WAIT, device_of, ones

TIMES = 3


class Marker:
    """A local of the user's, which must not outlive the user's function."""


def lose(s: Session) -> td.Tensor:
    x = s.asarray(ones(4), device="sim:0").wait(WAIT)
    device_of(s, "sim:0").inject(Fault(FaultKind.LOST, label="negative"))
    with pytest.raises(td.KernelError):
        (-x).wait(WAIT)
    s.sync(WAIT)
    return s.asarray(ones(4))


def raise_at_user() -> None:
    raise ValueError("the callback failed")


def cancelled(s: Session) -> Callable[[], Any]:
    x = s.asarray(ones(4)).wait(WAIT)
    s.cancel()
    return lambda: x + 1.0


def lost_op(s: Session) -> Callable[[], Any]:
    x = lose(s)
    return lambda: s.call("add", [x, 1.0], device="sim:0")[0]


def lost_move(s: Session) -> Callable[[], Any]:
    x = lose(s)
    return lambda: x.to_device("sim:0")


def lost_upload(s: Session) -> Callable[[], Any]:
    lose(s)
    return lambda: s.asarray(ones(4), device="sim:0")


def bad_signature(s: Session) -> Callable[[], Any]:
    """The client does not know that the device of these tests lacks the op."""
    x = s.asarray(ones(4), device="sim:1")
    s._core.transport.devices = dict.fromkeys(s._core.transport.devices, frozenset())
    return lambda: s.call("tanh", [x])[0]


def failing_kernel(s: Session) -> Callable[[], Any]:
    x, index = s.asarray(ones(4)), s.asarray(np.array([9]))
    failed = s.call("take", [x, index], {"axis": 0})[0]
    return lambda: failed + 1.0


def failing_metas(s: Session) -> Callable[[], Any]:
    x = s.asarray(ones(4))
    return lambda: s.call("add", [s.call("unique_values", [x])[0], s.asarray(ones(3, 2))])[0].reshape(7)


def failing_callback(s: Session) -> Callable[[], Any]:
    chain = s.chain()
    x = s.asarray(ones(4))
    return lambda: s.effect(lambda _array: raise_at_user(), x, chain=chain)


KEPT = [cancelled, lost_op, lost_move, lost_upload, bad_signature, failing_kernel, failing_metas, failing_callback]


def with_frames() -> list[BaseException]:
    """Every error of ours that is alive and has frames, itself or through a cause."""
    gc.collect()
    found: list[BaseException] = []
    for one in [*gc.get_objects(), *made_at_import()]:
        if isinstance(one, td.TensordError):
            link: BaseException | None = one
            while link is not None:
                if link.__traceback__ is not None:
                    found.append(one)
                    break
                link = link.__cause__ or link.__context__
    return found


def made_at_import() -> list[Any]:
    """Objects that our modules keep since before the first test; the collector no longer knows them."""
    ours = [module for name, module in sys.modules.items() if name.partition(".")[0] == "tensord"]
    return [value for module in ours for value in vars(module).values()]


def use(s: Session, again: Callable[[], Any]) -> weakref.ref[Marker]:
    """As a user's function would: use the session, meet the error, return."""
    marker = Marker()
    result = again()
    s.flush()
    if isinstance(result, td.Tensor):
        with suppress(td.TensordError):
            result.numpy()
    return weakref.ref(marker)


def test_no_error_that_is_kept_holds_on_to_a_frame(make_session):
    """All kinds in one test, since looking at every object of the process takes its time."""
    devices = ["cpu:0", "sim:0", {"name": "sim:1", "missing": ["tanh"]}]
    sessions = {prepare: make_session(devices=devices) for prepare in KEPT}
    before = with_frames()
    markers: dict[str, weakref.ref[Marker]] = {}
    for prepare, s in sessions.items():
        again = prepare(s)
        for _ in range(TIMES):
            markers[prepare.__name__] = use(s, again)
            s.sync(WAIT)
    assert [error for error in with_frames() if not any(error is known for known in before)] == []
    assert {name for name, marker in markers.items() if marker() is not None} == set()

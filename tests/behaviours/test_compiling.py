"""Traces name the calls whose kernels ran on a device for the first time, and so were compiled."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import tensord as td
from tensord.client.cli.application import application
from tensord.vm.model import launches
from tensord.vm.model.instruction import COMPILING
from tensord.vm.runtime import describe_hang
from tensord.vm.tracing.analysis.sums.stats import stats
from tensord.vm.tracing.analysis.sums.timeline import to_chrome
from tensord.vm.tracing.analysis.waits.why import why

from ..streams.fake_cuda.gpu import Gpu
from ..streams.fake_cuda.module import installed

DEVICES = {
    "cuda:0": {"name": "cuda:0", "memory": "64MiB", "cache": "8MiB"},
    "sim:0": {"name": "sim:0", "launches": True},
}


@pytest.fixture(params=DEVICES)
def session(request: pytest.FixtureRequest) -> Iterator[Any]:
    """On a device that launches."""
    with ExitStack() as stack:
        if request.param == "cuda:0":
            stack.enter_context(installed(Gpu(seed=1, memory=1 << 30)))
        chosen: Any = DEVICES[request.param]
        yield stack.enter_context(td.connect("local", devices=[chosen]))


def put(session: Any, *shape: int) -> Any:
    return session.asarray(np.ones(shape, np.float32)).wait()


def compiling(session: Any, op: str) -> list[bool]:
    """For the calls of an op, in their order."""
    return ["compiling" in one.held for one in session.trace().records if one.op == op]


def test_the_first_call_of_a_kernel_is_named_and_no_later_one(session: Any) -> None:
    x = put(session, 64)
    for _ in range(3):
        (x + x).numpy()
    assert compiling(session, "add") == [True, False, False]
    (put(session, 8) + put(session, 8)).numpy()  # the same kernel
    assert compiling(session, "add") == [True, False, False, False]
    (x + 2).numpy()  # another one
    (x[::2] + x[::2]).numpy()
    assert compiling(session, "add")[4:] == [True, True]


def test_of_calls_that_come_together_the_first_one_compiles(session: Any) -> None:
    x = put(session, 64)
    for _ in range(4):
        x = x * x
    x.numpy()
    assert compiling(session, "multiply") == [True, False, False, False]


def test_what_is_never_launched_at_admission_is_compiled_once_too(session: Any) -> None:
    x = put(session, 64)
    for _ in range(2):
        session.xp.fft.rfft(x).numpy()
        session.call("nonzero", [x])[0].numpy()
    assert compiling(session, "rfft") == compiling(session, "nonzero") == [True, False]


def test_so_many_first_calls_are_remembered_and_no_more(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launches, "REMEMBERED", 2)
    x = put(session, 64)
    for _ in range(2):
        for function in (session.xp.fft.fft, session.xp.fft.ifft, session.xp.fft.rfft):
            function(x).numpy()
    assert compiling(session, "rfft") == [True, True]


def test_uploads_and_fetches_compile_nothing(session: Any) -> None:
    put(session, 64).numpy()
    assert not any(one.held for one in session.trace().records)


def test_every_tool_tells(session: Any, tmp_path: Path) -> None:
    x = put(session, 64)
    (x + x).numpy()
    trace = session.trace()
    (first,) = [one for one in trace.records if one.op == "add"]
    told = trace.why(first)
    assert "compiling" in told.splitlines()[0]
    assert "of it compiling kernels:" in told
    assert why(trace, first.id).compiling == first.finished - first.started
    (row,) = [one for one in stats(trace, trace.records).streams if one.stream == first.stream]
    assert row.lost["compiling"] > 0
    (event,) = [one for one in json.loads(to_chrome(trace))["traceEvents"] if one["name"] == "add"]
    assert "compiling" in event["cat"].split(",")
    assert event["args"]["held"] == "compiling"
    assert trace.verify() == []
    trace.save(tmp_path / "saved.trace")
    shown = CliRunner().invoke(application, ["trace", "show", str(tmp_path / "saved.trace"), "--op", "add"])
    assert "compiling" in shown.output


def test_a_call_that_runs_for_long_says_that_it_compiles() -> None:
    for held, shown in ((COMPILING, "svd (compiling)"), (0, "svd")):
        task = SimpleNamespace(id=7, label="svd", held=held)
        assert describe_hang(task, "cuda:0/compute0", 4.0, "")["op"] == shown


def test_on_a_host_device_nothing_is_compiled() -> None:
    with td.connect("local") as session:
        x = put(session, 64)
        (x + x).numpy()
        assert compiling(session, "add") == [False]

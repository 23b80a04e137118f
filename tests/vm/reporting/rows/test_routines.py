"""Reports of the kernels that were generated for a routine."""

from __future__ import annotations

import numpy as np
import pytest

import tensord as td
from tensord.streams.host.cpu import CpuDevice
from tensord.streams.host.fused_kernel import FusedKernel


class Generated(FusedKernel):
    """A fusion's kernel with a source, as a GPU's."""

    source = "kernel of a test\nin two lines"
    ready = False

    def is_ready(self):
        return self.ready


@pytest.fixture
def routine(monkeypatch):
    """A routine with a fusion, which has run twice."""
    monkeypatch.setattr(CpuDevice, "fuse", lambda _device, program, fusion, _work: Generated(program, fusion))
    with td.connect("local", devices=["cpu:0"]) as session:
        f = session.routine(lambda x: (x * 2 + 1).sum())
        x = session.asarray(np.ones(1 << 18))
        for _ in range(2):
            f(x)
        yield f


def test_a_report_has_the_sources_of_kernels_if_they_are_asked_for(routine):
    (piece,) = routine.report(source=True)["pieces"]
    assert piece["kernels"] == [{"steps": [0, 1], "compiled": False, "source": Generated.source}]
    (piece,) = routine.report()["pieces"]
    assert "kernels" not in piece
    assert Generated.source.splitlines()[1] not in str(routine.report())


def test_a_report_shows_sources_below_their_segments_and_whether_they_are_compiled(routine, monkeypatch):
    lines = str(routine.report(source=True)).splitlines()
    first = next(n for n, line in enumerate(lines) if "kernel of steps 0, 1, not compiled" in line)
    assert "fusion of 2 steps" in lines[first - 1]
    assert lines[first + 1 : first + 3] == [f"    {line}" for line in Generated.source.splitlines()]
    monkeypatch.setattr(Generated, "ready", True)
    assert "  kernel of steps 0, 1, compiled:" in str(routine.report(source=True)).splitlines()


def test_the_report_is_awaited_with_sources_too(routine):
    import asyncio

    async def told():
        return await routine.report_async(source=True)

    assert asyncio.run(told()) == routine.report(source=True)

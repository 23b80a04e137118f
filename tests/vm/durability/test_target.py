"""A machine's cached state of checkpoint directories."""

from __future__ import annotations

from pathlib import Path

from tensord.vm.durability.target import REMEMBERED, Targets


def test_the_last_directories_are_remembered_with_those_in_use():
    targets = Targets()
    durable = targets.hold(Path("/durable"))
    busy = targets.of(Path("/busy"))
    busy.busy = True
    found = [targets.of(Path(f"/{n}")) for n in range(10)]
    again = [targets.of(Path(f"/{n}")) for n in (6, 9, 8, 7)]
    assert [found.index(one) for one in again] == [6, 9, 8, 7]
    assert len(again) == REMEMBERED
    assert targets.of(Path("/durable")) is durable
    assert targets.of(Path("/busy")) is busy
    assert targets.of(Path("/6")) is found[6]
    assert targets.of(Path("/5")) is not found[5]
    assert targets.of(Path("/9")) is not found[9]

"""The recency and the frequency of storages' uses."""

from __future__ import annotations

import pytest

from tensord.vm.memory.victims import touch
from tensord.vm.model.tensor import Storage

from ..parts import Parts


@pytest.fixture
def parts() -> Parts:
    parts = Parts("cpu:0", "sim:0")
    for device in parts.engine.devices.values():
        device.short = True
    return parts


@pytest.fixture
def storage(parts: Parts) -> Storage:
    return parts.tensor().storage


def after(parts: Parts, storage: Storage, uses: int) -> None:
    """Use the storage after `uses` uses of others."""
    parts.here.uses.newest += uses
    touch(storage, parts.here)


def test_nothing_is_noted_before_memory_was_short(parts: Parts, storage: Storage) -> None:
    parts.here.short = False
    touch(storage, parts.here)
    assert (storage.used, storage.rest, parts.here.uses.newest) == (0, 0, 0)


def test_what_was_used_last_has_the_newest_number(parts: Parts) -> None:
    one, other = parts.tensor().storage, parts.tensor().storage
    touch(one, parts.here)
    touch(other, parts.at("sim:0"))
    assert one.used < other.used == parts.here.uses.newest


def test_its_rest_is_how_long_it_was_not_used(parts: Parts, storage: Storage) -> None:
    after(parts, storage, 99)
    assert storage.rest == 100


def test_a_long_rest_is_remembered_through_uses_that_follow_each_other(parts: Parts, storage: Storage) -> None:
    """A weight is used several times in its layer, and then not before the next round."""
    after(parts, storage, 99)
    touch(storage, parts.here)
    assert storage.rest == 75


def test_a_long_rest_that_does_not_come_again_is_forgotten(parts: Parts, storage: Storage) -> None:
    after(parts, storage, 99)
    for _ in range(20):
        touch(storage, parts.here)
    assert storage.rest <= 3

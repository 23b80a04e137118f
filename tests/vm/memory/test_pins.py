"""Pins: a device knows its pinned tensors, and the storages that stay for them, by four functions alone."""

from __future__ import annotations

from collections import Counter

import pytest

from tensord.vm.memory.pins import end_pins, move_pins, pin, pinned_bytes, unpin
from tensord.vm.model.tensor import VmTensor
from tensord.vm.placement.views import alias

from ..parts import Parts


@pytest.fixture
def parts() -> Parts:
    return Parts()


def handle(parts: Parts, tensor: VmTensor) -> int:
    """The id of a tensor in the session's table."""
    return next(id_ for id_, one in parts.session.tensors.items() if one is tensor)


def counted(parts: Parts) -> tuple[dict[VmTensor, int], Counter[object]]:
    """The pins of each tensor, and the pinned tensors of each storage, as the session's handles have them."""
    pins: Counter[VmTensor] = Counter()
    for tensor, count in parts.session.pins.values():
        pins[tensor] += count
    return dict(pins), Counter(tensor.storage for tensor in pins)


def test_the_device_agrees_with_the_handles_after_each_step(parts: Parts) -> None:
    x, y = parts.tensor(), parts.tensor()
    z = alias(x, parts.here)
    parts.session.tensors[99] = z
    steps = [
        lambda: pin(parts.session, handle(parts, x), x),
        lambda: pin(parts.session, handle(parts, x), x),
        lambda: pin(parts.session, 99, z),  # the same storage
        lambda: pin(parts.session, handle(parts, y), y),
        lambda: unpin(parts.session, handle(parts, x)),
        lambda: unpin(parts.session, handle(parts, x)),
        lambda: unpin(parts.session, handle(parts, x)),  # no more
        lambda: end_pins(parts.session, 99),
        lambda: end_pins(parts.session, 99),
        lambda: end_pins(parts.session, handle(parts, y)),
    ]
    for step in steps:
        step()
        assert (parts.here.pins, parts.here.pinned) == counted(parts)
    assert not parts.here.pins


def test_pins_follow_a_tensor_to_another_storage(parts: Parts) -> None:
    x, y = parts.tensor(), parts.tensor(2)
    pin(parts.session, handle(parts, x), x)
    before, x.storage = x.storage, y.storage
    move_pins(x, before)
    assert parts.here.pinned == {y.storage: 1}
    assert pinned_bytes(parts.here) == 16

"""Descriptors are counted: the open ones, and those still free."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator

import pytest

from tensord.interpreter.wire import descriptors, segments


@pytest.fixture
def few() -> Iterator[int]:
    """The process may open four descriptors more; its limit."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = os.dup(0)
    os.close(highest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 4, before[1]))
    yield highest + 4
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_descriptors_are_required_before_they_are_used(few: int) -> None:
    open_now = descriptors.descriptors_open()
    descriptors.require_descriptors(4)
    with pytest.raises(OSError, match=f"the limit is {few}; raise it") as told:
        descriptors.require_descriptors(5)
    assert told.value.errno == errno.EMFILE
    assert descriptors.descriptors_open() == open_now


def test_segments_may_have_a_quarter_unless_told_otherwise() -> None:
    limit, taken = descriptors.descriptor_limit(), segments.open_descriptors()
    assert segments.descriptors_left() == limit // 4 - taken
    with segments.descriptor_budget(taken + 3):
        assert segments.descriptors_left() == 3
    assert segments.descriptors_left() == limit // 4 - taken

"""After any sequence of events in a directory, its generations are those of a model, bit for bit."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensord.interpreter.checkpoints.reader import CheckpointReader
from tensord.interpreter.types.meta import DTYPES

from .histories import (
    STEPS,
    Collect,
    Crash,
    Generate,
    Play,
    Reopen,
    array,
    check_goes_on,
    check_whole,
    names_of,
    needed_of,
    small_files,
)


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with small_files():
        yield


NAMES = st.sampled_from("abcdefgh")
ARRAYS = st.builds(
    array, st.sampled_from((0, 1, 2, 5, 9, 40)), st.integers(0, 9), st.sampled_from(sorted(set(DTYPES) - {"bool"}))
)
CONTENTS = st.dictionaries(NAMES, st.one_of(ARRAYS, st.text("def é\n", max_size=90)), max_size=5)
STEPS_OF_ANY_KIND = st.one_of(
    st.builds(
        Generate,
        CONTENTS,
        st.sets(NAMES),
        st.dictionaries(st.sampled_from("xyz"), NAMES, max_size=2),
        st.sampled_from((False, False, False, True)),
    ),
    st.builds(Collect, st.integers(1, 3)),
    st.builds(Reopen),
    st.builds(Crash, CONTENTS),
)


@settings(max_examples=20)
@given(st.lists(STEPS_OF_ANY_KIND, max_size=14))
def test_generations_are_those_of_a_model(tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("history") / "checkpoints"
    play = Play(path)
    try:
        for step in steps:
            play.take(step)
            if isinstance(step, Collect) and play.directory is not None:
                assert len(play.directory.generations()) <= step.keep
                assert names_of(play.path) == needed_of(play.directory)
            if play.directory is not None:
                check_whole(play.path, play.expected, [play.last])
        if play.directory is not None:
            play.close()
            check_goes_on(play.path, play.expected, play.last)
    finally:
        play.close()
        shutil.rmtree(path.parent)


def test_the_script_moves_values_and_shares_files(tmp_path):
    """The history that the tests of deaths, full disks and losses of power play covers these events."""
    play = Play(tmp_path / "checkpoints")
    ranges: dict[int, set[tuple[int, int, int]]] = {}  # of a value, by its checksum
    files = []

    def look(number: int) -> None:
        with CheckpointReader.open(play.path) as reader:
            generation = reader.generation(number)
        files.append(set(generation.files))
        for _, record in generation.records():
            if record.nbytes:
                ranges.setdefault(record.crc, set()).add(record.byte_range)

    play.acknowledged = look
    play.play(STEPS)
    assert len(files) == 4
    assert sum(len(found) - 1 for found in ranges.values()) > 1, "too few values were moved"
    assert all(one & other for one, other in itertools.pairwise(files)), "nothing was kept"
    assert max(map(len, files)) > 2, "no large value had a file of its own"

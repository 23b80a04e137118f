"""Whatever happens to a directory, in whatever order, its generations are those of a model, bit for bit."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensord.interpreter.checkpoints.directory import CheckpointDirectory
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


@settings(max_examples=100)
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


def test_the_script_moves_values_and_writes_large_ones_and_packs(tmp_path):
    """What the tests of deaths, full disks and losses of power play is worth playing."""
    play = Play(tmp_path / "checkpoints")
    files: list[set[str]] = []
    play.acknowledged = lambda _: files.append(names_of(play.path))
    play.play(STEPS)
    assert len(files) == 4
    with CheckpointDirectory.open(play.path) as directory:
        first, second = map(directory.generation, directory.generations())
        assert {record.place for _, record in first.records()} - {record.place for _, record in second.records()}
        assert play.records["z"].place != first.tensors["z"].place, "nothing was moved"
        assert play.records["a"].crc == first.tensors["a"].crc
        assert len(first.files) > 1

"""A few seconds of fuzzing in every run of the suite; `python -m tests.fuzz.run` goes on for longer."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .checkpoints import try_manifest
from .files import try_content
from .harness import try_decoding
from .routines import try_text
from .run import play_one


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Silence the log: each of the thousands of refusals would be logged."""
    logger = logging.getLogger("tensord")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


@settings(max_examples=150)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_header_or_refused(frame: bytes) -> None:
    try_decoding(frame)


@settings(max_examples=80)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_program_or_refused(source: bytes) -> None:
    try_text(source)


@settings(max_examples=80)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_file_of_tensors_or_refused(source: bytes) -> None:
    try_content(source)


@settings(max_examples=80)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_manifest_or_refused(source: bytes) -> None:
    try_manifest(source)


def test_hostile_programs_do_no_harm() -> None:
    """Mangled headers, programs as text, files and checkpoints, with which each seed begins, do no harm either.

    From seeds: with hypothesis, which draws each number by itself, a program would take four times as long.
    """
    for seed in range(30):
        try:
            play_one(random.Random(seed))
        except Exception as error:
            raise AssertionError(f"python -m tests.fuzz.run --seed {seed} --programs 1") from error

"""A few seconds of fuzzing in every run of the suite; `python -m tests.fuzz.run` goes on for longer."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .harness import play, try_decoding
from .programs import Writer, mangled
from .routines import try_program, try_text
from .run import play_one

SOURCES = st.randoms(use_true_random=False)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Each refusal is logged; here are thousands."""
    logger = logging.getLogger("tensord")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


@settings(max_examples=500)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_header_or_refused(frame: bytes) -> None:
    try_decoding(frame)


@settings(max_examples=40)
@given(SOURCES)
def test_mangled_headers_are_headers_or_refused(rnd: random.Random) -> None:
    writer = Writer(rnd)
    for step in writer.steps():
        for frame in step.frames:
            try_decoding(mangled(frame, rnd))


@settings(max_examples=200)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_program_or_refused(source: bytes) -> None:
    try_text(source)


@settings(max_examples=40)
@given(SOURCES)
def test_programs_come_back_and_mangled_ones_do_no_harm(rnd: random.Random) -> None:
    try_program(rnd)


@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(SOURCES)
def test_hostile_programs_do_no_harm(rnd: random.Random) -> None:
    play(Writer(rnd))


def test_many_hostile_programs_do_no_harm() -> None:
    for seed in range(150):
        try:
            play_one(random.Random(seed))
        except Exception as error:
            raise AssertionError(f"python -m tests.fuzz.run --seed {seed} --programs 1") from error

"""A few seconds of fuzzing in every run of the suite; `python -m tests.fuzz.run` goes on for longer."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .checkpoints import try_checkpoints, try_manifest
from .files import try_content, try_file
from .harness import try_decoding
from .programs import Writer, mangled
from .routines import try_program, try_text
from .run import play_one


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Each refusal is logged; here are thousands."""
    logger = logging.getLogger("tensord")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


@settings(max_examples=150)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_header_or_refused(frame: bytes) -> None:
    try_decoding(frame)


def test_mangled_headers_are_headers_or_refused() -> None:
    for seed in range(15):
        rnd = random.Random(seed)
        for step in Writer(rnd).steps():
            for frame in step.frames:
                try_decoding(mangled(frame, rnd))


@settings(max_examples=80)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_program_or_refused(source: bytes) -> None:
    try_text(source)


def test_programs_come_back_and_mangled_ones_do_no_harm() -> None:
    for seed in range(15):
        try_program(random.Random(seed))


@settings(max_examples=80)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_file_of_tensors_or_refused(source: bytes) -> None:
    try_content(source)


def test_files_come_back_and_mangled_ones_do_no_harm() -> None:
    for seed in range(80):
        try_file(random.Random(seed))


@settings(max_examples=80)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_manifest_or_refused(source: bytes) -> None:
    try_manifest(source)


def test_checkpoints_come_back_and_mangled_ones_do_no_harm() -> None:
    for seed in range(80):
        try_checkpoints(random.Random(seed))


def test_hostile_programs_do_no_harm() -> None:
    """From seeds: with hypothesis, which draws each number by itself, a program would take four times as long."""
    for seed in range(50):
        try:
            play_one(random.Random(seed))
        except Exception as error:
            raise AssertionError(f"python -m tests.fuzz.run --seed {seed} --programs 1") from error

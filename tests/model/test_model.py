"""The engine against the serial engine, on random programs in random interleavings.

Behaviours 1, 4, 5, 8, 13 to 17, 28, 32, 35, 39 to 45, as far as values, errors, edges and memory show them: after each
program every value read is the serial engine's, bit for bit, or carries one of the errors it may; the trace has no
missing and no superfluous edge; and nothing is left in the engine.
"""

from __future__ import annotations

import pytest

from .run import REPLAY, failures

PROGRAMS = 1000
CHUNK = 100


@pytest.mark.parametrize("first", range(0, PROGRAMS, CHUNK))
def test_random_programs_give_what_serial_execution_gives(first: int) -> None:
    """Behaviour 1: random programs over a cpu and two sim devices, completions in any order."""
    wrong = failures(first, CHUNK)
    text = "\n".join(f"{REPLAY.format(seed=seed)}\n    {problems[0]}" for seed, problems in wrong)
    assert not wrong, f"{len(wrong)} programs went wrong; to run them again:\n{text}"

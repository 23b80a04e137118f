"""Random programs through the client's surface, with the device in place of two simulated ones, against the serial
engine: every value bit for bit, and `verify` afterwards. As many as there is time for, each from its seed."""

from __future__ import annotations

import numpy as np

import tensord

from .. import stand_in
from ..model.clients import Clients
from ..model.ops import failing_ops
from ..model.programs import random_program
from .stage import Given, main

LEAST = 20  # programs, without which nothing is shown
MOST = 2_000


def work(given: Given) -> None:
    """One check for each seed of this part, at least so many that all parts together have enough."""
    given.stand_in_for("sim")
    count, least = 0, -(-LEAST // given.parts)
    with stand_in.installed(), failing_ops(), np.errstate(all="ignore"):
        for seed in range(given.part, MOST, given.parts):
            if given.remaining < 0 and count >= least:
                break
            with given.record.check(f"seed {seed}"):
                run(seed)
            count += 1
    given.record.figure("random programs", count)


def run(seed: int) -> None:
    """The program of that seed; AssertionError names the difference of its values."""
    program = random_program(seed, honest=True)
    clients = Clients(program, f"local:gpu-{seed}", tensord.connect)
    try:
        wrong = clients.run(program)
    finally:
        for session in clients.sessions:
            session.close()
    assert not wrong, f"{len(wrong)} differences, the first: {wrong[0]}"


if __name__ == "__main__":
    main(work)

"""Random programs through the client's surface, on a virtual machine with threads, against the serial engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from .clients import Clients
from .ops import failing_ops
from .programs import random_program


@pytest.mark.parametrize("seed", range(40))
def test_threads_give_what_serial_execution_gives(seed: int, make_session: Callable[..., Any]) -> None:
    """Behaviour 1, with real workers; one machine shared by up to three sessions."""
    with failing_ops(), np.errstate(all="ignore"):
        program = random_program(seed, honest=True)
        clients = Clients(program, f"local:model-{seed}", make_session)
        wrong = clients.run(program)
    assert not wrong, f"seed {seed}: {wrong[:3]}"

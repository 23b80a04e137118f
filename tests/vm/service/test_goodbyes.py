"""Messages that a client has sent before its goodbye."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ...daemon import Daemon
from ...puppet import eventually

WRITES = 400


@pytest.mark.parametrize("launches", [False, True])
def test_what_a_client_wrote_before_it_said_goodbye_is_written(tmp_path: Path, launches: bool) -> None:
    """Its last batches are not admitted yet when the goodbye comes, and others hold the written tensors."""
    config = f'devices = ["cpu:0", {{name = "sim:0", compute_delay = 0.001, launches = {str(launches).lower()}}}]'
    (tmp_path / "tensord.toml").write_text(config)
    with Daemon.start(tmp_path, "--config", str(tmp_path / "tensord.toml")) as daemon, daemon.connect() as reader:
        with daemon.connect() as writer:
            x = writer.asarray(np.zeros(16), device="sim:0")
            for _ in range(3):
                x += 0.0
                x.wait()
            writer.publish("x", x)
            y = reader.lookup("x")
            for _ in range(WRITES):
                x += 1.0
            writer.flush()
        eventually(lambda: y.numpy()[0] == WRITES)

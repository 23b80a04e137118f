"""Daemons and clients over the fake of CUDA's runtime, forked from a process that has imported their modules."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self
from unittest.mock import patch

from ..daemon import Daemon
from ..puppet import Puppet
from . import fake


def fake_daemon(directory: Path, config: str, spec: str = "1", address: str | None = None) -> Daemon:
    """A daemon of that configuration, whose GPU is a fake. `spec`: its seed and faults."""
    (directory / "tensord.toml").write_text(config)
    options = ("--config", str(directory / "tensord.toml"))
    with patch.dict(os.environ, {fake.VARIABLE: spec}):
        return Daemon.start(directory, *options, main=("tests.gpu.fake", "serve"), address=address)


class FakeClient(Puppet):
    """A process with a fake of its own; with an address it has a session there, `s`."""

    @classmethod
    def start(cls, address: str | None = None, **environment: str) -> Self:
        puppet = super().start(**environment)
        puppet.do("from tests.gpu.fake import install; install('7')")
        if address is not None:
            puppet.do(f"s = td.connect({address!r})")
        return puppet

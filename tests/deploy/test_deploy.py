"""The files of deploy/ agree with the package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNIT = (ROOT / "deploy/tensord.service").read_text()
CONTAINER = (ROOT / "deploy/Containerfile").read_text()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd")
def test_systemd_understands_the_unit(tmp_path):
    unit = tmp_path / "tensord.service"
    unit.write_text(UNIT.replace("%h/.local/bin/tensord", sys.executable))
    environment = os.environ | {"XDG_RUNTIME_DIR": str(tmp_path)}
    command = ["systemd-analyze", "--user", "verify", str(unit)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)  # noqa: S603
    said = result.stdout + result.stderr
    if "Failed to initialize manager" in said:
        pytest.skip(said)
    assert (result.returncode, said) == (0, "")


def test_the_unit_has_what_the_daemon_counts_on():
    settings = dict(re.findall(r"^(\w+)=(.*)$", UNIT, re.MULTILINE))
    expected = {
        "Type": "notify",
        "RuntimeDirectory": "tensord",
        "RuntimeDirectoryMode": "0700",
        "NoNewPrivileges": "yes",
    }
    assert expected.items() <= settings.items()
    assert {"WatchdogSec", "Restart", "MemoryMax"} <= settings.keys()
    # These hide /proc/PID/fd of clients, or their uids.
    assert not {"PrivateUsers", "ProtectProc", "ProcSubset", "PrivatePIDs"} & settings.keys()


def test_the_image_has_every_package_and_runs_as_nobody_special():
    packages = {link.name for link in (ROOT / "src/tensord").iterdir() if link.is_symlink()}
    copied = set(re.findall(r"^COPY (\w+) \1$", CONTAINER, re.MULTILINE))
    assert packages | {"src"} == copied
    assert re.search(r"^USER tensord$", CONTAINER, re.MULTILINE)

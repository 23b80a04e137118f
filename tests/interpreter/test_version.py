"""The version is that of the source."""

from __future__ import annotations

import tensord
from tensord.client.cli.doctor.findings import Level
from tensord.client.cli.doctor.system import check_packages
from tensord.interpreter.version import version


def test_a_checkout_that_is_not_installed_has_its_version(monkeypatch):
    """A daemon of a checkout that is not installed once exited, since it found no package."""
    monkeypatch.setattr("importlib.metadata.Distribution.from_name", missing)
    assert version() == tensord.__version__


def test_the_doctor_says_so_and_finds_nothing_wrong_with_it(monkeypatch):
    monkeypatch.setattr("tensord.client.cli.doctor.system.installed", lambda name: None if name == "tensord" else "1")
    assert not [one for one in check_packages() if one.level is Level.FAIL]
    (ours,) = [one for one in check_packages() if one.check == "tensord"]
    assert "not installed" in ours.message


def missing(name: str) -> None:
    from importlib.metadata import PackageNotFoundError

    raise PackageNotFoundError(name)

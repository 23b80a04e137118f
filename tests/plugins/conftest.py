"""An outside package, built and installed as users do; and plugins of a few lines, as an installer would leave them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import distributions
from pathlib import Path
from unittest.mock import patch

import pytest

from tensord.interpreter.schema.opdef import REGISTRY
from tensord.streams.catalogue import KINDS
from tensord.vm.plugins.loading import LOADED

PACKAGE = Path(__file__).parent / "package"


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory in which the package of `package/` is installed, from its wheel, without a network."""
    for tool in ("pip", "setuptools"):  # importing them changes later imports of this process
        if not any(distributions(name=tool)):
            pytest.skip(f"{tool} is not installed")
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(PACKAGE, folder / "source")  # a build leaves its own files beside the sources
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-index"]
    there = [
        "--no-deps",
        "--no-build-isolation",
        "--no-compile",
        "--target",
        str(folder / "there"),
        str(folder / "source"),
    ]
    subprocess.run([*command, *there], check=True, timeout=60)  # noqa: S603
    return folder / "there"


@pytest.fixture
def registries() -> Iterator[None]:
    """Removes definitions and modules of plugins after the test."""
    modules = set(sys.modules)
    with patch.dict(KINDS), patch.dict(REGISTRY), patch.dict(LOADED):
        yield
    for name in set(sys.modules) - modules:
        if name.partition(".")[0] in {"mypackage", "made_up", "another"}:
            del sys.modules[name]


@pytest.fixture
def write_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Callable[..., str]:
    """write_plugin(code, ...) -> the name of an installed package that consists of one module."""
    request.getfixturevalue("registries")
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(code: str, *, name: str = "made-up", version: str = "3.4", points: str | None = None) -> str:
        module = name.replace("-", "_")
        (tmp_path / f"{module}.py").write_text(code)
        about = tmp_path / f"{module}-{version}.dist-info"
        about.mkdir(exist_ok=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (about / "entry_points.txt").write_text(f"[tensord.ops]\nall = {module}\n" if points is None else points)
        return name

    return write

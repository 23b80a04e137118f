"""The running form of the package, as `tensord.build_info` and the doctor report it."""

from __future__ import annotations

import hashlib
import json
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import tensord as td
from tensord.client.cli.doctor.findings import Level
from tensord.client.cli.doctor.system import check_build
from tensord.interpreter import build_info as module
from tensord.interpreter.build_info import BuildInfo, build_of


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package of two sources."""
    root = tmp_path / "tensord"
    (root / "vm").mkdir(parents=True)
    (root / "vm" / "engine.py").write_text("SPEED = 1\n")
    (root / "vm" / "machine.py").write_text("WINDOW = 2\n")
    return root


def compile_engine(root: Path) -> None:
    """Make the files of a compiled build."""
    source = root / "vm" / "engine.py"
    source.with_suffix(EXTENSION_SUFFIXES[0]).write_bytes(b"")
    digests = {"tensord.vm.engine": hashlib.sha256(source.read_bytes()).hexdigest()}
    (root / "compiled.json").write_text(json.dumps({"compiler": "mypyc 2.4, -O1", "modules": digests}))


def test_sources_alone_are_pure(package):
    found = build_of(package)
    assert found[:4] == ("pure", (), (), ())
    assert found.compiler == ""


def test_a_compiled_module_is_named_with_its_compiler(package):
    pure = build_of(package)
    compile_engine(package)
    found = build_of(package)
    assert found == BuildInfo("compiled", ("tensord.vm.engine",), (), (), pure.digest, "mypyc 2.4, -O1")


def test_an_edited_source_beside_a_compiled_module_is_told(package):
    compile_engine(package)
    before = build_of(package)
    (package / "vm" / "engine.py").write_text("SPEED = 2\n")
    found = build_of(package)
    assert found.changed == ("tensord.vm.engine",)
    assert found.digest != before.digest


def test_a_compiled_module_of_which_no_build_knows_counts_as_changed(package):
    compile_engine(package)
    (package / "compiled.json").unlink()
    assert build_of(package)[:3] == ("compiled", ("tensord.vm.engine",), ("tensord.vm.engine",))


def test_what_was_compiled_for_another_python_is_missing(package):
    compile_engine(package)
    ours = package / "vm" / f"engine{EXTENSION_SUFFIXES[0]}"
    ours.rename(ours.with_name("engine.cpython-30-other.so"))
    assert build_of(package)[:4] == ("pure", (), (), ("tensord.vm.engine",))


def test_the_digest_depends_on_names_and_contents_alone(package, tmp_path):
    other = tmp_path / "elsewhere" / "tensord"
    other.parent.mkdir()
    (package / "vm" / "machine.pyc").write_bytes(b"of no interest")
    package_digest = build_of(package).digest
    package.rename(other)
    assert build_of(other).digest == package_digest
    (other / "vm" / "machine.py").rename(other / "vm" / "engines.py")
    assert build_of(other).digest != package_digest


def test_the_public_function_tells_of_this_package():
    found = td.build_info()
    assert found.form == ("compiled" if found.compiled else "pure")
    assert not found.changed
    assert len(found.digest) == 64


@pytest.mark.parametrize(
    ("told", "levels", "words"),
    [
        (BuildInfo("pure", (), (), (), "0" * 64, ""), [Level.OK], "plain Python"),
        (BuildInfo("compiled", ("a", "b"), (), (), "0" * 64, "mypyc"), [Level.OK], "2 modules compiled by mypyc"),
        (
            BuildInfo("compiled", ("a",), ("a",), (), "0" * 64, "mypyc"),
            [Level.OK, Level.WARN],
            "does not match the source: a",
        ),
        (BuildInfo("pure", (), (), (*"abcd",), "0" * 64, ""), [Level.OK, Level.WARN], "a, b, c and 1 more"),
    ],
)
def test_the_doctor_says_which_form_runs(monkeypatch, told, levels, words):
    monkeypatch.setattr(module, "build_info", lambda: told)
    found = list(check_build())
    assert [one.level for one in found] == levels
    assert words in found[-1].message
    assert all(one.advice for one in found if one.level is Level.WARN)

"""The compiled modules, the conditions of compiling, and the build where compiling is impossible."""

from __future__ import annotations

import ast
import hashlib
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tensord.interpreter.op_descriptions import make_table

ROOT = Path(__file__).parents[2]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """load(command, **environment) -> the names of setup.py, as it is run with that command."""
    pytest.importorskip("setuptools")
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("TENSORD_COMPILE", raising=False)

    def run(*command: str, **environment: str) -> dict[str, Any]:
        monkeypatch.setattr(sys, "argv", ["setup.py", *command])
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        return runpy.run_path("setup.py", run_name="setup")

    return run


def test_every_pattern_names_modules_of_the_machine_and_none_of_the_client(load):
    names = load()
    found = names["engine"]()
    assert len(found) == len(set(found)) > 40
    assert all((ROOT / "src" / path).is_file() for path in found)
    for pattern in names["ENGINE"]:
        assert list((ROOT / "src" / "tensord").glob(pattern)), pattern
    assert not [
        path for path in found if path.name == "__init__.py" or "client" in path.parts or "service" in path.parts
    ]


def test_a_wheel_has_the_files_of_the_page(tmp_path):
    command = [sys.executable, "setup.py", "--quiet", "build_py", "--build-lib", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)  # noqa: S603 - our own build
    folder = "vm/tracing/analysis/page/static"
    built = {path.name: path.read_bytes() for path in (tmp_path / "tensord" / folder).iterdir()}
    assert built == {path.name: path.read_bytes() for path in (ROOT / folder).iterdir()}
    assert {"index.html", "style.css", "main.js"} <= set(built)


@pytest.mark.parametrize("command", ["bdist_wheel", "build", "build_ext", "install"])
def test_a_build_that_is_asked_to_compiles(load, command):
    assert not load(command)["asked"]()
    assert not load(command, TENSORD_COMPILE="0")["asked"]()
    assert load(command, TENSORD_COMPILE="1")["asked"]()


@pytest.mark.parametrize("command", [("sdist",), ("egg_info",), ("dist_info",)])
def test_what_collects_sources_or_metadata_does_not(load, command, capfd):
    assert not load(*command, TENSORD_COMPILE="1")["asked"]()
    assert not capfd.readouterr().err


@pytest.mark.parametrize(
    "command", [("editable_wheel",), ("develop",), ("build_ext", "--inplace"), ("build_ext", "-i")]
)
def test_nothing_compiled_goes_beside_sources_that_are_edited(load, command, capfd):
    assert load(*command, TENSORD_COMPILE="1")["extensions"]() == []
    assert "stays plain Python" in capfd.readouterr().err


@pytest.mark.parametrize("compiler", ["no-such-compiler", "false"])
def test_without_a_compiler_the_build_goes_on_and_says_so(load, compiler, capfd):
    assert load("bdist_wheel", TENSORD_COMPILE="1", CC=compiler)["extensions"]() == []
    assert "the build goes on in plain Python" in capfd.readouterr().err


def test_without_mypyc_too(load, monkeypatch, capfd):
    names = load("bdist_wheel", TENSORD_COMPILE="1", CC="true")
    monkeypatch.setitem(sys.modules, "mypyc.build", None)
    assert names["extensions"]() == []
    assert "there is no mypyc" in capfd.readouterr().err


def test_the_record_has_the_digest_of_each_source(load):
    pytest.importorskip("mypy.version")
    names = load()
    record = names["described"](names["engine"]())
    digest = hashlib.sha256((ROOT / "vm" / "engine.py").read_bytes()).hexdigest()
    assert record["modules"]["tensord.vm.engine"] == digest
    assert record["compiler"].startswith("mypyc ")


def later_classes(path: Path) -> Iterator[str]:
    """The named tuples of a module with a field whose type is a class defined later in the module."""
    classes = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)]
    for number, made in enumerate(classes):
        later = {other.name for other in classes[number:]}
        types = [field.annotation for field in made.body if isinstance(field, ast.AnnAssign)]
        named = {node.id for each in types for node in ast.walk(each) if isinstance(node, ast.Name)}
        if "NamedTuple" in {ast.unparse(base) for base in made.bases} and named & later:
            yield f"{path.name}: {made.name} names {', '.join(sorted(named & later))}"


def test_no_named_tuple_names_a_class_behind_it(tmp_path):
    """Compiled code reads the types of a named tuple's fields when it makes the class: a missing type ends the
    process."""
    wrong = tmp_path / "wrong.py"
    wrong.write_text("class A(NamedTuple):\n    b: tuple[B, ...]\n\nclass B: ...\n\nclass C(NamedTuple):\n    b: B\n")
    assert list(later_classes(wrong)) == ["wrong.py: A names B"]
    assert [found for path in (ROOT / "vm").glob("*/*.py") for found in later_classes(path)] == []


def test_the_table_of_ops_is_written_from_the_definitions(load, tmp_path):
    table = tmp_path / "ops.json"
    load("build")["write_op_table"](table)
    assert table.read_text() == make_table()


def test_where_ops_cannot_be_described_the_build_goes_on_without_a_table(load, tmp_path, monkeypatch, capfd):
    table = tmp_path / "ops.json"
    table.write_text("of an earlier build")
    names = load("build")
    (tmp_path / "numpy.py").write_text("raise ImportError('no NumPy here')")
    monkeypatch.setitem(names["write_op_table"].__globals__, "SOURCES", f"{tmp_path}:{ROOT / 'src'}")
    names["write_op_table"](table)
    assert not table.exists()
    assert "no table of ops" in capfd.readouterr().err

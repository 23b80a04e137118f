"""What is used of CuPy exists: in the list of its names, and in CuPy itself where that is installed."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tensord.interpreter import ops as _ops  # noqa: F401 - fills the registry
from tensord.interpreter.ops.special.kernels import LIBRARY
from tensord.interpreter.schema.opdef import REGISTRY, ops_of

from .fake_cuda.gpu import Gpu
from .fake_cuda.module import Runtime, make_modules
from .fake_cuda.names import FILE, is_known, known, names_of_wheel, resolve

ROOT = Path(__file__).parents[2]
ROOTS = {"cupy": "cupy", "_cupy": "cupy", "cupyx": "cupyx", "cuda": "cupy.cuda", "runtime": "cupy.cuda.runtime"}


def chain_of(node: ast.AST) -> list[str]:
    """The names of an expression such as `self._cupy.cuda.Event`; none if it is of other things."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return [node.id, *reversed(names)] if isinstance(node, ast.Name) else []


def paths_in(file: Path, roots: dict[str, str]) -> Iterator[str]:
    """Names of CuPy in a source."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in {"cupy", "cupyx"}:
            yield from (f"{node.module}.{each.name}" for each in node.names)
        names = chain_of(node)
        if names[:1] == ["self"]:
            del names[0]
        if len(names) > 1 and names[0] in roots:
            yield ".".join([roots[names[0]], *names[1:]])


def used() -> set[str]:
    """What the device and the kernels name. What an op says that it needs may be missing: it runs elsewhere then."""
    needed = {f"cupy.{path}" for op in REGISTRY.values() for path in (op.ufunc, *op.needs) if path}
    found = {path for file in (ROOT / "streams").glob("cuda*.py") for path in paths_in(file, ROOTS)}
    kernels = {path for file in (ROOT / "interpreter/ops").rglob("*.py") for path in paths_in(file, {"xp": "cupy"})}
    composed = set(paths_in(ROOT / "interpreter/ops/special/composed.py", {"of": "cupyx.scipy.special"}))
    assert composed
    return found | (kernels - needed) | composed


def faked() -> set[str]:
    """What the fake has besides NumPy's functions."""
    modules = make_modules(Gpu(0))
    own = {f"cupy.cuda.{name}" for name in vars(modules["cupy"].cuda)}
    own |= {f"cupy.cuda.runtime.{name}" for name in vars(Runtime)}
    own |= {f"cupyx.{name}" for name in vars(modules["cupyx"])}
    return {path for path in own if not path.rpartition(".")[2].startswith("_")}


def test_names_are_found_in_sources(tmp_path):
    source = tmp_path / "a.py"
    source.write_text("from cupyx import errstate\nself._cupy.cuda.Device(0)\nruntime.free(0)\nother.cupy.x\ncupy\n")
    assert set(paths_in(source, ROOTS)) == {
        "cupyx.errstate", "cupy.cuda", "cupy.cuda.Device", "cupy.cuda.runtime.free"
    }  # fmt: skip


def test_all_that_is_used_is_in_the_list():
    assert len(used()) > 60
    assert [path for path in sorted(used() | faked()) if not is_known(path)] == []


def test_the_fake_lacks_what_cupy_lacks():
    cupy = make_modules(Gpu(0))["cupy"]
    assert cupy.sort
    for name in ("block", "longdouble", "nonsense"):
        assert f"cupy.{name}" not in known()
        with pytest.raises(AttributeError):
            getattr(cupy, name)
    with pytest.raises(AttributeError):
        assert cupy.linalg.multi_dot
    array = cupy.asarray([1.0])
    assert array.sum().item() == 1
    with pytest.raises(AttributeError):
        array.setfield()


def test_the_list_is_that_of_the_installed_cupy():
    if importlib.util.find_spec("cupy") is None:
        pytest.skip("CuPy is not installed")
    assert [path for path in sorted(used() | faked()) if not has(path)] == []
    listed = FILE.read_text().split("\n", 1)[0]
    if listed == f"CuPy {importlib.import_module('cupy').__version__}":
        assert known() - {""} == set(names_of_wheel())


def has(path: str) -> bool:
    """Does the wheel have it?"""
    try:
        resolve(path)
    except AttributeError:
        return False
    return True


def test_of_the_special_functions_cupy_lacks_two_and_one_is_unfit(monkeypatch):
    modules = make_modules(Gpu(0))
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    assert LIBRARY.lacking(modules["cupy"], ops_of(LIBRARY)) == {"hyp1f1", "lpmv", "spence"}

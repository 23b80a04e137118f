"""Nothing is ever unpickled, by us or by a library on our behalf. The lint rule sees imports; this sees calls, too."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted(
    path
    for folder in ("client", "vm", "streams", "interpreter", "src/tensord", "examples", "bench", "docs")
    for path in (ROOT / folder).rglob("*.py")
    if not path.is_symlink()
)
MODULES = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "pickletools"}
METHODS = {"recv_pyobj", "send_pyobj", "recv_serialized", "send_serialized", "read_pickle", "allow_pickle"}
SUSPECT = re.compile("|".join([*MODULES, *METHODS, r"\.load\b"]))
LOADERS = {f"{module}.load" for module in ("np", "numpy", "cp", "cupy")}


def faults(tree: ast.AST) -> Iterator[str]:
    """What is not allowed in a source."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from imports(node, [alias.name for alias in node.names])
        if isinstance(node, ast.ImportFrom) and not node.level:
            yield from imports(node, [node.module or ""])
        if isinstance(node, ast.Attribute) and node.attr in METHODS:
            yield f"line {node.lineno} uses {node.attr}"
        if isinstance(node, ast.Call) and ast.unparse(node.func) in LOADERS and not refuses_pickles(node):
            yield f"line {node.lineno} calls {ast.unparse(node.func)} without allow_pickle=False"
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"__import__", "importlib.import_module"}:
            yield from (f"line {node.lineno} imports {value_of(a)}" for a in node.args[:1] if value_of(a) in MODULES)


def imports(node: ast.stmt, names: list[str]) -> Iterator[str]:
    return (f"line {node.lineno} imports {name}" for name in names if name.partition(".")[0] in MODULES)


def value_of(node: ast.expr) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def refuses_pickles(call: ast.Call) -> bool:
    return any(keyword.arg == "allow_pickle" and value_of(keyword.value) is False for keyword in call.keywords)


def test_no_source_unpickles_anything():
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in SOURCES}
    suspects = {name: text for name, text in texts.items() if SUSPECT.search(text)}  # parsing all of them takes seconds
    found = {name: list(faults(ast.parse(text))) for name, text in suspects.items()}
    assert not {name: wrong for name, wrong in found.items() if wrong}


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "import os, marshal as m",
        "from pickle import loads",
        "from joblib.externals import loky",
        "socket.recv_pyobj()",
        "np.load('x')",
        "numpy.load('x', allow_pickle=True)",
        "__import__('dill')",
    ],
)
def test_each_way_would_be_found(text):
    assert SUSPECT.search(text)
    assert list(faults(ast.parse(text)))


def test_what_is_harmless_is_not():
    text = "import json\nnp.load('x', allow_pickle=False)\njson.load(f)\nnp.savez(f, a=a)\nfrom .pickle import x"
    assert not list(faults(ast.parse(text)))


def test_the_lint_rules_are_on():
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    assert lint["select"] == ["ALL"]
    assert not {"S301", "S302", "S403", "TID251", "S"} & set(lint["ignore"])
    banned = lint["flake8-tidy-imports"]["banned-api"]
    assert {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"} <= set(banned)
    relaxed = {rule for rules in lint["per-file-ignores"].values() for rule in rules} & {"S301", "S403", "TID251"}
    assert relaxed == {"TID251"}, "one test shows that a tensor is not pickled"

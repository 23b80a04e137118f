"""Nothing is ever unpickled, by us or by a library on our behalf. The lint rule sees imports; this sees calls, too."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from .each_case import each_case

ROOT = Path(__file__).parents[1]
SOURCES = sorted(
    path
    for folder in ("client", "vm", "streams", "interpreter", "src/tensord", "examples", "bench", "docs")
    for path in (ROOT / folder).rglob("*.py")
    if not path.is_symlink()
)
MODULES = "(c?[pP]ickle|_pickle|marshal|shelve|dill|cloudpickle|joblib|pickletools)"
UNPICKLES = re.compile(
    rf"^[ \t]*(import ([\w.]+( as \w+)?, *)*|from ){MODULES}\b"
    rf"|\b(__import__|import_module)\(['\"]{MODULES}\b"
    r"|\.(recv_pyobj|send_pyobj|recv_serialized|send_serialized|read_pickle|allow_pickle)\b"
    r"|\b(np|numpy|cp|cupy)\.load\((?![^)]*\ballow_pickle=False)",
    re.MULTILINE,
)


def test_no_source_unpickles_anything():
    found = {str(path.relative_to(ROOT)): UNPICKLES.search(path.read_text()) for path in SOURCES}
    assert not {name: match for name, match in found.items() if match}


@each_case(
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
    assert UNPICKLES.search(text)


def test_what_is_harmless_is_not():
    text = "import json\nnp.load('x', allow_pickle=False)\njson.load(f)\nnp.savez(f, a=a)\nfrom .pickle import x"
    assert not UNPICKLES.search(text)


def test_the_lint_rules_are_on():
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    assert lint["select"] == ["ALL"]
    assert not {"S301", "S302", "S403", "TID251", "S"} & set(lint["ignore"])
    banned = lint["flake8-tidy-imports"]["banned-api"]
    assert {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"} <= set(banned)
    relaxed = {rule for rules in lint["per-file-ignores"].values() for rule in rules} & {"S301", "S403", "TID251"}
    assert relaxed == {"TID251"}, "one test shows that a tensor is not pickled"

"""A library that kernels call: its import, and its absence."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest

from tensord.interpreter import ops as _ops  # noqa: F401 - fills the registry
from tensord.interpreter.ops.special.kernels import LIBRARY
from tensord.interpreter.schema.library import Library
from tensord.interpreter.schema.opdef import find, lacking, no_kernel, ops_of

from ...each_case import each_case

CUPY = ModuleType("cupy")


@pytest.fixture
def library() -> Library:
    """A library in which json and textwrap stand for the modules."""
    modules = {"numpy": "json", "cupy": "textwrap"}
    return Library(modules, extra="some", package="Some", names={"shout": "indent"}, composed={"whisper"})


def test_on_the_host_all_is_there_or_nothing(library, monkeypatch):
    assert library.lacking(np, ["dumps", "nothing"]) == frozenset()
    monkeypatch.setitem(sys.modules, "json", None)
    assert library.lacking(np, ["dumps", "nothing"]) == {"dumps", "nothing"}


def test_a_gpus_library_is_asked_for_each_function(library, monkeypatch):
    assert library.lacking(CUPY, ["dedent", "shout", "whisper", "nothing"]) == {"nothing"}
    monkeypatch.setitem(sys.modules, "textwrap", None)
    assert library.lacking(CUPY, ["dedent", "whisper"]) == {"dedent", "whisper"}


def test_an_unknown_array_module_has_none(library):
    assert library.lacking(ModuleType("jax"), ["dedent"]) == {"dedent"}


def test_scipy_is_looked_for_without_being_imported(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "scipy"]:
        monkeypatch.delitem(sys.modules, name)
    assert lacking(np) == frozenset()
    assert "scipy" not in sys.modules


def test_ops_are_bounded_once_their_library_is_imported(monkeypatch):
    monkeypatch.setattr(LIBRARY, "imported", False)
    assert find("add").prompt
    assert not find("erf").prompt
    find("erf").bind(np, 1, {})(np.ones(1), np.ones(1))
    assert find("erf").prompt
    assert not find("hyp1f1").prompt


@each_case(
    ("device", "lacks", "message"),
    [
        (
            "cpu:0",
            ops_of(LIBRARY),
            'erf has no kernel on cpu:0: here lacks SciPy; install it there: pip install "tensord[special]"',
        ),
        ("cuda:0", ops_of(LIBRARY), "erf has no kernel on cuda:0: cupyx.scipy.special cannot be imported in here"),
        ("sim:0", ["erf"], "erf has no kernel on sim:0"),
    ],
)
def test_an_error_names_the_extra_only_where_the_library_is_missing(device, lacks, message):
    assert no_kernel("erf", device, lacks, "here").message == message

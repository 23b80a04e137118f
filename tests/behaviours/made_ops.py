"""Ops made for one test, and lines of code to compare locations with."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tensord.interpreter.schema.opdef import REGISTRY, OpDef

from .looking_inside import WAIT


def like_first(metas: Any, _attributes: Any) -> Any:
    """One result with the meta of the first operand."""
    return (metas[0],)


def make_op(patch: pytest.MonkeyPatch, name: str, kernel: Callable[..., Any], **fields: Any) -> OpDef:
    """Register an op until the end of the test. By default it is not bounded, and so runs on a stream of its own."""
    defaults = {"inputs": 1, "infer": like_first, "summary": "made for a test", "bounded": False}
    op = OpDef(**{"name": name, "kernel": kernel, **defaults, **fields})
    patch.setitem(REGISTRY, name, op)
    return op


class Gate:
    """A kernel that copies its input once the gate is open; `entered` is set when it has started."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()

    def kernel(self, _xp: Any, inputs: Any, outputs: Any, _attributes: Any) -> None:
        """Wait, then read."""
        self.entered.set()
        assert self.opened.wait(WAIT)
        outputs[0][...] = inputs[0]


def make_gate(patch: pytest.MonkeyPatch, name: str = "slow_copy") -> Gate:
    """An op of that name that reads its operand only when the gate is open."""
    gate = Gate()
    make_op(patch, name, gate.kernel)
    return gate


def raising(*_arguments: Any) -> None:
    """A kernel that fails."""
    raise ZeroDivisionError("boom")


def here(offset: int = 0) -> str:
    """The caller's line, `offset` lines further down, as the end of a location names it: "test_x.py:12 in"."""
    frame = sys._getframe(1)
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno + offset} in"

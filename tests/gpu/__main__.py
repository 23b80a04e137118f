"""`python tests/gpu`, or `python -m tests.gpu`: the proof. Started by its path, it finds no other package `tests`."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

if not __package__:
    root = Path(__file__).resolve().parent.parent.parent
    tests = ModuleType("tests")
    tests.__path__ = [str(root / "tests")]
    sys.modules["tests"] = tests
    sys.path[0] = str(root)

from tests.gpu.check import main

if __name__ == "__main__":
    sys.exit(main())

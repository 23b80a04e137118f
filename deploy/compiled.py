"""Builds the package with its compiled modules in a separate folder.

Prints the folder's path, or nothing without a compiler.

    PYTHONPATH=$(python deploy/compiled.py) python -m pytest tests/behaviours

The folder, `out/compiled/KEY`, has the whole package. KEY is a digest of all sources and of the build: after an edit
a new folder is built; a second run builds nothing. docs/compiled.md says more.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tensord.interpreter.build_info import RECORD_FILE, build_of

ROOT = Path(__file__).resolve().parent.parent
MADE = ROOT / "out" / "compiled"


def key() -> str:
    """The digest of the build: these sources, this setup.py, this Python."""
    parts = build_of(ROOT / "src" / "tensord").digest, (ROOT / "setup.py").read_text(), sys.version
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def build(folder: Path) -> bool:
    """Build the package into a folder. False if nothing was compiled. An interrupted build leaves no folder."""
    halfway = folder.with_name(f"{folder.name}.{os.getpid()}")
    command = [sys.executable, "setup.py", "--quiet", "build", "--build-base", "out/build", "--build-lib", str(halfway)]
    try:
        subprocess.run(  # noqa: S603 - our own command
            command, cwd=ROOT, check=True, stdout=sys.stderr, env={**os.environ, "TENSORD_COMPILE": "1"}
        )
        compiled = (halfway / "tensord" / RECORD_FILE).exists()
        if compiled:
            halfway.rename(folder)
    finally:
        shutil.rmtree(halfway, ignore_errors=True)
    return compiled


def main() -> None:
    """Print the folder of the compiled form. It is built if necessary, and older folders are removed."""
    folder = MADE / key()
    if not folder.exists():
        shutil.rmtree(MADE, ignore_errors=True)
        MADE.mkdir(parents=True)
        if not build(folder):
            return
    print(folder)


if __name__ == "__main__":
    main()

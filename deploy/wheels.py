"""Builds wheels, and tries each one in a fresh environment: `make wheels`.

One source archive gives a wheel of plain Python for every platform, and a compiled wheel for each Python on this
machine that tensord supports (on the path as `python3.N`, or installed by pyenv). They are written to `out/dist`.
The compiled wheels run on Linux systems like this one; for older systems, build them in a manylinux container.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST = 11  # minor version
TRIAL = """
import sys
import numpy as np
import tensord as td

built = td.build_info()
assert "site-packages" in td.__file__, td.__file__
assert (built.form, built.changed, built.missing) == (sys.argv[1], (), ()), built
x = np.arange(12.0).reshape(3, 4)
for engine in ("vm", "serial"):
    with td.connect("local", devices=["cpu:0", "sim:0"], engine=engine) as session:
        y = session.asarray(x)
        for _ in range(100):
            y = (y @ y.T @ y + 1.0) / 1000.0
        print(engine, built.form, len(built.compiled), y.to_device("sim:0").numpy().sum())
        try:  # SciPy is no dependency
            session.xp.special.erf(y)
        except td.MetadataError as error:
            assert "tensord[special]" in error.message, error
        else:
            raise AssertionError("a special function without SciPy")
"""


def run(command: Sequence[str | Path], *, quiet: bool = False, **environment: str) -> str:
    """Run a command outside of the checkout, so that the checkout is not on Python's path. Returns its output."""
    kept = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "TENSORD_COMPILE"}}
    with tempfile.TemporaryDirectory() as elsewhere:
        done = subprocess.run(  # noqa: S603 - our own commands
            command,
            cwd=elsewhere,
            env={**kept, **environment},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if quiet else None,
            check=True,
        )
    return done.stdout


def pythons() -> list[Path]:
    """One Python of each supported minor version."""
    installed = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions").glob("3.*/bin/python")
    on_path = (shutil.which(f"python3.{minor}") for minor in range(OLDEST, OLDEST + 10))
    found: dict[int, Path] = {}
    for candidate in (Path(sys.executable), *(Path(one) for one in on_path if one), *sorted(installed)):
        try:
            minor = int(run([candidate, "-c", "import sys; print(sys.version_info.minor)"], quiet=True))
        except (OSError, subprocess.CalledProcessError):  # a shim of pyenv without an installed version
            continue
        if minor >= OLDEST:
            found.setdefault(minor, candidate)
    return [found[minor] for minor in sorted(found)]


def archive(folder: Path) -> Path:
    """The source archive, which holds real files in place of the links in `src/tensord`."""
    command = [sys.executable, "setup.py", "--quiet", "sdist", "--dist-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True)  # noqa: S603 - our own command
    return next(folder.glob("*.tar.gz"))


def wheel(python: Path, source: Path, folder: Path, *, compiled: bool) -> Path:
    """Build a wheel of the archive with that Python."""
    before = set(folder.glob("*.whl"))
    pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", "wheel", "--no-deps"]
    run([*pip, "--wheel-dir", str(folder), str(source)], TENSORD_COMPILE="1" if compiled else "0")
    (made,) = set(folder.glob("*.whl")) - before
    return made


def install_and_try(python: Path, made: Path, form: str) -> str:
    """Install the wheel in a fresh environment, and run a program with it. Returns the program's output."""
    with tempfile.TemporaryDirectory() as home:
        run([python, "-m", "venv", home])
        run([Path(home, "bin", "pip"), "--quiet", "--disable-pip-version-check", "install", made])
        said = run([Path(home, "bin", "python"), "-c", TRIAL, form])
        run([Path(home, "bin", "tensord"), "doctor"])
    return said


def main() -> None:
    """Build the wheels, and try the plain wheel with every Python, and each compiled wheel with its own."""
    parser = argparse.ArgumentParser(description="Build wheels, plain and compiled, and try each of them.")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "dist", help="where they are left (out/dist)")
    folder = parser.parse_args().out.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    supported = pythons()
    source = archive(folder)
    plain = wheel(supported[0], source, folder, compiled=False)
    for python in supported:
        print(plain.name, install_and_try(python, plain, "pure"), sep="\n", flush=True)
        made = wheel(python, source, folder, compiled=True)
        print(made.name, install_and_try(python, made, "compiled"), sep="\n", flush=True)


if __name__ == "__main__":
    main()

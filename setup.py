"""Builds tensord: as it is, or with the engine's modules compiled by mypyc, from the same sources.

    pip install .                      plain Python; needs no compiler
    TENSORD_COMPILE=1 pip install .    with a C compiler; where there is none, plain Python and a line that says so

A compiled build never goes into the source tree: an editable install is always plain Python, and nothing compiled lies
beside sources that somebody edits. What was compiled is written down in `tensord/compiled.json`, from which
`tensord.build_info()` tells. docs/compiled.md says more.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

SOURCES = Path("src")
# One group: calls and attributes among these modules cost no dictionary lookup. Left out are modules that mypyc cannot
# compile as Python runs them (`Meta` is held weakly; the annotations in `tracing/record.py`, which compiled classes do
# not keep, say what a trace file may hold), and those that are too cold to matter.
ENGINE = (
    "interpreter/opcodes.py",
    "interpreter/wire/forms.py",
    "streams/device.py",
    "streams/host/host.py",
    "streams/pool.py",
    "streams/stream.py",
    "vm/admission/*.py",
    "vm/engine.py",
    "vm/memory/*.py",
    "vm/model/*.py",
    "vm/placement/*.py",
    "vm/routines/**/*.py",
    "vm/scheduler/*.py",
    "vm/tracing/flat.py",
    "vm/tracing/ring.py",
)
# Generators that are dropped in the middle of a `try`, as a run is whose session ends: mypyc's crash then.
PLAIN = ("vm/routines/op_by_op/control_flow.py", "vm/routines/op_by_op/unfolding.py")
LEVEL = os.environ.get("TENSORD_COMPILE_LEVEL", "1")  # of the C compiler's optimisation; 2 and 3 gain nothing


def engine() -> list[Path]:
    """The modules to compile, below `SOURCES`. Packages' `__init__.py` stay as they are: they hold nothing but maps."""
    package = SOURCES / "tensord"
    found = {path for pattern in ENGINE for path in package.glob(pattern) if path.name != "__init__.py"}
    return sorted(path.relative_to(SOURCES) for path in found.difference(package / path for path in PLAIN))


def asked() -> bool:
    """Is this a build to be compiled? Editable installs are not, nor what only collects sources or metadata."""
    if os.environ.get("TENSORD_COMPILE", "0") in {"", "0"}:
        return False
    if {"editable_wheel", "develop", "--inplace", "-i"} & set(sys.argv):
        say("an editable install stays plain Python, since compiled modules would hide what is edited")
        return False
    return bool({"bdist_wheel", "build", "build_ext", "install"} & set(sys.argv))


def say(what: str) -> None:
    """Tell whoever reads the build's output."""
    print(f"tensord: {what}", file=sys.stderr)  # noqa: T201


def compiler_works() -> bool:
    """Is there a C compiler that finds Python's headers?"""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    command = [*compiler, "-I", sysconfig.get_path("include"), "-fsyntax-only", "-x", "c", "-"]
    try:
        subprocess.run(command, input=b"#include <Python.h>\n", check=True)  # noqa: S603 - CC is the user's
    except (OSError, subprocess.CalledProcessError) as error:
        say(f"TENSORD_COMPILE is set, but no C compiler works here ({error}): the build goes on in plain Python")
        return False
    return True


def extensions() -> list[Extension]:
    """The compiled engine; nothing where it cannot be compiled."""
    if not asked() or not compiler_works():
        return []
    try:
        from mypyc.build import mypycify
    except ImportError as error:
        say(f"TENSORD_COMPILE is set, but there is no mypyc ({error}): the build goes on in plain Python")
        return []
    # NumPy's types differ from version to version, and so would what mypy finds wrong: here other packages have none.
    others = ["--no-site-packages", "--ignore-missing-imports"]
    options = ["--config-file=", "--explicit-package-bases", *others, "--cache-dir=build/mypy"]
    os.environ["MYPYPATH"] = str(SOURCES)
    paths = [str(SOURCES / path) for path in engine()]
    made = mypycify([*options, *paths], opt_level=LEVEL, debug_level="0", multi_file=True, group_name="tensord")
    for extension in made:  # another compiler's new warning must not stop an install
        extension.extra_compile_args = [flag for flag in extension.extra_compile_args if flag != "-Werror"]
    return made


class BuildSources(build_py):
    """The package's sources, with a table of its ops, and a record of what was compiled."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            write_op_table(Path(self.build_lib, "tensord", "interpreter", "schema", "ops.json"))
        record = Path(self.build_lib, "tensord", "compiled.json")
        record.unlink(missing_ok=True)  # of an earlier build in the same folder
        if self.distribution.has_ext_modules() and not self.editable_mode:
            record.write_text(json.dumps(described(engine()), indent=1) + "\n")


def write_op_table(path: Path) -> None:
    """Write the table of ops that the command line reads. Without NumPy there is none, and it reads the definitions."""
    path.unlink(missing_ok=True)  # of an earlier build in the same folder
    command = [sys.executable, "-B", "-m", "tensord.interpreter.op_descriptions"]
    found_in = os.pathsep.join([str(SOURCES), *filter(None, [os.environ.get("PYTHONPATH")])])  # pip's, with NumPy
    try:
        done = subprocess.run(  # noqa: S603 - our own command
            command, env=os.environ | {"PYTHONPATH": found_in}, check=True, capture_output=True, text=True
        )
    except subprocess.CalledProcessError as error:
        reason = (error.stderr.splitlines() or ["?"])[-1]
        say(f"no table of ops, so that `tensord ops` will take longer ({reason}): the build goes on")
    else:
        path.write_text(done.stdout)


def described(paths: Iterable[Path]) -> dict[str, Any]:
    """What was compiled: each module with the digest of its source, by what, how."""
    from mypy.version import __version__ as mypy

    digests = {
        ".".join(path.with_suffix("").parts): hashlib.sha256((SOURCES / path).read_bytes()).hexdigest()
        for path in paths
    }
    return {"compiler": f"mypyc {mypy}, -O{LEVEL}", "modules": digests}


class BuildExtensions(build_ext):
    """Compiles several C files at a time."""

    def build_extensions(self) -> None:
        one_by_one = self.compiler.compile

        def side_by_side(sources: list[str], *rest: Any, **options: Any) -> list[str]:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                made = pool.map(lambda source: one_by_one([source], *rest, **options), sources)
                return [each for objects in made for each in objects]

        self.compiler.compile = side_by_side
        super().build_extensions()


if __name__ == "__main__":
    compiled = extensions()
    setup(
        ext_modules=compiled,
        cmdclass={"build_py": BuildSources, "build_ext": BuildExtensions},
    )

"""Where compiled kernels of CUDA devices are kept: a directory of the daemon's own.

CuPy compiles a kernel when it is first called, which takes 0.2 to 1 s, and keeps the result as a file. The daemon keeps
these in the user's cache: they have to survive a restart of the machine, which the runtime directory does not, and
nothing is lost with them, so that they are no state. It does not share `~/.cupy`: a program of the user's may clear
that, or put there what another CuPy has compiled. The directory is private, since its files run on the GPU.

CuPy reads $CUPY_CACHE_DIR once, when it is imported. So the directory is chosen before that; if the user has set the
variable, it holds, and the directory is the user's business.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final, NamedTuple

from ...interpreter.errors import MetadataError

VARIABLE: Final = "CUPY_CACHE_DIR"
SUFFIX: Final = ".cubin"  # of a compiled kernel


class CachedKernels(NamedTuple):
    """What a directory holds."""

    kernels: int
    nbytes: int


def directory_of(configured: Path | None = None) -> Path:
    """Where kernels are kept: in $CUPY_CACHE_DIR, else where it is configured, else in the user's cache.

    MetadataError if nothing says where that is.
    """
    if given := os.environ.get(VARIABLE):
        return Path(given).absolute()
    if configured is not None:
        return configured
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not base.startswith("/"):  # the XDG specification ignores relative paths
        base = os.path.expanduser("~/.cache")  # noqa: PTH111 - without a home, Path raises what nobody expects
    if not base.startswith("/"):
        raise MetadataError(f"there is no home directory for compiled kernels: set kernel_cache, or ${VARIABLE}")
    return Path(base) / "tensord" / "kernels"


def keep_in(directory: Path) -> None:
    """Have CuPy, which is not imported yet, keep its kernels there; MetadataError if that cannot be."""
    if os.environ.get(VARIABLE):
        return
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise unusable(directory, error.strerror or str(error)) from None
    check(directory)
    os.environ[VARIABLE] = str(directory)


def check(directory: Path) -> None:
    """MetadataError unless the directory can be made, or is this user's alone to write to. Changes nothing."""
    if os.environ.get(VARIABLE):
        return
    there = next(path for path in (directory, *directory.parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise unusable(directory, f"{there} cannot be written to")
    if there != directory:
        return
    about = there.stat()
    if about.st_uid != os.getuid():
        raise unusable(directory, f"it belongs to uid {about.st_uid}, whose kernels would run here")
    if about.st_mode & 0o022:
        mode = stat.S_IMODE(about.st_mode)
        raise unusable(directory, f"others may write there (mode {mode:04o}), run chmod 700 {directory}")


def unusable(directory: Path, why: str) -> MetadataError:
    """The error for a directory that cannot be used."""
    return MetadataError(f"{directory} cannot keep compiled kernels: {why}, or set kernel_cache, or ${VARIABLE}")


def kept_in(directory: Path) -> CachedKernels:
    """How many kernels a directory has, and how many bytes they take."""
    sizes = [size for file in directory.glob(f"*{SUFFIX}") if (size := size_of(file))]
    return CachedKernels(len(sizes), sum(sizes))


def size_of(file: Path) -> int:
    """Its bytes; 0 if it has just been removed."""
    try:
        return file.stat().st_size
    except OSError:
        return 0

"""The daemon's own directory of compiled CUDA kernels.

CuPy compiles a kernel at its first call, which takes 0.2 to 1 s, and stores the result as a file. The daemon stores
these files in the user's cache: they have to survive a restart of the machine, which the runtime directory does not,
and they can be regenerated, so they are no state. The daemon does not share `~/.cupy`: a program of the user's may
clear that, or another version of CuPy may have filled it. The directory is private, since its files run on the GPU.

CuPy reads $CUPY_CACHE_DIR once, when it is imported, so the directory is chosen before that. If the user has set the
variable, it takes precedence, and the user is responsible for the directory.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final, NamedTuple

from ...interpreter.errors import MetadataError

VARIABLE: Final = "CUPY_CACHE_DIR"
SUFFIX: Final = ".cubin"  # of a file with a compiled kernel


class CachedKernels(NamedTuple):
    """The contents of a directory."""

    kernels: int
    nbytes: int


def directory_of(configured: Path | None = None) -> Path:
    """The directory of kernels: $CUPY_CACHE_DIR, else the configured one, else one in the user's cache.

    MetadataError if there is none of these.
    """
    if given := os.environ.get(VARIABLE):
        return Path(given).absolute()
    if configured is not None:
        return configured
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not base.startswith("/"):  # the XDG specification ignores relative paths
        base = os.path.expanduser("~/.cache")  # noqa: PTH111 - without a home, Path raises an unexpected error
    if not base.startswith("/"):
        raise MetadataError(f"there is no home directory for compiled kernels: set kernel_cache, or ${VARIABLE}")
    return Path(base) / "tensord" / "kernels"


def store_kernels_in(directory: Path) -> None:
    """Make CuPy, which is not imported yet, store kernels there; MetadataError if it cannot."""
    if os.environ.get(VARIABLE):
        return
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise unusable(directory, error.strerror or str(error)) from None
    check(directory)
    os.environ[VARIABLE] = str(directory)


def check(directory: Path) -> None:
    """MetadataError unless the directory can be made, or only this user may write to it. Changes nothing."""
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


def cached_kernels(directory: Path) -> CachedKernels:
    """The number of kernels in a directory, and their bytes."""
    sizes = [size for file in directory.glob(f"*{SUFFIX}") if (size := size_of(file))]
    return CachedKernels(len(sizes), sum(sizes))


def size_of(file: Path) -> int:
    """The file's bytes; 0 if it has just been removed."""
    try:
        return file.stat().st_size
    except OSError:
        return 0

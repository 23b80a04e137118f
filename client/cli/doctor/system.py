"""The checks of `tensord doctor` on this machine and this Python. A check yields findings and never raises."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from .... import __version__
from ..drawing.figures import count, size
from .findings import CheckResult, fail, installed, judged, listed, note, ok, warn

# -- Python ------------------------------------------------------------------------------------------------------------

_NEEDED = ("numpy", "pyzmq", "msgpack", "structlog", "click")


def check_packages() -> Iterator[CheckResult]:
    """Python, tensord, and the packages that it needs. A checkout on the path has no metadata."""
    yield ok("python", f"{'.'.join(map(str, sys.version_info[:3]))}, {sys.executable}")
    yield ok("tensord", __version__ if installed("tensord") else f"{__version__}, a checkout that is not installed")
    for name in _NEEDED:
        version = installed(name)
        if version is None:
            yield fail(name, "is not installed", f"pip install {name}")
        else:
            yield ok(name, version)


def check_build() -> Iterator[CheckResult]:
    """The form of the engine: plain Python, or compiled ahead of time."""
    from ....interpreter.build_info import build_info

    build = build_info()
    again = "install again: TENSORD_COMPILE=1 pip install --force-reinstall --no-deps tensord"
    sources = f"sources {build.digest[:12]}"
    if build.form == "pure":
        yield ok("engine", f"plain Python, {sources}")
    else:
        yield ok("engine", f"{count(len(build.compiled))} modules compiled by {build.compiler}, {sources}")
    if build.changed:
        yield warn("engine", f"the compiled code does not match the source: {listed(build.changed)}", again)
    if build.missing:
        yield warn("engine", f"not compiled for this Python, which runs the source: {listed(build.missing)}", again)


def check_zmq() -> Iterator[CheckResult]:
    try:
        import zmq
    except Exception as error:
        yield fail(
            "libzmq", f"cannot be loaded ({type(error).__name__}: {error})", "pip install --force-reinstall pyzmq"
        )
        return
    yield ok("libzmq", zmq.zmq_version())
    if not zmq.has("ipc"):
        yield fail(
            "libzmq ipc", "this libzmq has no ipc", "install pyzmq from a wheel: pip install --only-binary :all: pyzmq"
        )
    if zmq.has("curve"):
        yield ok("curve", "supported: tcp beyond loopback can be encrypted")
    else:
        yield warn("curve", "this libzmq has no CURVE, so tcp beyond loopback is refused", "install pyzmq from a wheel")


# -- the system --------------------------------------------------------------------------------------------------------

_FILES = 4096
_SEAL_FUTURE_WRITE = 0x0010


def check_memory_files() -> Iterator[CheckResult]:
    """Sealed memory files opened through /proc: bulk data reaches the daemon through them without a copy."""
    import fcntl

    advice = "bulk data go through the socket then, which is slower; Linux 5.1 or newer with /proc mounted has them"
    try:
        fd = os.memfd_create("tensord-doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except (OSError, AttributeError) as error:
        yield warn("memory files", f"memfd_create does not work ({error})", advice)
        return
    try:
        os.truncate(fd, 4096)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEAL_FUTURE_WRITE)
        os.close(os.open(f"/proc/{os.getpid()}/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        yield warn("memory files", f"they cannot be sealed or opened through /proc ({error})", advice)
    else:
        yield ok("memory files", "usable: bulk data are shared, not copied")
    finally:
        os.close(fd)


def check_limits() -> Iterator[CheckResult]:
    """Limits of this process, which a daemon started from here inherits. A daemon raises soft limits to hard ones."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = f"at most {count(hard)} for a daemon" if hard >= 0 else "no limit for a daemon"
    here = f"{most}, {count(soft)} for a client" if soft >= 0 else most
    if 0 <= hard < _FILES:
        advice = f"LimitNOFILE={1 << 16} in the daemon's unit, or as root ulimit -Hn {1 << 16} before `tensord serve`"
        yield warn("open files", f"{here}; shared memory takes one per block", advice)
    else:
        yield ok("open files", here)
    locked, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    yield ok("locked memory", f"at most {size(locked)}" if locked >= 0 else "no limit")
    space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if space >= 0:
        yield warn("address space", f"at most {size(space)}; large tensors will not fit", "ulimit -v unlimited")


def chosen(path: str) -> str | None:
    """The bracketed word of a setting like `always [madvise] never`."""
    try:
        text = Path(path).read_text()
    except OSError:
        return None
    return next((word.strip("[]") for word in text.split() if word.startswith("[")), text.strip())


def check_huge_pages() -> Iterator[CheckResult]:
    """Transparent huge pages: without them, fresh memory costs five times as much."""
    setting = chosen("/sys/kernel/mm/transparent_hugepage/enabled")
    if setting is None:
        yield note("huge pages", "not known on this system")
    elif setting == "never":
        advice = "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"
        yield warn("huge pages", "off; fresh memory costs about five times as much", advice)
    else:
        yield ok("huge pages", setting)


def meminfo(text: str) -> dict[str, int]:
    """Bytes by name, from /proc/meminfo."""
    sizes = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        parts = rest.split()
        if len(parts) == 2 and parts[0].isdigit():
            sizes[name] = int(parts[0]) * 1024
    return sizes


def check_memory() -> Iterator[CheckResult]:
    try:
        sizes = meminfo(Path("/proc/meminfo").read_text())
    except OSError:
        return
    total, free = sizes.get("MemTotal", 0), sizes.get("MemAvailable", 0)
    swap, unused = sizes.get("SwapTotal", 0), sizes.get("SwapFree", 0)
    advice = "end the processes that use it, or limit the cpu device's memory"
    yield judged("memory", f"{size(free)} of {size(total)} available", doubtful=free < total // 20, advice=advice)
    used = f"{size(swap - unused)} of {size(swap)} in use" if swap else "none"
    advice = "swapped tensors are slow; end the processes that use the memory, or limit the cpu device's memory"
    yield judged("swap", used, doubtful=swap - unused > total // 20, advice=advice)


def check_blas() -> Iterator[CheckResult]:
    """BLAS threads, which compete for cores when several workers compute at once."""
    cores = len(os.sched_getaffinity(0))
    names = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
    asked = next((f"{name}={os.environ[name]}" for name in names if os.environ.get(name)), "")
    if asked:
        yield ok("blas threads", asked)
    elif cores > 1:
        advice = "for many small products side by side, set blas_threads = 1 on the cpu device, or OMP_NUM_THREADS=1"
        yield note("blas threads", f"the library's own choice, up to {cores} per call", advice)
    else:
        yield ok("blas threads", "one core")


SYSTEM: tuple[Callable[[], Iterator[CheckResult]], ...] = (
    check_packages,
    check_build,
    check_zmq,
    check_memory_files,
    check_limits,
    check_huge_pages,
    check_memory,
    check_blas,
)

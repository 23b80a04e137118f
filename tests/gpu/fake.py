"""A trial of the proof itself over a fake of CUDA's runtime: `python tests/gpu --device cuda:0 --fake 1`.

Every process that the proof starts has the fake as its `cupy`. Faults show how the proof handles a broken GPU:

    --fake 1,wrong=exp,missing=kron         # exp gives other values, there is no kron
    --fake 1,hang=sort,crash=cumsum         # a sort never ends, cumsum ends the process
    --fake 1,raises=tan                     # tan raises
    --fake 1,loses=take                     # a position out of bounds that reaches take loses the device

It proves nothing of a GPU: the sizes are small, rows are not judged, and the verdict says so.
"""

from __future__ import annotations

import os
import runpy
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

VARIABLE = "TENSORD_TEST_FAKE_CUDA"
MEMORY = 3 << 30  # bytes of the GPU
SITE = f"""import os
if os.environ.get({VARIABLE!r}):
    from tests.gpu.fake import install
    install(os.environ[{VARIABLE!r}])
"""


def prepare(site: Path) -> None:
    """Let each Python with that folder on its path install the fake, if the environment asks for it."""
    (site / "sitecustomize.py").write_text(SITE)


def is_installed() -> bool:
    """Is `cupy` the fake in this process?"""
    return bool(os.environ.get(VARIABLE))


def main() -> None:
    """Run the module that the arguments name, in a forked process, as one with the site on its path runs it."""
    os.setsid()  # all its child processes are found and ended
    install(os.environ[VARIABLE])
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def script() -> None:
    """Run a script in a forked process, over the fake that the environment names."""
    install(os.environ[VARIABLE])
    sys.path.insert(0, str(Path(sys.argv[0]).parent))
    runpy.run_path(sys.argv[0], run_name="__main__")


def serve() -> None:
    """Run `tensord` in a forked process, over the fake that the environment names."""
    from tensord.client.cli.main import main as tensord

    install(os.environ.pop(VARIABLE))
    tensord()


def install(spec: str) -> None:
    """Let `import cupy` give the fake, with faults."""
    import tensord.streams.cuda.products
    from tests.streams.fake_cuda.cublas import Library
    from tests.streams.fake_cuda.gpu import Gpu
    from tests.streams.fake_cuda.module import make_modules

    seed, faults = parse(spec)
    gpu = Gpu(seed, devices=1, memory=MEMORY)
    modules = make_modules(gpu)
    tensord.streams.cuda.products.loaded_library = lambda: Library(gpu)
    for kind, name in faults:
        FAULTS[kind](modules["cupy"], name)
    sys.modules.update(modules)


def parse(spec: str) -> tuple[int, list[tuple[str, str]]]:
    """Seed and faults; ValueError for anything else."""
    seed, *faults = spec.split(",")
    found = [(kind, name) for kind, _, name in (fault.partition("=") for fault in faults)]
    if wrong := [f"{kind}={name}" for kind, name in found if kind not in FAULTS or not name]:
        raise ValueError(f"{', '.join(wrong)}: faults are {', '.join(f'{kind}=FUNCTION' for kind in FAULTS)}")
    return int(seed), found


def wrong(cupy: Any, name: str) -> None:
    """The function gives slightly too large values."""
    right = getattr(cupy, name)
    replace(cupy, name, lambda x, *rest, **given: right(x, *rest, **given) * 1.001)


def missing(cupy: Any, name: str) -> None:
    """The function is missing."""
    cupy.lacks.add(name)


def refuses(cupy: Any, name: str) -> None:
    """The GPU lacks this: "ipc"."""
    setattr(cupy._gpu, name, False)


def hang(cupy: Any, name: str) -> None:
    """The call never returns."""
    replace(cupy, name, lambda *_, **__: threading.Event().wait())


def crash(cupy: Any, name: str) -> None:
    """The call ends the process."""
    replace(cupy, name, lambda *_, **__: os.abort())


def raises(cupy: Any, name: str) -> None:
    """The call raises."""

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError(f"{name} is broken")

    replace(cupy, name, fail)


def loses(cupy: Any, name: str) -> None:
    """Integers in the second argument are positions in the first, and one that is out of bounds loses the device."""
    from tests.streams.fake_cuda.gpu import IllegalAddress, current_queue

    right, gpu = getattr(cupy, name), cupy._gpu

    def function(x: Any, positions: Any, *rest: Any, **given: Any) -> Any:
        def read() -> None:
            numbers, size = positions.native, max((1, *x.shape))
            if numbers.dtype.kind in "iu" and numbers.size and not -size <= numbers.min() <= numbers.max() < size:
                raise IllegalAddress

        gpu.enqueue(current_queue(gpu), read)
        return right(x, positions, *rest, **given)

    replace(cupy, name, function)


def replace(cupy: Any, name: str, function: Callable[..., object]) -> None:
    """Let the module have this function."""
    setattr(cupy, name, function)


FAULTS: dict[str, Callable[[Any, str], None]] = {
    "wrong": wrong,
    "missing": missing,
    "hang": hang,
    "crash": crash,
    "refuses": refuses,
    "raises": raises,
    "loses": loses,
}

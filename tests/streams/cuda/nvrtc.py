"""NVIDIA's compiler, which needs no GPU: `make cupy` fetches it, and CuPy."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import pytest

PARTS = ("", "cupy/_cccl/libcudacxx", "cupy/_cccl/cub", "cupy/_cccl/thrust")
KERNEL = re.compile(r'extern "C" __global__ void (\w+)\(')


class Compiler:
    """The compiler, and CuPy."""

    def __init__(self, cupy: Any, nvrtc: Any) -> None:
        self.cupy, self._nvrtc = cupy, nvrtc
        include = Path(cupy.__file__).parent / "_core" / "include"
        self._options = ("-ftz=true", "--std=c++17", *[f"-I{include / part}" for part in PARTS])  # CuPy's options

    @classmethod
    def here(cls) -> Self:
        """The compiler; the test is skipped where it is not installed."""
        if importlib.util.find_spec("cupy") is None or (library := library_folder()) is None:
            pytest.skip("CuPy or NVRTC is not installed; `make cupy` has them for this test")
        for part in ("libnvrtc-builtins.so*", "libnvrtc.so*"):
            ctypes.CDLL(str(next(library.glob(part))), ctypes.RTLD_GLOBAL)
        import cupy
        from cupy_backends.cuda.libs import nvrtc  # type: ignore[import-not-found]

        return cls(cupy, nvrtc)

    def compile(self, sources: Sequence[str], *options: str) -> list[dict[str, bytes]]:
        """The machine code of the kernels of each source, by name. The sources are compiled together."""
        bodies = [apart(source, n) for n, source in enumerate(sources)]
        text = "".join([*dict.fromkeys(line for source in sources for line in headers(source)), *bodies])
        program = self._nvrtc.createProgram(text, "kernels.cu", (), ())
        try:
            self._nvrtc.compileProgram(program, ("-arch=sm_90", *self._options, *options))
        except self._nvrtc.NVRTCError:
            log = str(self._nvrtc.getProgramLog(program)).splitlines()
            errors = [n for n, line in enumerate(log) if "): error" in line]
            pytest.fail("\n".join(line for n in errors for line in log[n : n + 3]))
        found: list[dict[str, bytes]] = [{} for _ in sources]
        for name, code in functions_of(self._nvrtc.getCUBIN(program)).items():
            number, _, kernel = name.partition("_")
            found[int(number[1:])][kernel] = code
        return found


def library_folder() -> Path | None:
    """The folder of NVIDIA's wheel."""
    folders = [Path(each) / "nvidia" / "cu13" / "lib" for each in os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return next((folder for folder in folders if folder.is_dir()), None)


def apart(source: str, n: int) -> str:
    """The n-th source, with names that no other one has."""
    renamed = KERNEL.sub(rf'extern "C" __global__ void s{n}_\1(', without_headers(source))
    return f"namespace s{n} {{\n{renamed}}}\n"


def headers(source: str) -> list[str]:
    """The lines that include headers."""
    return [f"{line}\n" for line in source.splitlines() if line.startswith("#include")]


def without_headers(source: str) -> str:
    """The others."""
    return "".join(f"{line}\n" for line in source.splitlines() if not line.startswith("#include"))


def functions_of(cubin: bytes) -> dict[str, bytes]:
    """The machine code of each function in an ELF file of 64 bits."""
    (start,) = struct.unpack_from("<Q", cubin, 40)
    size, count, names = struct.unpack_from("<HHH", cubin, 58)
    sections = [struct.unpack_from("<IIQQQQ", cubin, start + n * size) for n in range(count)]
    texts = sections[names][4]
    found = {}
    for name, _, _, _, offset, length in sections:
        label = cubin[texts + name :].split(b"\0", 1)[0].decode()
        if label.startswith(".text."):
            found[label.removeprefix(".text.")] = cubin[offset : offset + length]
    return found

"""A substitute for NCCL's library, without which CuPy's module of NCCL cannot be imported: its names, without code.

It serves to inspect that module. None of its functions may be called.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

NAME = "libnccl.so.2"


def load_nccl_or_stub() -> None:
    """Make the process's loader know a library of that name: NCCL itself, or one made by the host's compiler."""
    try:
        ctypes.CDLL(NAME, ctypes.RTLD_GLOBAL)
    except OSError:
        load_stub()


def load_stub() -> None:
    """Compile and load a library that has each name of NCCL's which CuPy's module has in it."""
    spec = importlib.util.find_spec("cupy_backends.cuda.libs.nccl")
    assert spec is not None
    found = set(re.findall(rb"\0(nccl[A-Z]\w*)(?=\0)", Path(str(spec.origin)).read_bytes()))
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "stub.c"), Path(folder, NAME)
        source.write_text("".join(f"int {name.decode()}(void) {{ return 0; }}\n" for name in sorted(found)))
        command = [
            shutil.which("cc") or "cc",
            "-shared",
            "-fPIC",
            "-w",
            f"-Wl,-soname,{NAME}",
            "-o",
            str(library),
            str(source),
        ]
        subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - our own text
        ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)

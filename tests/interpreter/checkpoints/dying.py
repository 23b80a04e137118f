"""Processes that play a script and die at a system call, by SIGKILL: one for each call, of which half is done.

    python -m tests.interpreter.checkpoints.dying FOLDER

makes FOLDER/1, FOLDER/2, ... until one comes to its end, each with the directory and a list of the generations that
were committed. A process of its own, since forking one with threads is not safe.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

from .calls import Nth, half, watched
from .histories import STEPS, Play, small_files

write = os.write


def die(name: str, real: Any, arguments: tuple[Any, ...], _options: dict[str, Any]) -> NoReturn:
    """Half of the call, and the end."""
    half(name, real, arguments)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def play_and_die(folder: Path, n: int) -> None:
    """The script, up to its n-th call."""
    folder.mkdir()
    log = os.open(folder / "committed", os.O_WRONLY | os.O_CREAT)
    os.fsync = os.fstat  # type: ignore[assignment]  # whoever is killed needs no disk that keeps what was flushed
    with small_files(), watched(Nth(n, die)):
        Play(folder / "checkpoints", lambda number: (write(log, b"%d\n" % number), None)[1]).play(STEPS)


def main(folder: Path) -> None:
    """One child for each call."""
    n, ended = 0, False
    while not ended:
        n += 1
        child = os.fork()
        if not child:
            try:
                play_and_die(folder / str(n), n)
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        ended = not os.WIFSIGNALED(status)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

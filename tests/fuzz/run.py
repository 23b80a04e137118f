"""Fuzz the daemon's receiving path for as long as you like.

    python -m tests.fuzz.run --seconds 600
    python -m tests.fuzz.run --seconds 600 --atheris

Each program is the messages of several hostile clients to a daemon in this process (`programs`, `harness`). Without
atheris, programs come from seeds, and a failure is printed with the command that runs it again. With atheris,
libFuzzer varies inputs that reach new lines; it keeps them in `--corpus`, and writes a failing input to a file,
whose name it prints, to be run again with `--input`.
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import random
import re
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn

HANGS = 60.0  # the most seconds of one program; after that, every stack is printed
REPLAY = "python -m tests.fuzz.run --seed {seed} --programs 1"
LONGEST = 4096  # the most bytes of an input of atheris
BEGINNINGS = 50  # inputs with which an empty corpus begins
SHOWN = 10  # the most different failures that are printed


class Drawn(random.Random):
    """A source of randomness that reads a string of bytes, followed by zeros."""

    def __init__(self, source: bytes) -> None:
        super().__init__(0)
        self._source = source
        self._position = 0

    def getrandbits(self, k: int) -> int:
        """The next bits."""
        count = -(-k // 8)
        taken = self._source[self._position : self._position + count]
        self._position += count
        return int.from_bytes(taken.ljust(count, b"\0"), "little") >> (8 * count - k)

    def random(self) -> float:
        """The next 16 bits as a fraction."""
        return self.getrandbits(16) / (1 << 16)


def play_one(rnd: random.Random) -> None:
    """Try corrupted headers, a program of steps (corrupted as text and as records), a file, and a directory of
    checkpoints."""
    from .checkpoints import try_checkpoints
    from .files import try_file
    from .harness import play, try_decoding
    from .programs import Writer, mangled
    from .routines import try_program

    for step in Writer(rnd).steps():
        for frame in step.frames:
            try_decoding(mangled(frame, rnd))
        if rnd.random() < 0.5:
            break
    try_program(rnd)
    try_file(rnd)
    try_checkpoints(rnd)
    play(Writer(rnd))


def failure_of(seed: int) -> str:
    """The failure of the program of a seed; "" if there is none."""
    faulthandler.dump_traceback_later(HANGS, exit=True)
    try:
        play_one(random.Random(seed))
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} at {last.filename}:{last.lineno}"
    finally:
        faulthandler.cancel_dump_traceback_later()
    return ""


def run_seeds(seed: int, programs: int, seconds: float) -> int:
    """Run the programs of one seed after another, until there were `programs` or the time is over.

    Returns the number of failures.
    """
    console = Console()
    failures: dict[str, int] = {}
    started, number, failed = time.monotonic(), 0, 0
    columns = (TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("programs", total=None)
        while number < programs and time.monotonic() - started < seconds:
            if failure := failure_of(seed + number):
                failed += 1
                kind = re.sub(r"\d+", "n", failure)[:80]
                if kind not in failures and len(failures) < SHOWN:
                    console.print(f"seed {seed + number}: {failure}", markup=False, highlight=False)
                    console.print(f"  again: {REPLAY.format(seed=seed + number)}", markup=False, highlight=False)
                failures[kind] = failures.get(kind, 0) + 1
            number += 1
            progress.update(task, description=f"{number} programs, {failed} failed, next seed {seed + number}")
    return failed


def run_atheris(seconds: float, corpus: Path, given: Path | None) -> None:
    """Hand over to libFuzzer, which does not return."""
    try:
        import atheris
    except ImportError:
        raise SystemExit("atheris is not installed: pip install atheris, or leave --atheris out") from None
    with atheris.instrument_imports(include=["tensord.interpreter", "tensord.vm"]):
        from . import harness  # noqa: F401 - imports what is fuzzed

    def one(source: bytes) -> None:
        from .checkpoints import try_manifest
        from .files import try_content
        from .harness import try_decoding
        from .routines import try_text

        try_decoding(source)
        try_text(source)
        try_content(source)
        try_manifest(source)
        play_one(Drawn(source))

    arguments: list[Any] = [sys.argv[0], f"-max_len={LONGEST}", "-timeout=60"]
    if given is not None:
        arguments.append(str(given))
    else:
        corpus.mkdir(parents=True, exist_ok=True)
        if not any(corpus.iterdir()):
            for seed in range(BEGINNINGS):
                (corpus / f"seed-{seed}").write_bytes(random.Random(seed).randbytes(LONGEST))
        arguments += [f"-max_total_time={int(seconds)}", "-len_control=0", str(corpus)]
    atheris.Setup(arguments, one)
    atheris.Fuzz()


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description="hostile clients against the daemon's receiving path")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long (60)")
    parser.add_argument("--seed", type=int, default=None, help="the first seed (default: from the clock)")
    parser.add_argument("--programs", type=int, default=1 << 62, help="the most programs")
    parser.add_argument("--atheris", action="store_true", help="guided by coverage; needs atheris")
    parser.add_argument("--corpus", type=Path, default=Path("out/fuzz"), help="with --atheris: where findings are kept")
    parser.add_argument("--input", type=Path, default=None, help="with --atheris: run only this input")
    arguments = parser.parse_args()
    logging.getLogger("tensord").setLevel(logging.CRITICAL)
    if arguments.atheris:
        run_atheris(arguments.seconds, arguments.corpus, arguments.input)
    seed = arguments.seed if arguments.seed is not None else time.time_ns() % (1 << 40)
    return 1 if run_seeds(seed, arguments.programs, arguments.seconds) else 0


if __name__ == "__main__":
    sys.exit(main())

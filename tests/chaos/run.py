"""Any number of chaotic rounds: `python -m tests.chaos.run --seed 0 --rounds 100`, or `make chaos`."""

from __future__ import annotations

import argparse
import sys
import time

from .rounds import Round


def main() -> int:
    """Run the rounds; the exit status says whether a round failed."""
    parser = argparse.ArgumentParser(description="Kill, stop, cut off and cancel clients and daemons at random points.")
    parser.add_argument("--seed", type=int, default=0, help="the first round's seed")
    parser.add_argument("--rounds", type=int, default=100)
    options = parser.parse_args()
    failed: list[int] = []
    start = time.monotonic()
    for number in range(options.rounds):
        seed = options.seed + number
        problems = Round(seed).run()
        for problem in problems:
            sys.stdout.write(f"\n{problem}\n")
        if problems:
            failed.append(seed)
        seconds = time.monotonic() - start
        sys.stdout.write(f"\r{number + 1}/{options.rounds} rounds, {seconds:.0f} s, failed: {failed or 'none'} ")
        sys.stdout.flush()
    sys.stdout.write("\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

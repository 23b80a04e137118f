"""A random load of any duration: `python -m tests.soak.run --hours 8`, or `make soak`.

Every 20 s it prints a line of the process's sizes, and at the end the growth of memory. It fails if the growth is more
than `--slope`, if a value is wrong, or if memory of a tier is not given back.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from .load import slope, soak

MIB = 1 << 20


def main() -> int:
    """Run the load; the exit status says whether memory grew."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slope", type=float, default=1.0, help="MiB per hour that memory may grow by")
    parser.add_argument("--directory", type=Path, help="where the store and all files are (a temporary directory)")
    options = parser.parse_args()
    taken = []
    with tempfile.TemporaryDirectory(prefix="tensord-soak-", dir=options.directory) as directory:
        for steps, found in soak(3600 * options.hours, Path(directory), options.seed):
            taken.append(found)
            sys.stdout.write(
                f"{found.seconds:7.0f} s  {steps:9,} steps  {found.resident / MIB:7.1f} MiB resident  "
                f"{found.descriptors} descriptors  {found.files / MIB:6.1f} MiB of files\n"
            )
            sys.stdout.flush()
    if len(taken) < 6:
        sys.stdout.write("too short to say by how much memory grows\n")
        return 0
    grown = slope(taken) / MIB
    sys.stdout.write(f"memory grows by {grown:.2f} MiB/h (may: {options.slope:g})\n")
    return 1 if grown > options.slope else 0


if __name__ == "__main__":
    sys.exit(main())

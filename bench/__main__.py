"""`python -m bench`: run the workloads, print the table, keep the JSON."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from . import elementwise, latency, overlap, small_ops, tracing, training, volume
from .measure import Row, Settings
from .report import print_table, write_json

WORKLOADS: dict[str, Callable[[Settings], list[Row]]] = {
    "chain": small_ops.measure_chain,
    "spread": small_ops.measure_spread,
    "inplace": small_ops.measure_inplace,
    "latency": latency.measure,
    "volume": volume.measure,
    "training": training.measure,
    "elementwise": elementwise.measure,
    "overlap": overlap.measure,
    "tracing": tracing.measure,
}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Benchmarks against NumPy in the same run.")
    parser.add_argument("--only", action="append", choices=WORKLOADS, metavar="NAME", help=", ".join(WORKLOADS))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every run to FILE as well")
    parser.add_argument("--runs", type=int, default=5, help="runs per workload (default: 5)")
    parser.add_argument("--quick", action="store_true", help="small sizes and two runs: does it work, not how fast")
    parser.add_argument("--baseline-only", action="store_true", help="NumPy alone, without the virtual machine")
    return parser.parse_args()


def main() -> None:
    options = parse()
    console = Console()
    settings = Settings(2 if options.quick else options.runs, options.quick, options.baseline_only)
    rows: list[Row] = []
    for name in options.only or WORKLOADS:
        # A plain line: the thread of a spinner would take part in the measurement.
        console.print(f"measuring {name}", style="dim")
        rows += WORKLOADS[name](settings)
    for row in rows:
        row.quick = settings.quick
    print_table(rows, console)
    if options.json:
        write_json(rows, settings, options.json)
        console.print(f"every run: {options.json}")


if __name__ == "__main__":
    main()

"""`python -m bench`: run the workloads, print the table, write the JSON.

With --daemon, the workloads run through a daemon.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from rich.console import Console

from examples.own_daemon import own_daemon

from . import (
    array_api,
    checkpointing,
    checkpoints,
    clients,
    closing,
    cluster,
    cluster_collectives,
    cluster_training,
    collectives,
    elementwise,
    eviction,
    fairness,
    files,
    heartbeat,
    latency,
    launching,
    links,
    metrics,
    overlap,
    parallel,
    pipelines,
    roundtrip,
    routines,
    small_ops,
    tracing,
    training,
    transfers,
    volume,
)
from .measure import DAEMON_CONFIG, Row, Settings
from .report import print_table, write_json

Workloads: TypeAlias = dict[str, Callable[[Settings], list[Row]]]

EMBEDDED: Workloads = {
    "chain": small_ops.measure_chain,
    "spread": small_ops.measure_spread,
    "inplace": small_ops.measure_inplace,
    "launching": launching.measure,
    "latency": latency.measure,
    "volume": volume.measure,
    "training": training.measure,
    "routines": routines.measure,
    "elementwise": elementwise.measure,
    "overlap": overlap.measure,
    "pipelines": pipelines.measure,
    "collectives": collectives.measure,
    "parallel": parallel.measure,
    "eviction": eviction.measure,
    "files": files.measure,
    "checkpointing": checkpointing.measure,
    "closing": closing.measure,
    "heartbeat": heartbeat.measure,
    "tracing": tracing.measure,
    "functions": array_api.measure_calls,
    "checkpoints": checkpoints.measure,
    "cluster": cluster.measure,
    "links": links.measure,
    "cluster collectives": cluster_collectives.measure,
    "cluster training": cluster_training.measure,
}

DAEMON: Workloads = {
    "chain": small_ops.measure_chain,
    "spread": small_ops.measure_spread,
    "inplace": small_ops.measure_inplace,
    "latency": roundtrip.measure,
    "transfers": transfers.measure,
    "volume": volume.measure,
    "launching": launching.measure,
    "clients": clients.measure,
    "fairness": fairness.measure,
    "closing": closing.measure,
    "heartbeat": heartbeat.measure,
    "training": training.measure,
    "routines": routines.measure,
    "functions": array_api.measure_fetches,
    "metrics": metrics.measure,
}

WIDTH = 100  # columns, if the output is not a terminal


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Benchmarks against NumPy in the same run.")
    parser.add_argument("--daemon", action="store_true", help="through a daemon process, instead of in this process")
    parser.add_argument("--only", action="append", metavar="NAME", help=", ".join(dict.fromkeys([*EMBEDDED, *DAEMON])))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every run to FILE as well")
    parser.add_argument("--runs", type=int, default=5, help="runs per workload (default: 5)")
    parser.add_argument("--quick", action="store_true", help="small sizes and one run: checks that everything works")
    parser.add_argument("--full", action="store_true", help="files and checkpoints of several GiB, which takes minutes")
    parser.add_argument("--baseline-only", action="store_true", help="only NumPy, without the virtual machine")
    options = parser.parse_args()
    unknown = set(options.only or ()) - set(workloads(options))
    if unknown:
        parser.error(f"no workload {min(unknown)!r}; there are {', '.join(workloads(options))}")
    return options


def workloads(options: argparse.Namespace) -> Workloads:
    """The workloads that these options select."""
    return DAEMON if options.daemon else EMBEDDED


def run(name: str, settings: Settings) -> list[Row]:
    """Run one workload. With --daemon, each workload has its own daemon, so that all start with the same memory."""
    if not settings.through_daemon:
        return EMBEDDED[name](settings)
    if settings.baseline_only:
        return DAEMON[name](settings)
    with own_daemon(config=DAEMON_CONFIG) as daemon:
        return DAEMON[name](replace(settings, daemon=daemon))


def main() -> None:
    options = parse()
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    settings = Settings(
        runs=1 if options.quick else options.runs,
        quick=options.quick,
        full=options.full,
        baseline_only=options.baseline_only,
        through_daemon=options.daemon,
    )
    rows: list[Row] = []
    for name in options.only or workloads(options):
        # A plain line: the thread of a spinner would take part in the measurement.
        console.print(f"measuring {name}", style="dim")
        rows += run(name, settings)
    for row in rows:
        row.quick |= settings.quick
    print_table(rows, console)
    if options.json:
        write_json(rows, settings, options.json)
        console.print(f"every run: {options.json}")


if __name__ == "__main__":
    main()

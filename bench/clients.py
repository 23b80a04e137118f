"""Eight client processes at once: the daemon's total throughput, and whether it treats the clients alike."""

from __future__ import annotations

from contextlib import ExitStack

from .measure import Row, Settings, median
from .partner import Partner

CLIENTS = 8


def measure(settings: Settings) -> list[Row]:
    """Ops per millisecond of eight clients together and of one alone, in turns; and the slowest and the fastest of
    the eight."""
    total = Row("8 clients, total", "ops/ms", None, None, 0.8, 1.0, "ratio", "1 client", more_is_better=True)
    fair = Row("8 clients, slowest", "ms", None, None, 1.5, 1.1, "ratio", "fastest")
    if settings.baseline_only:
        return [total, fair]
    count, many = settings.size(5_000, 200), clients_of(settings)
    for row in (total, fair):
        row.runs = {"ours": [], "baseline": []}
    with ExitStack() as stack:
        clients = [stack.enter_context(Partner("client", settings.server.address)) for _ in range(many)]
        for client in clients:
            client.hear()
        for turn in settings.turns:
            alone = race(clients[:1], count * many)
            together = race(clients, count)
            if turn > 0:
                total.runs["baseline"].append(throughput(alone, count * many))
                total.runs["ours"].append(throughput(together, count * many))
                times = [(end - start) * 1e3 for start, end in together]
                fair.runs["ours"].append(max(times))
                fair.runs["baseline"].append(min(times))
    for row in (total, fair):
        row.ours, row.baseline = median(row.runs, "ours"), median(row.runs, "baseline")
    return [total, fair]


def clients_of(settings: Settings) -> int:
    """The number of clients. With small sizes there are few, since starting them takes longer than their work."""
    return settings.size(CLIENTS, 2)


def race(clients: list[Partner], count: int, what: str = "ops") -> list[tuple[float, float]]:
    """When each client began and ended `count` ops, or captured training steps. A line in each pipe starts them."""
    for client in clients:
        client.ask("tidy")
    for client in clients:
        client.tell(f"{what} {count}")
    times = [tuple(map(float, client.hear().split())) for client in clients]
    return [(start, end) for start, end in times]


def throughput(times: list[tuple[float, float]], ops: int) -> float:
    """Ops per millisecond, from the first start to the last end."""
    return ops / (max(end for _, end in times) - min(start for start, _ in times)) / 1e3

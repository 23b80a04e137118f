"""Every metric. docs/metrics.md is made from this table, and exporters and clusters use these names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from .bounds import OTHER_LABEL, labels_of_ops, labels_of_sessions
from .family import Family, Figures, Histogram, MetricKind, Read, Sample

Row = Mapping[str, Any]


def machine(value: Callable[[Row], float]) -> Read:
    """One sample, for the machine."""
    return lambda figures: [((), value(figures.machine))]


def devices(value: Callable[[Row], float]) -> Read:
    """A sample for each device."""
    return lambda figures: [((name,), value(row)) for name, row in figures.machine["devices"].items()]


def transfers(value: str) -> Read:
    """A sample for each device and kind of transfer."""

    def read(figures: Figures) -> Iterator[Sample]:
        for name, device in figures.machine["devices"].items():
            for kind, row in device["transfers"].items():
                yield (name, kind), row[value]

    return read


def evictions(value: str) -> Read:
    """A sample for each device and way in which values leave it and come back."""

    def read(figures: Figures) -> Iterator[Sample]:
        for name, device in figures.machine["devices"].items():
            for way in ("evicted", "dropped", "returned"):
                yield (name, way), device["eviction"][way][value]

    return read


def streams(column: int) -> Read:
    """A sample for each stream."""

    def read(figures: Figures) -> Iterator[Sample]:
        for name, device in figures.machine["devices"].items():
            for stream, row in device["streams"].items():
                yield (name, stream), row[column]

    return read


def collectives(value: str) -> Read:
    """A sample for each kind of collective."""
    return lambda figures: [((kind,), row[value]) for kind, row in figures.machine["collectives"].items()]


def nodes(value: str) -> Read:
    """A sample for each other node and direction."""

    def read(figures: Figures) -> Iterator[Sample]:
        for direction, by_node in figures.machine["nodes"].items():
            for node, row in by_node.items():
                yield (node, direction), row[value]

    return read


def sessions(value: Callable[[Row], float]) -> Read:
    """A sample for each session; sessions beyond the limit share one."""

    def read(figures: Figures) -> Iterator[Sample]:
        for labels, row in labels_of_sessions(figures.sessions, figures.bounds.sessions):
            yield labels, value(row)

    return read


def held(figures: Figures) -> Iterator[Sample]:
    """A sample for each session and device with bytes of it; session 0 stands for values that belong to no open
    session."""
    named = {row["id"]: labels for labels, row in labels_of_sessions(figures.sessions, figures.bounds.sessions)}
    for session, device, nbytes in figures.held:
        yield (*named.get(session, (OTHER_LABEL, OTHER_LABEL)), device), nbytes


def errors(figures: Figures) -> Iterator[Sample]:
    """A sample for each type of error."""
    for kind, count in figures.machine["errors"].items():
        yield (kind,), count


def instructions(figures: Figures) -> Iterator[Sample]:
    """A sample for each op and status of ended instructions."""
    labels = labels_of(figures)
    for op, count, _, _ in figures.machine["tally"]["done"]:
        if count:
            yield (labels[op], "done"), count
    for op, status, count in figures.machine["tally"]["ended"]:
        yield (labels.get(op, OTHER_LABEL), status.lower()), count


def run_times(figures: Figures) -> Iterator[Sample]:
    """A histogram for each op."""
    labels = labels_of(figures)
    for op, _, counts, total in figures.machine["tally"]["done"]:
        if counts:
            yield (labels[op],), Histogram.of(counts, total)


def labels_of(figures: Figures) -> dict[str, str]:
    """The labels of the ops."""
    return labels_of_ops([row[0] for row in figures.machine["tally"]["done"]], figures.bounds.ops)


def kernels(column: int) -> Read:
    """The contents of the directory of compiled kernels, if it is readable."""
    return lambda figures: [] if figures.kernels is None else [((), figures.kernels[column])]


def loaded_kernels(figures: Figures) -> Iterator[Sample]:
    """A sample for each device that compiles kernels."""
    for name, device in figures.machine["devices"].items():
        if device["kernels"] is not None:
            yield (name,), device["kernels"]


def durable(figures: Figures) -> Iterator[Sample]:
    """One sample, for a machine with durable names."""
    if figures.machine["durable"] is not None:
        yield (), float(figures.machine["durable"]["failing"])


COUNTER, GAUGE, HISTOGRAM = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM
DEVICE, SESSION = ("device",), ("session", "client")

MACHINE: Final = (
    Family(
        "tensord_up",
        GAUGE,
        "1 if the daemon has answered.",
        lambda all_: [((), float(bool(all_.machine)))],
        always=True,
    ),
    Family("tensord_answer_seconds", GAUGE, "Time that the daemon took to answer.", lambda all_: [((), all_.took)]),
    Family(
        "tensord_build_info",
        GAUGE,
        "1, with the daemon's version.",
        lambda all_: [((all_.machine["version"],), 1.0)],
        ("version",),
    ),
    Family("tensord_uptime_seconds", GAUGE, "Time since the daemon was started.", machine(lambda row: row["uptime"])),
    Family("tensord_memory_bytes", GAUGE, "Resident memory of the daemon.", machine(lambda row: row["memory"])),
    Family("tensord_sessions", GAUGE, "Open sessions of programs.", machine(lambda row: row["sessions"])),
    Family("tensord_tensors", GAUGE, "Live tensors.", machine(lambda row: row["tensors"])),
    Family("tensord_names", GAUGE, "Published names.", machine(lambda row: row["names"])),
    Family("tensord_errors_total", COUNTER, "Errors, each counted once, at its origin.", errors, ("type",)),
    Family(
        "tensord_kernels_hanging",
        GAUGE,
        "Kernels that run for longer than hang_after.",
        machine(lambda row: row["hung"]),
    ),
    Family(
        "tensord_checkpoints_running",
        GAUGE,
        "Checkpoints that are being written.",
        machine(lambda row: row["checkpoints"]),
    ),
    Family("tensord_durable_names_failing", GAUGE, "1 while durable names cannot be written.", durable),
)
INSTRUCTIONS: Final = (
    Family(
        "tensord_instructions_admitted_total",
        COUNTER,
        "Instructions admitted.",
        machine(lambda row: row["instructions"]["admitted"]),
    ),
    Family(
        "tensord_instructions_total",
        COUNTER,
        "Instructions that have ended, by op, or opcode where there is no op.",
        instructions,
        ("op", "status"),
    ),
    Family(
        "tensord_instructions_live",
        GAUGE,
        "Instructions admitted and not ended.",
        machine(lambda row: row["instructions"]["live"]),
    ),
    Family(
        "tensord_instructions_ready",
        GAUGE,
        "Live instructions that wait only for their turn.",
        machine(lambda row: row["instructions"]["ready"]),
    ),
    Family(
        "tensord_messages_pending",
        GAUGE,
        "Messages received and not admitted.",
        machine(lambda row: row["instructions"]["pending"]),
    ),
    Family(
        "tensord_instruction_delay_seconds",
        HISTOGRAM,
        "Time from admission to the start, of scheduled instructions.",
        lambda all_: [((), Histogram.of(*all_.machine["tally"]["delays"]))],
    ),
    Family(
        "tensord_instruction_run_seconds",
        HISTOGRAM,
        "Time from the start to the end, of scheduled instructions.",
        run_times,
        ("op",),
    ),
)
DEVICES: Final = (
    Family("tensord_device_used_bytes", GAUGE, "Memory in use.", devices(lambda row: row["used"]), DEVICE),
    Family(
        "tensord_device_planned_bytes",
        GAUGE,
        "Memory in use once all admitted instructions have run.",
        devices(lambda row: row["planned"]),
        DEVICE,
    ),
    Family("tensord_device_limit_bytes", GAUGE, "Size of the memory.", devices(lambda row: row["limit"]), DEVICE),
    Family(
        "tensord_device_cached_bytes", GAUGE, "Freed memory kept for reuse.", devices(lambda row: row["cached"]), DEVICE
    ),
    Family(
        "tensord_device_exported_bytes",
        GAUGE,
        "Results that clients read in place.",
        devices(lambda row: row["exported"]),
        DEVICE,
    ),
    Family(
        "tensord_device_pinned_bytes",
        GAUGE,
        "Tensors that are pinned.",
        devices(lambda row: row["eviction"]["pinned"]),
        DEVICE,
    ),
    Family(
        "tensord_device_waiting_for_memory",
        GAUGE,
        "Instructions that wait for memory.",
        devices(lambda row: row["waiting"]),
        DEVICE,
    ),
    Family("tensord_device_lost", GAUGE, "1 for a lost device.", devices(lambda row: float(row["lost"])), DEVICE),
    Family(
        "tensord_evictions_total",
        COUNTER,
        "Values that were evicted or dropped to make room, or have returned.",
        evictions("count"),
        ("device", "way"),
    ),
    Family("tensord_eviction_bytes_total", COUNTER, "Their bytes.", evictions("bytes"), ("device", "way")),
    Family("tensord_transfers_total", COUNTER, "Transfers.", transfers("count"), ("device", "kind")),
    Family("tensord_transfer_bytes_total", COUNTER, "Their bytes.", transfers("bytes"), ("device", "kind")),
    Family("tensord_stream_queued", GAUGE, "Instructions given to a stream.", streams(0), ("device", "stream")),
    Family(
        "tensord_stream_backlog",
        GAUGE,
        "Instructions that wait for their session's turn on a stream.",
        streams(1),
        ("device", "stream"),
    ),
    Family("tensord_collectives_total", COUNTER, "Collectives.", collectives("count"), ("kind",)),
    Family("tensord_collective_bytes_total", COUNTER, "Their bytes.", collectives("bytes"), ("kind",)),
    Family(
        "tensord_node_values_total", COUNTER, "Values sent to or received from a node.", nodes("count"), ("node", "way")
    ),
    Family("tensord_node_bytes_total", COUNTER, "Their bytes.", nodes("bytes"), ("node", "way")),
)
CACHES: Final = (
    Family(
        "tensord_infer_misses_total",
        COUNTER,
        "Signatures whose results had to be inferred.",
        machine(lambda row: row["infer_misses"]),
    ),
    Family(
        "tensord_kernels_loaded", GAUGE, "Kinds of calls whose kernels are compiled and loaded.", loaded_kernels, DEVICE
    ),
    Family("tensord_kernel_cache_kernels", GAUGE, "Compiled kernels on the disk.", kernels(0)),
    Family("tensord_kernel_cache_bytes", GAUGE, "Their bytes.", kernels(1)),
)
SESSIONS: Final = (
    Family(
        "tensord_session_bytes",
        GAUGE,
        "Memory of a session's values.",
        sessions(lambda row: row["bytes"]),
        SESSION,
    ),
    Family(
        "tensord_session_device_bytes",
        GAUGE,
        "Memory of a session's values by device; updated rarely.",
        held,
        (*SESSION, "device"),
    ),
    Family(
        "tensord_session_exported_bytes",
        GAUGE,
        "Results that a session's client reads in place.",
        sessions(lambda row: row["exported"]),
        SESSION,
    ),
    Family(
        "tensord_session_tensors", GAUGE, "Tensors that a session holds.", sessions(lambda row: row["tensors"]), SESSION
    ),
    Family(
        "tensord_session_instructions_live",
        GAUGE,
        "A session's unfinished instructions.",
        sessions(lambda row: row["live"]),
        SESSION,
    ),
    Family(
        "tensord_session_messages_pending",
        GAUGE,
        "A session's messages that are not admitted.",
        sessions(lambda row: row["pending"]),
        SESSION,
    ),
    Family("tensord_session_errors", GAUGE, "A session's errors so far.", sessions(lambda row: row["errors"]), SESSION),
    Family(
        "tensord_session_moved_bytes",
        GAUGE,
        "Bytes of the transfers that a session has caused so far.",
        sessions(lambda row: row["moved"]["bytes"]),
        SESSION,
    ),
    Family(
        "tensord_session_evicted_bytes",
        GAUGE,
        "Bytes of a session's transfers that made room.",
        sessions(lambda row: row["evicted"]["bytes"]),
        SESSION,
    ),
)
FAMILIES: Final = (*MACHINE, *INSTRUCTIONS, *DEVICES, *CACHES, *SESSIONS)

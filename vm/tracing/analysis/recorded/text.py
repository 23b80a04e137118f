"""Formats instructions and times for people, in the same way for pictures, trees and tables."""

from __future__ import annotations

from .....interpreter.opcodes import traits_of
from ...flat import COMPILING
from ...record import Record
from .derived import operands_text

# Steps inside runs have ids from here on. JavaScript, too, represents them exactly.
_INNER = 1 << 52
_STEPS = 1 << 15


def inner_id(run: int, step: int) -> int:
    """The id of a step inside a run."""
    return _INNER + run * _STEPS + step


def id_text(id_: int) -> str:
    """An id as text: `33`, or `33/4` for step 4 of the run #33."""
    return str(id_) if id_ < _INNER else "{}/{}".format(*divmod(id_ - _INNER, _STEPS))


def label(record: Record, until: int = 0) -> list[str]:
    """Two or three lines:

    `#id op`; metas and attributes; then the stream, the run time, and the status if it is not DONE.
    """
    ran = duration(record.finished - record.started) if record.started and record.finished else ""
    metas = operands_text(record)
    return [
        name(record),
        *([metas] if metas else []),
        "  ".join(filter(None, (full_stream_name(record), ran, remark(record, until)))),
    ]


def is_running(record: Record) -> bool:
    """Whether the instruction was executing when the trace was taken."""
    return record.status == "DISPATCHED" and bool(record.started) and not record.finished and not record.erased


def status(record: Record) -> str:
    """The status for people. The engine has no status RUNNING, since streams start instructions without telling it."""
    return "RUNNING" if is_running(record) else record.status


def remark(record: Record, until: int) -> str:
    """The status if it is not DONE, for a running instruction with its run time up to `until`; and whether it
    compiled."""
    text = "" if record.status == "DONE" else status(record)
    if is_running(record) and until > record.started:
        text = f"RUNNING for {duration(until - record.started)}"
    return ", ".join(filter(None, (text, COMPILING if compiles(record) else "")))


def compiles(record: Record) -> bool:
    """Whether the instruction's kernels ran on their device for the first time, so that they were compiled or
    loaded."""
    return COMPILING in record.held


def name(record: Record) -> str:
    """`#id op`, or `#id opcode` if the instruction is not an op."""
    return f"#{id_text(record.id)} {record.op or record.opcode}"


def kind_of(record: Record) -> str:
    """The name under which sums count an instruction: its op, or its opcode.

    All instructions of a collective, and of all equal collectives, have one name: `all_reduce 64 MiB ring of 4`. So
    have all sends to one node: `send to node1`.
    """
    if traits_of(record.opcode).category in {"collective", "link"}:
        return record.op.partition(" #")[0]
    return record.op or record.opcode


def title(record: Record) -> str:
    """`#id op` with metas and attributes: `#3 matmul (128, 64) x (64, 256) float32`."""
    return f"{name(record)} {operands_text(record)}".rstrip()


def full_stream_name(record: Record) -> str:
    """`device/stream`; before dispatch, only the device. The device of a transfer on the driving thread is the
    destination."""
    stream = record.stream
    return stream if "/" in stream else f"{record.device}/{stream}" if stream else record.device


def stream_name(device: str, stream: str) -> str:
    """A stream's name without its device: "compute0" for "cpu:0/compute0"."""
    return stream.removeprefix(f"{device}/")


def duration(ns: int) -> str:
    """A time in nanoseconds as text, with three digits and a unit."""
    for unit, size in (("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)):
        if ns >= size * 0.9995:  # less is rounded to at most 999 of the smaller unit
            return f"{ns / size:.3g} {unit}" if ns < 999.5 * size else f"{round(ns / size)} {unit}"
    return f"{ns} ns"


def plural(count: int, noun: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def edge_name(reason: str, copy: int) -> str:
    """`RAW of copy 7`, or only the reason, for a barrier, which is not about a copy."""
    return f"{reason} of copy {copy}" if copy else reason


def printable(text: str) -> str:
    """The text without control characters, so that a terminal or a parser does not act on a file name."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)

"""A finding in words: the observation and the remedy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Final, NamedTuple

from .....interpreter.types.sizes import size
from ..recorded.text import duration, plural, printable
from .advise import MINOR, Advice
from .finding import Finding

_LINES_SHOWN: Final = 4


class Words(NamedTuple):
    """The texts of a rule: a title; `observation`, a sentence about a finding; and `remedy`, what to do."""

    title: str
    observation: str
    remedy: str


# Fields of a sentence: `times` ("3 times"), `size` of the bytes, `first` and `last` device, and of two sessions the one
# that delays (`holder`) and the one that waits (`held`).
RULES: Final[Mapping[str, Words]] = {
    "there and back": Words(
        "values that go there and back",
        "{times} a value went from {first} to {last} and was used there for less time than its transfers took, and the "
        "result went back.",
        "Compute on {first}: make the other operands there (`device={first!r}`), and leave out `to_device` in between.",
    ),
    "through the host": Words(
        "values that go through the program",
        "{times} the program read a value from {first}, and then uploaded one of the same shape and dtype to {first}.",
        "Compute on {first} with ops of the session, or with an op of your own (`@td.op`), instead of NumPy.",
    ),
    "moved again": Words(
        "the same value moved again",
        "{times} a value moved to {last}, although it had been there before and had not been written since.",
        "Keep it there: `y = x.to_device({last!r})` once, then use `y`; `y.pin()` if it is evicted to make room.",
    ),
    "read again": Words(
        "the same value read again",
        "{times} the program read a value that it had read before.",
        "Read the value once, and keep the array that `x.numpy()` returned.",
    ),
    "uploads in a loop": Words(
        "uploads in a loop",
        "{times} after the first, a value of the same shape and dtype was uploaded to {first} and never written to.",
        "If the values are the same, upload once before the loop. If not, upload the next one while this one is used: "
        "arrays of `session.empty_host` or `session.pool` are not copied at the call.",
    ),
    "small ops": Words(
        "small ops that repeat",
        "{times} the same sequence of ops was sent one op at a time; the cost is the time between the ops.",
        "Make the sequence a routine: `@session.routine`, or `connect(routines='auto')`.",
    ),
    "waits": Words(
        "the program waits in the middle",
        "{times} the program waited for {first}, which then had nothing to do until the program sent more.",
        "Read after the loop, several values at once with `session.fetch`, or one step late: `x.prefetch('host')`, or "
        "`x.numpy_async()`. A decision that depends on a value can be made on its device: `session.cond`, "
        "`session.while_loop`.",
    ),
    "evictions": Words(
        "values evicted again and again",
        "{times} a value came back to {first} after it had been evicted to make room, not for the first time.",
        "Give {first} {size} more (`memory=`), work on smaller parts, release values sooner "
        "(`with session.context():`), or call `x.pin()` on the values that every step needs.",
    ),
    "held up": Words(
        "one session delays another",
        "{times} an op of session {holder} ran on {first} while session {held}, whose ops are short, had one ready.",
        "Cut the long ops of session {holder} into parts, run them on another device, or give {first} another compute "
        "stream (`workers`, `compute_streams`).",
    ),
    "compiling": Words(
        "kernels compiled in the middle of work",
        "{times} a call on {first} had to compile or load its kernels first.",
        "Compile them in advance: `tensord warm`, or `warm` in the configuration. If shapes vary, pad to a few shapes.",
    ),
}


def observation(finding: Finding) -> str:
    """The observation, as a sentence."""
    return RULES[finding.rule].observation.format_map(_facts(finding))


def remedy(finding: Finding) -> str:
    """The remedy."""
    return RULES[finding.rule].remedy.format_map(_facts(finding))


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _facts(finding: Finding) -> dict[str, object]:
    return {
        "times": _times(finding.count).capitalize(),
        "size": size(finding.nbytes),
        "first": finding.devices[0],
        "last": finding.devices[-1],
        "holder": finding.sessions[0],
        "held": finding.sessions[-1],
    }


def plain(finding: Finding) -> dict[str, object]:
    """A finding for programs: its fields and its texts."""
    words = {"title": RULES[finding.rule].title, "what": observation(finding), "todo": remedy(finding)}
    return {**asdict(finding), "lines": [line._asdict() for line in finding.lines], **words}


def to_text(advice: Advice) -> str:
    """All findings, as text for people."""
    parts = ["\n  ".join(to_lines(one, advice.length)) for one in advice.findings]
    return "\n\n".join([head(advice), *parts, *filter(None, [minor(advice)])]) + "\n"


def head(advice: Advice) -> str:
    """A line with the number of findings."""
    return f"{plural(len(advice.findings), 'finding')} in {duration(advice.length)}"


def minor(advice: Advice) -> str:
    """A line with the number of omitted findings; "" if none is omitted."""
    return f"{plural(advice.minor, 'finding')} below {1 / MINOR:.1%} of the time left out" if advice.minor else ""


def to_lines(finding: Finding, length: int) -> Iterator[str]:
    """A finding for people: cost and title, the lines, the observation, the remedy. `length`: of the trace."""
    yield f"{duration(finding.cost)}, {finding.cost / max(1, length):.0%}: {RULES[finding.rule].title}"
    for line in finding.lines[:_LINES_SHOWN]:
        yield f"{printable(line.location) or 'no line'}: {duration(line.cost)}, {_times(line.times)}"
    if len(finding.lines) > _LINES_SHOWN:
        yield f"and {plural(len(finding.lines) - _LINES_SHOWN, 'line')} more"
    yield printable(observation(finding))
    yield printable(remedy(finding))

"""What one session may have and one frame may hold: checked before memory is spent on what exceeds it."""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a session and of the frames it sends. The embedded machine has the defaults.

    `header`: bytes of a header frame, which is decoded into objects some fifty times its size. `frame`: bytes of
    any frame. `frames`: payload frames in one message. `batch`: messages in a batch or in an atomic group.
    `nesting`: levels of attributes and metas. `text`: characters of a location or of a name. `window`: messages a
    session may have unfinished before its client waits; four times as many close it. `window_bytes`: bytes of
    uploads unconsumed, the same. `tensors`, `bytes`: live tensors of a session, and bytes of the storages that it
    made. `signatures`, `locations`: the highest number each. `operands`: of all its signatures together. `chains`,
    `names`: how many a session may make, and publish. `segments`: upload segments of a session; `mapped`: bytes of
    them. `sessions`: open at a time.
    """

    header: int = MIB
    frame: int = GIB
    frames: int = 4096
    batch: int = 4096
    nesting: int = 8
    text: int = 1024
    window: int = 8192
    window_bytes: int = GIB
    tensors: int = 1 << 20
    bytes: int = 1 << 62
    signatures: int = 1 << 16
    operands: int = 1 << 20
    locations: int = 1 << 17
    chains: int = 1024
    names: int = 1 << 16
    segments: int = 128
    mapped: int = 1 << 62
    sessions: int = 256

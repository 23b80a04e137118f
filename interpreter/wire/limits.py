"""Limits of sessions and frames, checked before memory is used."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a session and of the frames it sends. The embedded machine has the defaults.

    `header`: bytes of a header frame, which is decoded into objects some fifty times its size. `frame`: bytes of any
    frame. `frames`: payload frames in one message. `batch`: messages in a batch or in an atomic group. `nesting`:
    levels of attributes and metas. `text`: characters of a location or of a name. `window`: unfinished messages of a
    session before its client waits; four times as many close the session. `window_bytes`: the same for bytes of
    unconsumed uploads. `tensors`, `bytes`: live tensors of a session, and bytes of the storages that it made.
    `signatures`, `locations`: their highest numbers. `location_bytes`: bytes of the locations that a session has sent,
    and of its spans; beyond it the oldest are forgotten. `operands`: operands of all signatures of a session. `chains`,
    `names`: chains that a session may make, names that it may publish. `programs`, `steps`: programs and routines of a
    session, each, and the steps of all of them. `iterations`: rounds of the loops of one run. `files`: files that
    tensors of a session lie in. `transfers`: values of a session that wait at once for another node to take them.
    `segments`, `mapped`: upload segments of a session, and their bytes. `sessions`: sessions open at a time.
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
    locations: int = (1 << 17) - 1
    location_bytes: int = 16 * MIB
    chains: int = 1024
    names: int = 1 << 16
    programs: int = 1024
    steps: int = 1 << 18
    iterations: int = 1 << 20
    files: int = 256
    transfers: int = 8192
    segments: int = 128
    mapped: int = 1 << 62
    sessions: int = 256

"""The numbers of the messages that `messages` declares. A client that only asks needs no more than this file."""

from __future__ import annotations

from enum import IntEnum


class MessageKind(IntEnum):
    """The first field of a message."""

    CALL = 0
    RELEASE = 1
    UPLOAD = 2
    FETCH = 3
    WAIT = 4
    SYNC = 5
    EFFECT = 6
    CHAIN = 7
    SIGNATURE = 8
    LOCATION = 9
    PUBLISH = 10
    LOOKUP = 11
    UNPUBLISH = 12
    TO_DEVICE = 13
    RESTART = 14
    ATOMIC = 15
    NAMES = 16
    QUERY = 17
    SPAN = 18
    PROGRAM = 19
    LINK = 20
    RUN = 21
    CONVENTION = 22
    HINT = 23
    FILE = 24
    LOAD = 25
    WRITE = 26
    FLUSH = 27
    CHECKPOINT = 28
    RESTORE = 29
    SHARE = 30
    COLLECTIVE = 31
    SEND = 32
    RECV = 33


# Plain ints for the hot path: an IntEnum member costs several times an int in a comparison.
CALL = int(MessageKind.CALL)
RELEASE = int(MessageKind.RELEASE)
UPLOAD = int(MessageKind.UPLOAD)
FETCH = int(MessageKind.FETCH)
WAIT = int(MessageKind.WAIT)
SYNC = int(MessageKind.SYNC)
EFFECT = int(MessageKind.EFFECT)
CHAIN = int(MessageKind.CHAIN)
SIGNATURE = int(MessageKind.SIGNATURE)
LOCATION = int(MessageKind.LOCATION)
PUBLISH = int(MessageKind.PUBLISH)
LOOKUP = int(MessageKind.LOOKUP)
UNPUBLISH = int(MessageKind.UNPUBLISH)
TO_DEVICE = int(MessageKind.TO_DEVICE)
RESTART = int(MessageKind.RESTART)
ATOMIC = int(MessageKind.ATOMIC)
NAMES = int(MessageKind.NAMES)
QUERY = int(MessageKind.QUERY)
SPAN = int(MessageKind.SPAN)
PROGRAM = int(MessageKind.PROGRAM)
LINK = int(MessageKind.LINK)
RUN = int(MessageKind.RUN)
CONVENTION = int(MessageKind.CONVENTION)
HINT = int(MessageKind.HINT)
FILE = int(MessageKind.FILE)
LOAD = int(MessageKind.LOAD)
WRITE = int(MessageKind.WRITE)
FLUSH = int(MessageKind.FLUSH)
CHECKPOINT = int(MessageKind.CHECKPOINT)
RESTORE = int(MessageKind.RESTORE)
SHARE = int(MessageKind.SHARE)
COLLECTIVE = int(MessageKind.COLLECTIVE)
SEND = int(MessageKind.SEND)
RECV = int(MessageKind.RECV)

# Kinds that no atomic group may contain: groups, restarts, and requests, since no wait is possible inside a group.
UNGROUPED = frozenset(
    {ATOMIC, RESTART, FETCH, WAIT, SYNC, QUERY, LOOKUP, NAMES, FILE, FLUSH, CHECKPOINT, RESTORE, SHARE}
)

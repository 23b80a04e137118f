"""The numbers of the messages, which `messages` declares: in a file of their own, since a client that only asks needs
no more.
"""

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

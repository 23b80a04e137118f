"""The states of a launch on one node, and the only table of their transitions.

The node whose name is first *leads*; all others *follow*. A message of another node that is not legal in a state
(`STATES_OF_MESSAGE`) fails the launch, and changes nothing else.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from .messages import GangMessage


class State(StrEnum):
    """The state of a launch; the text names the awaited event."""

    COMING = "its operands and results on this node"
    GATHERING = "operands and results on other nodes"
    QUEUING = "the turn of this node, which other launches have"
    HOLDING = "the turns of other nodes"
    LAUNCHED = "the GPUs of this node"
    ENDED = "the GPUs of other nodes"
    ABORTING = "the GPUs of this node, which let go of a launch that failed"
    OVER = "nothing"


class GangEvent(StrEnum):
    """An event of a launch, with a text for people."""

    BEGUN = "operands and results are there"
    GATHERED = "they are there on all nodes"
    GRANTED = "this node has its turn"
    AGREED = "all nodes have theirs"
    ENDED = "the GPUs of this node have ended"
    BROKEN = "the GPUs of this node have ended with an error"
    DISPERSED = "the GPUs of all nodes have ended"
    FAILED = "something failed, here or on another node"


S, E = State, GangEvent
TRANSITIONS: Final[dict[tuple[State, GangEvent], State]] = {
    (S.COMING, E.BEGUN): S.GATHERING,
    (S.GATHERING, E.GATHERED): S.QUEUING,
    (S.QUEUING, E.GRANTED): S.HOLDING,
    (S.HOLDING, E.AGREED): S.LAUNCHED,
    (S.LAUNCHED, E.ENDED): S.ENDED,
    (S.LAUNCHED, E.BROKEN): S.OVER,
    (S.ENDED, E.DISPERSED): S.OVER,
    (S.COMING, E.FAILED): S.OVER,
    (S.GATHERING, E.FAILED): S.OVER,
    (S.QUEUING, E.FAILED): S.OVER,
    (S.HOLDING, E.FAILED): S.OVER,
    (S.LAUNCHED, E.FAILED): S.ABORTING,
    (S.ENDED, E.FAILED): S.OVER,
    (S.ABORTING, E.ENDED): S.OVER,
    (S.ABORTING, E.BROKEN): S.OVER,
}
STATES_OF_MESSAGE: Final[dict[GangMessage, frozenset[State]]] = {
    GangMessage.READY: frozenset({S.GATHERING}),
    GangMessage.TURN: frozenset({S.GATHERING}),
    GangMessage.GRANTED: frozenset({S.HOLDING}),
    GangMessage.GO: frozenset({S.HOLDING}),
    GangMessage.ENDED: frozenset({S.LAUNCHED, S.ENDED}),
    GangMessage.END: frozenset({S.ENDED}),
}
IGNORING_STATES: Final = frozenset({S.ABORTING, S.OVER})  # messages are ignored here
TIMED_STATES: Final = frozenset({S.HOLDING, S.LAUNCHED, S.ABORTING})  # a long wait here is a hang

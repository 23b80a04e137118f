"""The opcodes: the kinds of instructions, and the traits of each that the machine needs.

`TRAITS` is the only table. The scheduler, memory, cancellation and the tools that read traces consult it; apart from it
and the handlers that make instructions, no code compares opcodes. A new opcode is a row here, a handler in
`vm/admission`, its message in `wire/messages` and its rule in the serial engine: docs/architecture.md.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Opcode(StrEnum):
    """Kinds of instructions. The names are OneFlow's where OneFlow has the instruction.

    A FENCE is done when its device has completed all earlier launches made at admission.

    A collective is a group: an ALLOCATE for each result, then the steps, each a MOVE or a MERGE of one chunk, or one
    LAUNCH by a library, and finally one COMPLETE for all, which fails if any of them has.

    A SEND and a RECV are the two halves of a transfer to another node. An EXPECT is done when the other node offers the
    value; only then its RECV gets memory.

    A HOST_CALL calls a function of the client's: for a side effect, or for results, which come back as uploads. With
    results it is done when the client has returned them, and delays only their readers.

    An UPLOAD reads bytes of the host that never change, and only a device sees its effect, so events suffice to order
    later instructions after it.
    """

    CALL = "LocalCallOpKernel"
    TRANSFER = "Transfer"
    COPY = "Copy"
    ACCESS = "AccessBlobByCallback"
    UPLOAD = "Upload"
    HOST_CALL = "HostCall"
    RELEASE = "ReleaseTensor"
    BARRIER = "Barrier"
    WAIT = "Wait"
    RUN = "RunRoutine"
    FENCE = "Fence"
    ALLOCATE = "Allocate"
    MOVE = "MoveChunk"
    MERGE = "MergeChunk"
    LAUNCH = "LaunchCollective"
    COMPLETE = "CompleteCollective"
    SEND = "Send"
    EXPECT = "Expect"
    RECV = "Recv"


class Traits(NamedTuple):
    """The machine's view of an opcode.

    `category`: its name in a timeline. `on_control`: it computes nothing and runs on the driving thread; any other
    instruction runs on the stream that its handler names, or on a compute stream chosen when it is ready.
    `host_visible`: the host sees its effect, so no edge to or from it is ever elided. `holds_memory`: its accesses keep
    buffers alive; those of a mere wait or release must not. `needs_device`: it fails with a lost device. `cancellable`:
    a cancellation of its session may doom it. `copies`: it writes another copy of a version that exists elsewhere, so
    its failure does not harm the version. `covers_session`: it waits for every earlier instruction of its session.
    `tolerant`: it runs although an operand is poisoned, and decides itself which of its results are. `computes`: it
    calls kernels. `exchanges`: it may wait for instructions on several devices, so no edge to or from it is elided: no
    stream waits for something that another device may never do.
    """

    category: str
    on_control: bool = False
    host_visible: bool = False
    holds_memory: bool = True
    needs_device: bool = True
    cancellable: bool = True
    copies: bool = False
    covers_session: bool = False
    tolerant: bool = False
    computes: bool = False
    exchanges: bool = False


TRAITS: dict[Opcode, Traits] = {
    Opcode.CALL: Traits("kernel", computes=True),
    Opcode.TRANSFER: Traits("transfer", copies=True),
    Opcode.COPY: Traits("copy"),
    Opcode.ACCESS: Traits("access", host_visible=True),
    Opcode.UPLOAD: Traits("access"),
    Opcode.HOST_CALL: Traits("callback", host_visible=True),
    Opcode.RELEASE: Traits(
        "release", on_control=True, host_visible=True, holds_memory=False, needs_device=False, cancellable=False
    ),
    Opcode.BARRIER: Traits(
        "barrier",
        on_control=True,
        host_visible=True,
        holds_memory=False,
        needs_device=False,
        cancellable=False,
        covers_session=True,
    ),
    Opcode.RUN: Traits("routine", tolerant=True, computes=True),
    Opcode.FENCE: Traits("fence", holds_memory=False, cancellable=False),
    Opcode.ALLOCATE: Traits("collective"),
    Opcode.MOVE: Traits("collective", exchanges=True),
    Opcode.MERGE: Traits("collective", exchanges=True),
    Opcode.LAUNCH: Traits("collective", exchanges=True),
    Opcode.COMPLETE: Traits("collective", on_control=True, exchanges=True),
    Opcode.SEND: Traits("link", tolerant=True, exchanges=True),
    Opcode.EXPECT: Traits("link", exchanges=True),
    Opcode.RECV: Traits("link", exchanges=True),
    Opcode.WAIT: Traits("wait", on_control=True, host_visible=True, holds_memory=False, needs_device=False),
}

_UNKNOWN = Traits("unknown")
_BY_TEXT: dict[str, Traits] = {opcode.value: traits for opcode, traits in TRAITS.items()}


def traits_of(opcode: str) -> Traits:
    """The traits of an opcode as spelled in records; `_UNKNOWN` for an opcode of another version."""
    return _BY_TEXT.get(opcode, _UNKNOWN)

"""Values that a node sends to itself on the serial engine, through a mailbox. There is no other node.

Messages are executed one by one, so a value must be sent before it is received. A RECV that comes first defines a
tensor with an error; the SEND replaces the error by the value, but results that were computed from the tensor before
keep the error.
"""

from __future__ import annotations

from typing import TypeAlias

from ...interpreter.errors import MetadataError, ProtocolError, TensordError
from ...interpreter.types.device_names import own_name
from ...interpreter.types.meta import Meta
from ...interpreter.wire.node_messages import Recv, Send
from ..admission.node_transfers import NO_NODE, meta_of, received_meta
from .state import SerialState
from .values import SerialSession, SerialTensor, Value, check_new, define, denial, refuse_cancelled, tensor_of

Sent: TypeAlias = tuple[Meta | None, Value]


class SerialNodeTransfers:
    """The handlers of SEND and RECV messages.

    `mailbox`: values that have been sent but not received, by transfer. `awaited`: tensors whose values have not
    been sent. When a session ends, its entries are removed.
    """

    def __init__(self, state: SerialState) -> None:
        self.state = state
        self.mailbox: dict[bytes, tuple[SerialSession, Sent]] = {}
        self.awaited: dict[bytes, tuple[SerialSession, SerialTensor]] = {}

    def check_node(self, node: str) -> None:
        """Raise MetadataError if `node` is not this node."""
        if not self.state.node:
            raise MetadataError(NO_NODE)
        if node != self.state.node:
            raise MetadataError(
                f"the serial engine is a single node: it does not know {node!r}, only {self.state.node}"
            )

    def send(self, session: SerialSession, message: Send) -> None:
        """Put the value, or the error, into the mailbox, or into the tensor that awaits it."""
        try:
            self.check_node(message.node)
        except TensordError as error:
            self.state.deny(session, error, 0, message.location, "send")
            return
        try:
            refuse_cancelled(session)
            tensor = tensor_of(session, message.id)
            sent = (tensor.meta, tensor.value)
        except TensordError as error:
            sent = (None, denial(session, error, message.location, "send"))
            self.state.deny(session, error, 0, message.location, "send")
        waiting = self.awaited.pop(message.transfer, None)
        if waiting is None:
            self.mailbox[message.transfer] = (session, sent)
        else:
            waiting[1].value = fitting(sent, waiting[1].meta)

    def recv(self, session: SerialSession, message: Recv) -> None:
        """Define a tensor with the value that was sent."""
        try:
            self.check_node(message.node)
            refuse_cancelled(session)
            check_new(session, (message.output,))
            meta = received_meta(message)
            home = self.state.device_of(message.device)
        except TensordError as error:
            known = own_name(message.device, self.state.devices)
            at = known if known in self.state.devices else None
            outputs, metas = (message.output,), (meta_of(message),)
            self.state.reject(session, error, outputs, message.location, "recv", metas, at)
            return
        sent = self.mailbox.pop(message.transfer, None)
        missing = ProtocolError("nothing has been sent yet: on the serial engine, send a value before you receive it")
        value = denial(session, missing, message.location, "recv") if sent is None else fitting(sent[1], meta)
        tensor = SerialTensor(value, meta, home)
        define(session, message.output, tensor)
        if sent is None:
            self.awaited[message.transfer] = (session, tensor)

    def close(self, session: SerialSession) -> None:
        """Remove the unfinished transfers of a session that has ended."""
        self.mailbox = {name: one for name, one in self.mailbox.items() if one[0] is not session}
        self.awaited = {name: one for name, one in self.awaited.items() if one[0] is not session}


def fitting(sent: Sent, meta: Meta | None) -> Value:
    """The value that was sent, or an error if its meta is not the expected one."""
    known, value = sent
    if value.array is None or known == meta:
        return value
    return Value(None, (MetadataError(f"a {known} was sent where a {meta} was expected"),))

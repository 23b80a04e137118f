"""The names under which sessions of a serial machine share tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...interpreter.errors import TensordError
from ...interpreter.wire.messages import ListNames, Lookup, Publish, Unpublish
from ...interpreter.wire.names import check_names, unpublished
from .values import SerialSession, SerialTensor, Value, check_new, define, summary, tensor_of, twin

# Answers a request with an error: (session, error, request, location, what was asked for).
Deny = Callable[[SerialSession, TensordError, int, int, str], None]


class Names:
    """The handlers of messages about names. `names`: the published tensors."""

    def __init__(self, names: dict[str, SerialTensor], deny: Deny) -> None:
        self.names = names
        self.deny = deny

    def publish(self, session: SerialSession, message: Publish) -> None:
        """Publish tensors under names."""
        given, ids, request = message
        try:
            check_names(given)
            tensors = [tensor_of(session, id_) for id_ in ids]
        except TensordError as error:
            self.deny(session, error, request, 0, "publish")
            return
        for name, tensor in zip(given, tensors, strict=True):
            tensor.holders += 1
            before = self.names.get(name)
            self.names[name] = tensor
            if before is not None:
                before.holders -= 1
        session.reply(request, None, None)

    def lookup(self, session: SerialSession, message: Lookup) -> None:
        """Define handles to named tensors, or tensors with their present values: all or none."""
        wanted, ids, request, snapshot = message
        try:
            tensors = self.named(wanted)
            check_new(session, ids)
        except TensordError as error:
            self.deny(session, error, request, 0, "lookup")
            return
        if snapshot:
            tensors = [twin(tensor, tensor.home) for tensor in tensors]
        for id_, tensor in zip(ids, tensors, strict=True):
            tensor.holders += not snapshot
            define(session, id_, tensor)
        session.answer(request, Value([summary(tensor) for tensor in tensors]))

    def unpublish(self, session: SerialSession, message: Unpublish) -> None:
        """Remove names, all or none."""
        given, request = message
        try:
            for tensor in self.named(tuple(dict.fromkeys(given))):
                tensor.holders -= 1
        except TensordError as error:
            self.deny(session, error, request, 0, "unpublish")
            return
        for name in dict.fromkeys(given):
            del self.names[name]
        session.reply(request, None, None)

    def list_names(self, session: SerialSession, message: ListNames) -> None:
        """Answer with the published names."""
        session.answer(message.request, Value(sorted(self.names)))

    def named(self, wanted: Sequence[str]) -> list[SerialTensor]:
        """The tensors behind names; MetadataError if one is missing."""
        missing = [name for name in wanted if name not in self.names]
        if missing:
            raise unpublished(missing, self.names)
        return [self.names[name] for name in wanted]

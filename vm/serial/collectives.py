"""Collectives on the serial engine.

It computes the same steps as the virtual machine, so results are equal bit by bit.
"""

from __future__ import annotations

from ...interpreter.collectives.request import check_ranks, resolve_request
from ...interpreter.collectives.values import compute
from ...interpreter.errors import MetadataError, TensordError
from ...interpreter.types.device_names import own_name
from ...interpreter.wire.node_messages import Collective
from .state import SerialState
from .values import SerialSession, SerialTensor, Value, check_new, define, refuse_cancelled, tensor_of


class SerialCollectives:
    """The handler of COLLECTIVE messages."""

    def __init__(self, state: SerialState) -> None:
        self.state = state

    def collective(self, session: SerialSession, message: Collective) -> None:
        """Compute the results. An error of one operand becomes an error of all results."""
        kind, ids, outputs, devices, attributes, location = message[:6]
        try:
            refuse_cancelled(session)
            check_new(session, outputs)
            if message.homes or not ids:
                raise MetadataError(f"{kind}: the serial engine is a single machine, and needs a tensor", op=kind)
            check_ranks(kind, len(ids), len(outputs), len(self.state.devices))
            tensors = [tensor_of(session, id_) for id_ in ids]
            devices = [own_name(name, self.state.devices) for name in devices]
            homes, metas = [one.home for one in tensors], [one.meta for one in tensors]
            _, given, homes = resolve_request(kind, homes, metas, devices, attributes, len(outputs))
            for name in homes:
                self.state.device_of(name)
        except TensordError as error:
            self.state.reject(session, error, outputs, location, kind)
            return
        self.state.ids += 1
        read = [tensor.value for tensor in tensors]
        errors = tuple(dict.fromkeys(error for value in read for error in value.errors))
        failed = any(value.array is None for value in read)
        made = [None] * len(outputs) if failed else compute(given, [value.array for value in read])
        for id_, meta, home, array in zip(outputs, given.outputs(), homes, made, strict=True):
            define(session, id_, SerialTensor(Value(array, errors), meta, home))

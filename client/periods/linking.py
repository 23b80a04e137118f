"""A period as a program, and the messages that make a routine of it.

The numbers and the tensors from outside become parameters; new tensors that are still used become results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...interpreter.errors import MetadataError
from ...interpreter.programs.builder import Builder
from ...interpreter.programs.numbers import PARAMETER
from ...interpreter.programs.program import Program
from ...interpreter.programs.records import wire_records
from ...interpreter.types.meta import Meta
from ...interpreter.wire.messages import Message, NamedMessage, Query, Release, encode_message
from ...interpreter.wire.metas import decode_meta
from ...interpreter.wire.program_messages import Link, ProgramPart
from ..outbox.outbox import Outbox
from ..transport.replies import Reply
from .history import line_in
from .period import ATTRIBUTES, DEVICE, METAS, NUMBER, OP, TARGETS, Period, Results, Signatures

RECORDS_PER_MESSAGE = 64  # records of a program in one message


class LinkedPeriod:
    """A routine of the session: a period's program with these results. `is_ready` once the machine has accepted it."""

    __slots__ = ("_reply", "id", "results")

    def __init__(self, id_: int, results: Results, reply: Reply) -> None:
        self.id = id_
        self.results = results
        self._reply = reply

    @property
    def is_ready(self) -> bool:
        """Return whether it can be run. The machine refuses a routine that exceeds the session's quotas."""
        return self._reply.done and self._reply.error is None


def link(
    outbox: Outbox, period: Period, results: Results, signatures: Signatures
) -> tuple[LinkedPeriod, list[list[Any]]]:
    """A routine of a period, and the messages that make it, which are sent last. The caller holds the lock."""
    program, devices = PeriodBuilder(period, signatures).program(results)
    program_id, records = outbox.new_id(), list(wire_records(program))
    parts = [
        ProgramPart(program_id, records[n : n + RECORDS_PER_MESSAGE])
        for n in range(0, len(records), RECORDS_PER_MESSAGE)
    ]
    id_ = outbox.new_id()
    number, reply = outbox.transport.request()
    link = Link(id_, program_id, tuple(devices), (), line_in(period.form.tokens[0]), period.name)
    messages: list[NamedMessage] = [*parts, link, Release((program_id,)), Query("routine", (id_,), number)]
    outbox.transport.attend(reply)
    return LinkedPeriod(id_, results, reply), [encode_message(message) for message in messages]


class PeriodBuilder:
    """Makes the program of a period. Raises the errors of `Builder`, and MetadataError for shapes that depend on
    data."""

    def __init__(self, period: Period, signatures: Signatures) -> None:
        self._form = period.form
        self._positions = period.positions
        self._signatures = signatures
        self._builder = Builder()
        self._devices: dict[str, int] = {}
        self._variables: dict[int, int] = {}  # first position -> variable
        self._numbers: dict[int, int] = {}  # position -> slot
        self._add_sources()
        for token, (number, operands, outputs) in zip(period.form.tokens, period.form.positions(), strict=True):
            self._add(line_in(token), signatures[number], operands, outputs)

    def program(self, results: Results) -> tuple[Program, Sequence[str]]:
        """The program that returns these of the new tensors, and the devices of its slots."""
        newest, variables = self._builder.newest, self._variables
        made = zip(self._positions.made, results, strict=True)
        program = self._builder.finish([newest[variables[position]] for position, returned in made if returned])
        if not all(type(meta) is Meta for meta in program.metas):
            raise MetadataError("the shape of a value depends on data")
        return program, list(self._devices)

    def _add_sources(self) -> None:
        """Add the parameters, with the metas in the first calls that use them."""
        sources: dict[int, tuple[Any, str]] = {}
        for number, operands, outputs in self._form.positions():
            signature = self._signatures[number]
            device, metas = signature[DEVICE], zip(operands, signature[METAS], strict=True)
            for position, meta in (*metas, *zip(outputs, signature[TARGETS] or (), strict=False)):
                if self._form.first[position] == NUMBER:
                    self._numbers[position] = self._builder.number(meta, PARAMETER)
                else:
                    sources.setdefault(position, (meta, device))
        for position in self._positions.outside:
            wire, device = sources[position]
            meta = decode_meta(wire)
            if not isinstance(meta, Meta):
                raise MetadataError("the shape of a tensor from outside depends on data")
            self._variables[position] = self._builder.parameter(meta, self._slot(device))

    def _add(self, line: int, signature: Message, operands: range, outputs: range) -> None:
        given = [
            ~self._numbers[position] if position in self._numbers else self._value(position) for position in operands
        ]
        into = None if signature[TARGETS] is None else [self._value(position) for position in outputs]
        device = self._slot(signature[DEVICE])
        made = self._builder.op(signature[OP], given, dict(signature[ATTRIBUTES]), device, into, line)
        if into is None:
            self._variables.update(zip(outputs, made, strict=True))

    def _value(self, position: int) -> int:
        """The newest value of the tensor at a position."""
        return self._builder.newest[self._variables[self._form.first[position]]]

    def _slot(self, device: str) -> int:
        return self._devices.setdefault(device, len(self._devices))

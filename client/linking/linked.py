"""A linked program: a routine of the machine, which one message runs, and the report of its compiled form.

The routine is linked when the object is made, and released when the object is dropped. Results have ids and metas
before the run ends, as those of an op.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from ...interpreter.concurrency.finalisers import FINALISER, NOTHING
from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.errors import MetadataError
from ...interpreter.programs.passes.table import ALL
from ...interpreter.programs.program import HOST_CALL, PRINT, Program, Step, effects_of
from ...interpreter.programs.records import wire_records
from ...interpreter.types.meta import Scalar
from ...interpreter.types.sizes import size
from ...interpreter.wire.locations import MAX_SPAN_NAME_LENGTH
from ...interpreter.wire.message_kinds import RUN
from ...interpreter.wire.messages import encode_message
from ...interpreter.wire.program_messages import Link, ProgramPart
from ..core.core import Core
from ..locations.locations import located
from ..outbox.callbacks import refusing
from ..requests.printing import line_of
from ..tensor.reading import forget
from ..tensor.tensor import Tensor
from ..transport.host_functions import HostFunction
from ..transport.outgoing import AtLine
from ..transport.replies import Reply
from ..waiting.steps import Steps


class Report(dict[str, Any]):
    """The report as a dict; as text, for people.

    `ops`: of the program; `passes`: the effect of each pass: the number of ops, calls, values or bytes `before` and
    `after`; `without_passes`: runs that could not use the program after passes. All else describes the program after
    passes. `pieces`: its parts in order: each is a segment, which is one instruction, or a single step with the reason
    (`why`), and with the pieces of each of its `blocks` if it is control flow. A segment has its device, the number of
    calls, the bytes of its arena, the steps of each fusion, which are computed together, on a GPU the `graph` of its
    launches (nodes, copies, bytes, or `why` there is none), the number of runs that went op by op and why
    (`turned_away`), and, if requested, its generated `kernels`. `values`: the memory mode of each value ("virtual",
    "local", "on device") and why; `metas`: the meta of each.
    """

    def __str__(self) -> str:
        lines = [f"{self['ops']} ops on {', '.join(self['devices'])}, program {self['program'][:12]}"]
        lines += [pass_line(row) for row in self["passes"] if row["changed"]]
        if self["without_passes"]:
            lines.append(f"  {self['without_passes']} runs without passes, as their tensors did not allow them")
        lines += [f"  {name}: constant, as at the capture" for name in self.get("constants", ())]
        lines += self._compiled() if self["compiled"] else ["not compiled yet: the first run goes op by op"]
        return "\n".join(lines)

    def _compiled(self) -> Iterator[str]:
        pieces = self["pieces"]
        segments = [piece for piece in pieces if piece["how"] == "segment"]
        arena = size(sum(piece["arena"] for piece in segments))
        yield f"{len(segments)} segments, {len(pieces) - len(segments)} steps by themselves, {arena} of arena"
        for piece in pieces:
            yield from (f"  {line}" for line in piece_lines(piece))
        for value, ((mode, why), meta) in enumerate(zip(self["values"], self["metas"], strict=True)):
            yield f"  %{value} {meta}: {mode}, {why}"


def piece_lines(piece: Mapping[str, Any]) -> Iterator[str]:
    """The lines of one piece."""
    steps = f"steps {piece['first']} to {piece['last']}"
    if piece["how"] == "segment":
        fusions = "".join(f", fusion of {len(fusion)} steps" for fusion in piece["fusions"])
        away = "".join(f", {count} runs op by op: {why}" for why, count in sorted(piece["turned_away"].items()))
        yield f"{steps} on {piece['device']}: {piece['calls']} calls{fusions}{graph_text(piece['graph'])}{away}"
        yield from kernel_lines(piece.get("kernels", ()))
        return
    yield f"{steps}: {piece['how']} {piece['op']}".rstrip() + (f": {piece['why']}" if piece.get("why") else "")
    for number, pieces in enumerate(piece.get("blocks", ())):
        yield f"  block {number}:" if pieces else f"  block {number}: not compiled yet"
        yield from (f"    {line}" for inner in pieces for line in piece_lines(inner))


def kernel_lines(kernels: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The sources of generated kernels."""
    for kernel in kernels:
        state = "compiled" if kernel["compiled"] else "not compiled, so the steps run one by one"
        yield f"kernel of steps {', '.join(map(str, kernel['steps']))}, {state}:"
        yield from (f"  {line}" for line in kernel["source"].splitlines())


def graph_text(graph: Mapping[str, Any]) -> str:
    """`, a graph of 34 nodes with 2.0 KiB`, or why there is none; empty if the device makes no graphs."""
    if "why" in graph:
        return f", no graph: {graph['why']}"
    return f", a graph of {graph['nodes']} nodes with {size(graph['bytes'])}" if graph else ""


def pass_line(row: Mapping[str, Any]) -> str:
    """`  dead_results: 34 to 31 ops`."""
    before, after, of = row["before"], row["after"], row["of"]
    if before == after:
        return f"  {row['pass']}: {before} {of}, changed"
    if of == "bytes":
        return f"  {row['pass']}: {size(before)} to {size(after)}"
    return f"  {row['pass']}: {before} to {after} {of}"


PENDING_SIZE: Final = 1 << 20  # the assumed number of elements of a value whose shape depends on data
RECORDS_PER_MESSAGE: Final = 64  # records of a program


class Bindings(NamedTuple):
    """The bindings of a program: a device for each of its slots, the tensors that it captures, and chains and callbacks
    of its side effects, by slot."""

    devices: Sequence[str]
    captured: Sequence[Tensor] = ()
    chains: Sequence[int] = ()
    callbacks: Sequence[Callable[..., None]] = ()


class ProgramBinding:
    """A program with its bindings. It keeps the tensors that it captures alive.

    `name`: shown in records; `passes`: the passes that may change the program. Dropping the object releases the
    routine.
    """

    def __init__(
        self, core: Core, program: Program, bindings: Bindings, name: str = "", passes: Sequence[str] = (ALL,)
    ) -> None:
        devices, captured, chains, callbacks = bindings
        self.name = shown_name(name)
        self.lines: set[int] = set()  # the numbers of its lines
        self.passes = tuple(passes)
        self.program = program
        self.devices = tuple(devices)
        self.captured = tuple(captured)
        self._core = core
        self._id = 0  # set first, so that the object can be dropped at any time
        self._written = program.written
        chain_number = core.effects.chain_number
        self.chains = tuple([chain_number(chains[n] if n < len(chains) else None) for n in range(program.chains)])
        self.callbacks = tuple(callbacks)
        self._results = tuple((program.metas[value], self.devices[program.homes[value]]) for value in program.results)
        self._effects = tuple((step.op, *self._effect(step, depth > 0)) for step, depth in effects_of(program))
        self._inner_count = program.inner  # each run numbers that many inner values
        self._is_data_dependent = program.is_data_dependent
        self._heavy = work_of(program) > core.outbox.transport.inline_work
        self._drop: Callable[[], object] = NOTHING
        self._id = self._link(core)

    def _link(self, core: Core) -> int:
        """Send the program and link it; returns the routine's id."""
        outbox = core.outbox
        with outbox.lock, SHIELD:
            program_id, location = outbox.new_id(), outbox.locations.here(3)
            try:
                records = self._records()
                for start in range(0, len(records), RECORDS_PER_MESSAGE):
                    outbox.messages.append(
                        encode_message(ProgramPart(program_id, records[start : start + RECORDS_PER_MESSAGE]))
                    )
                id_ = outbox.new_id()
                ids = tuple([tensor._id for tensor in self.captured])
                outbox.captured.update(ids)
                link = Link(id_, program_id, self.devices, ids, location, self.name, self.passes)
                outbox.messages.append(encode_message(link))
                self._drop = partial(outbox.release, id_)
            finally:  # a full group takes only a part of a program
                outbox.release(program_id)
        outbox.appended()
        return id_

    def _effect(self, step: Step, repeats: bool) -> tuple[int, AtLine]:
        """The chain and the callback of a step that prints or calls back. `repeats`: it may do so several times."""
        attributes = dict(step.attributes)
        if step.op == HOST_CALL:
            chain = self._core.effects.chain_of_host_calls() if repeats else 0
            return chain, AtLine(self._function(step, attributes["callback"]), step.location, repeats=repeats)
        chain = self.chains[attributes["chain"]]
        if step.op == PRINT:
            callback = line_of(attributes["parts"], attributes["sep"])
        else:
            callback = refusing(self._core.outbox, self.callbacks[attributes["callback"]])
        return chain, AtLine(callback, step.location, repeats=repeats)

    def _function(self, step: Step, number: int) -> HostFunction:
        """The function of a host call."""
        function = self.callbacks[number]
        if isinstance(function, HostFunction):
            return function
        metas = [meta for meta in step.results if meta is not None]
        return HostFunction(function, metas, many=len(metas) > 1, loop=self._core.loop)

    def _records(self) -> list[tuple[Any, ...]]:
        """The program's records, with numbers for its lines. The caller holds the outbox's lock."""
        numbers: dict[Any, int] = {None: 0}
        locations = self._core.outbox.locations

        def number(text: Any) -> int:
            if text not in numbers:
                numbers[text] = locations.numbered(text, self)
            return numbers[text]

        return list(wire_records(self.program, number))

    def run(self, inputs: Sequence[Tensor], numbers: Sequence[Scalar] = ()) -> list[Tensor]:
        """Issue one run; returns its results. `inputs` fit the program's parameters; `numbers` has a value for each
        number."""
        core = self._core
        outbox = core.outbox
        if self._is_data_dependent and outbox.is_inside():
            message = "control flow waits for values, which an atomic block does not: take it outside of the block"
            raise located(MetadataError(message))
        if self._heavy:
            outbox.make_way()
        prints: list[Reply] = []
        with outbox.lock, SHIELD:
            location = outbox.locations.here(2)
            for value in self._written:
                forget(inputs[value] if value < len(inputs) else self.captured[value - len(inputs)])
            first = outbox.ids + self._inner_count + 1
            outbox.ids = first + len(self._results) - 1
            ids = tuple(range(first, first + len(self._results)))
            given = tuple([tensor._id for tensor in inputs])
            effects = self._requested(prints) if self._effects else ()
            outbox.messages.append([RUN, self._id, given, tuple(numbers), ids, effects, location])
            for reply in prints:
                core.printing.expect(reply, core)
            made = [Tensor(core, id_, meta, home) for id_, (meta, home) in zip(ids, self._results, strict=True)]
        outbox.appended()
        return made

    def reporting(self, *, source: bool = False) -> Steps[Report]:
        """The report; `source`: with the source of generated kernels."""
        asked = (self._id, True) if source else (self._id,)
        return Report((yield self._core.answers.ask("routine", *asked)))

    def _requested(self, prints: list[Reply]) -> tuple[tuple[int, AtLine, int], ...]:
        """Chain, callback and request of each side effect. The replies of prints are added to `prints`."""
        requested = []
        for op, chain, callback in self._effects:
            request = 0
            if op == PRINT:
                request, reply = self._core.outbox.transport.request()
                prints.append(reply)
            requested.append((chain, callback, request))
        return tuple(requested)

    __del__ = FINALISER


def shown_name(name: str) -> str:
    """A name as records show it: the end of a long name, without enclosing functions."""
    short = name.replace("<locals>.", "")
    return "".join(letter if letter.isprintable() else "_" for letter in short[-MAX_SPAN_NAME_LENGTH:])


def work_of(program: Program) -> int:
    """The estimated work of a run, in element operations."""
    metas = [meta for step in program.steps for meta in step.results]
    return sum(PENDING_SIZE if meta is None else meta.size for meta in metas)

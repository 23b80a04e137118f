"""Runs a program through the client's surface, on a virtual machine with its threads."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import ExitStack, redirect_stdout
from io import StringIO
from typing import Any, NamedTuple

import numpy as np

import tensord
from tensord.client.linking.linked import Bindings, ProgramBinding
from tensord.client.tensor.tensor import Tensor
from tensord.interpreter.errors import TensordError
from tensord.interpreter.programs import program as programs
from tensord.interpreter.programs.numbers import PARAMETER
from tensord.interpreter.programs.program import EFFECT, PRINT, effects_of
from tensord.interpreter.programs.records import RecordsReader, wire_records
from tensord.interpreter.types.meta import Meta
from tensord.vm.serial.values import Value

from .check import compare_chain, kind_of, same
from .expected import Expected, expected_of
from .host_calls import function_of
from .issued import Function, Issuing
from .steps import CAPTURED, FLOW_EFFECTS, ISSUED, LINKED, ROUTINE, SEED, Program, Routine, Step, runs, shares

Answer = tuple[Any, TensordError | None]
BROUGHT = 4  # in one of this many programs, results are brought to the host early


def devices_of(program: Program) -> list[dict[str, object]]:
    """The world's devices, slowed down by the seed."""
    rng, world = random.Random(program.seed), program.world
    specs: list[dict[str, object]] = [{"name": "cpu:0", "workers": world.workers}]
    for name in world.devices[1:]:
        delays = {"latency": rng.choice((0.0, 1e-4)), "compute_delay": rng.choice((0.0, 1e-4))}
        streams = {"compute_streams": world.compute_streams, "peer": world.peer, "inline": world.inline}
        kind = {"late_errors": name in world.late, "launches": name in world.launches}
        specs.append({"name": name, **delays, **streams, **kind})
    return specs


class Clients:
    """The sessions of one run and their handles, by the ids that the program gives them.

    A real client learns the shape of each value that it reads; the program's client only by a step "await".
    """

    def __init__(
        self, program: Program, address: str, connect: Any = tensord.connect, expected: Expected | None = None
    ) -> None:
        specs = devices_of(program)
        self.expected = expected or expected_of(program)
        self.sessions = [connect(address, devices=specs) for _ in range(program.world.sessions)]
        self.handles: list[dict[int, Tensor]] = [{} for _ in self.sessions]
        self.chains: dict[tuple[int, int], int] = {}
        self.routines: dict[tuple[int, int], Function] = {}  # by session and key
        self.closed: set[int] = set()
        self.turn = 0  # the session whose step was the last one
        self.read: dict[tuple[int, int], Answer] = {}
        self.asked: dict[int, tuple[int, ...]] = {}
        self.effects: list[tuple[tuple[int, int], int, tuple[Any, ...]]] = []
        self.printed = Lines()
        self.in_order = runs(program) and shares(program)
        for session in self.sessions:
            session.random.seed(SEED)

    def run(self, program: Program) -> list[str]:
        """Run every step; return the problems."""
        with redirect_stdout(self.printed), ExitStack() as blocks:
            for session in self.sessions if program.seed % BROUGHT == 0 else ():
                blocks.enter_context(session.host_results())
            for step in program.steps:
                self.turn_to(step.session)
                self.do(self.sessions[step.session], self.handles[step.session], step)
            blocks.close()
            for session in self.open_sessions():
                session.sync()  # otherwise the session's end would cancel side effects that no read has waited for
        trace = next(self.open_sessions()).trace()
        self.handles.clear()
        self.routines.clear()
        for session in self.sessions:
            session.close()
        wrong = [f"trace: {problem}" for problem in trace.verify()]
        labels = labels_of(program)
        return [*wrong, *self.compare_reads(), *self.compare_effects(labels), *self.compare_prints(labels)]

    def open_sessions(self) -> Iterator[Any]:
        return (session for number, session in enumerate(self.sessions) if number not in self.closed)

    # -- steps -----------------------------------------------------------------------------------------------------

    def turn_to(self, number: int) -> None:
        """Begin a step of a session: the steps of the last session come before it in program order."""
        if number != self.turn and self.turn not in self.closed:
            self.settle(self.sessions[self.turn])
        self.turn = number

    def settle(self, session: Any) -> None:
        """Send the session's messages. If sessions share tensors, wait until messages after a run are admitted, too."""
        session.flush()
        if self.in_order:
            attempt(session.names)

    def do(self, session: Any, handles: dict[int, Tensor], step: Step) -> None:
        kind = f"{step.kind}_" if step.kind in {"await", "RUN"} else step.kind
        getattr(self, kind.lower())(session, handles, step)

    def atomic(self, session: Any, handles: dict[int, Tensor], step: Step) -> None:
        with session.atomic():
            for inner in step.fields:
                self.do(session, handles, inner)

    def call(self, session: Any, handles: dict[int, Tensor], step: Step) -> None:
        op, attributes, metas, device, targets, inputs, outputs, released = step.fields
        operands = [x if isinstance(m, type) else handles[x] for x, m in zip(inputs, metas, strict=True)]
        out = None if targets is None else [handles[id_] for id_ in outputs]
        made = session.call(op, operands, dict(attributes), out=out, device=device)
        if out is None:
            handles.update(zip(outputs, made, strict=True))
        for position, id_ in enumerate((*inputs, *outputs)):
            if released >> position & 1:
                del handles[id_]

    def upload(self, session: Any, handles: dict[int, Tensor], step: Step) -> None:
        id_, array, device = step.fields
        handles[id_] = session.asarray(array, device=device)

    def to_device(self, _session: Any, handles: dict[int, Tensor], step: Step) -> None:
        id_, new, device = step.fields
        handles[new] = handles[id_].to_device(device)

    def hint(self, _session: Any, handles: dict[int, Tensor], step: Step) -> None:
        id_, what, device = step.fields
        if what == "prefetch":
            handles[id_].prefetch(device or None)
        else:
            getattr(handles[id_], what)()

    def release(self, _session: Any, handles: dict[int, Tensor], step: Step) -> None:
        for id_ in step.fields[0]:
            del handles[id_]

    def fetch(self, _session: Any, handles: dict[int, Tensor], step: Step) -> None:
        tensor = handles[step.fields[0]]
        self.asked[step.number] = (step.fields[0],)
        known: Meta | None = tensor._meta
        self.read[step.session, step.number] = attempt(tensor.numpy)
        tensor._meta = known

    def wait(self, _session: Any, handles: dict[int, Tensor], step: Step) -> None:
        self.asked[step.number] = step.fields[0]
        for tensor in [handles[id_] for id_ in step.fields[0]]:
            known: Meta | None = tensor._meta
            attempt(tensor.wait)
            tensor._meta = known

    def await_(self, _session: Any, handles: dict[int, Tensor], step: Step) -> None:
        if step.fields[0] in self.asked:
            attempt(lambda: handles[self.asked[step.fields[0]][0]].shape)

    def sync(self, session: Any, _handles: dict[int, Tensor], _step: Step) -> None:
        session.sync()

    def chain(self, session: Any, _handles: dict[int, Tensor], step: Step) -> None:
        chain, own = step.fields
        if not own:
            self.chains[step.session, chain] = session.chain()

    def effect(self, session: Any, handles: dict[int, Tensor], step: Step) -> None:
        ids, chain, _ = step.fields
        session.effect(self.callback(step), *[handles[id_] for id_ in ids], chain=self.chains[step.session, chain])

    def hostcall(self, session: Any, handles: dict[int, Tensor], step: Step) -> None:
        ids, outputs, metas, device, way = step.fields
        function = function_of(metas, way)
        made = session.host_call(function, *[handles[id_] for id_ in ids], result=list(metas), device=device)
        handles.update(zip(outputs, made, strict=True))

    def callback(self, step: Step) -> Callable[..., None]:
        _, chain, raises = step.fields
        return self.noting(step.session, chain, step.number, raises)

    def noting(self, session: int, chain: int, number: int, raises: bool) -> Callable[..., None]:
        """A callback that notes its arguments."""

        def callback(*arrays: Any) -> None:
            self.effects.append(((session, chain), number, tuple(array.copy() for array in arrays)))
            if raises:
                raise ValueError("the callback failed")

        return callback

    def run_(self, session: Any, handles: dict[int, Tensor], step: Step) -> None:
        routine, _, inner, inputs, numbers, renamed, released = step.fields
        callbacks = [self.callback(one) for one in inner if one.kind == "EFFECT"]
        run = self.routine(session, handles, step, dict(enumerate(callbacks)))
        numbers = parameters_of(routine.program, numbers) if routine.obtained else numbers
        made = run([handles[id_] for id_ in inputs], numbers)
        handles.update(zip([output for _, output in renamed], made, strict=True))
        for id_ in released:
            del handles[id_]

    def flow(self, session: Any, handles: dict[int, Tensor], step: Step) -> None:
        routine, _, inputs, numbers, outputs, effects = step.fields
        callbacks = {
            dict(one.attributes)["callback"]: self.noting(step.session, *effect)
            for (one, _), effect in zip(effects_of(routine.program), effects, strict=True)
            if one.op == EFFECT
        }
        run = self.routine(session, handles, step, callbacks)
        if routine.way != LINKED or routine.obtained:
            numbers = parameters_of(routine.program, numbers)
        made = run([handles[id_] for id_ in inputs], numbers)
        handles.update(zip(outputs, made, strict=True))

    def routine(
        self, session: Any, handles: dict[int, Tensor], step: Step, callbacks: dict[int, Callable[..., None]]
    ) -> Function:
        """The function that runs a step's routine: a new one for each run with callbacks, which belong to one run."""
        routine: Routine = step.fields[ROUTINE]
        key = (step.session, routine.key)
        if key not in self.routines or callbacks:
            chains = self.chains_of(step.session)
            captured = [handles[id_] for id_ in routine.captured]
            if routine.way == LINKED:
                functions = [callbacks.get(n, nothing) for n in range(1 + max(callbacks, default=0))]
                program = with_texts(routine.program)
                bindings = Bindings(routine.devices, captured, chains, functions)
                self.routines[key] = ProgramBinding(session._core, program, bindings).run
            else:
                function = Issuing(session, routine, chains, callbacks).whole(captured)
                self.routines[key] = function if routine.way == ISSUED else session.routine(function)
        return self.routines[key]

    def chains_of(self, session: int) -> list[int]:
        """The chains that a session has made, in that order."""
        return [chain for (number, _), chain in self.chains.items() if number == session]

    def offer(self, session: Any, handles: dict[int, Tensor], step: Step) -> None:
        name, routine, _, inputs, numbers = step.fields
        captured = [handles[id_] for id_ in routine.captured]
        if routine.way == CAPTURED:
            function = Issuing(session, routine, self.chains_of(step.session), {}).whole(captured)
            made = session.routine(function).link([handles[id_] for id_ in inputs], list(numbers))
        else:
            names = [source.name for source in routine.program.captured]
            devices = {f"d{slot}": device for slot, device in enumerate(routine.devices)}
            tensors = dict(zip(names, captured, strict=True))
            made = session.link(with_texts(routine.program), devices=devices, tensors=tensors)
        session.publish(name, made)

    def obtain(self, session: Any, _handles: dict[int, Tensor], step: Step) -> None:
        name, routine, snapshot = step.fields
        found = session.lookup(name, snapshot=snapshot)
        names = [n.name or f"n{slot}" for slot, n in enumerate(routine.program.numbers) if n.op == PARAMETER]

        def run(inputs: Sequence[Tensor], numbers: Sequence[Any]) -> list[Tensor]:
            if routine.way == CAPTURED:
                return list(found(inputs, numbers))
            return list(found(*inputs, **dict(zip(names, numbers, strict=True))))

        self.routines[step.session, routine.key] = run

    def forget(self, _session: Any, _handles: dict[int, Tensor], step: Step) -> None:
        self.routines.pop((step.session, step.fields[0]), None)

    def publish(self, session: Any, handles: dict[int, Tensor], step: Step) -> None:
        session.publish(step.fields[0][0], handles[step.fields[1][0]])

    def lookup(self, session: Any, handles: dict[int, Tensor], step: Step) -> None:
        (name,), (id_,), snapshot = step.fields
        tensor, error = attempt(lambda: session.lookup(name, snapshot=snapshot))
        if error is None:
            handles[id_] = tensor

    def unpublish(self, session: Any, _handles: dict[int, Tensor], step: Step) -> None:
        session.unpublish(*step.fields[0])

    def names(self, session: Any, _handles: dict[int, Tensor], step: Step) -> None:
        self.read[step.session, step.number] = (session.names(), None)

    def cancel(self, session: Any, _handles: dict[int, Tensor], _step: Step) -> None:
        self.settle(session)  # a cancellation overtakes unsent messages, but the program's comes after them
        session.cancel()

    def restart(self, session: Any, _handles: dict[int, Tensor], _step: Step) -> None:
        session.restart()

    def close(self, session: Any, handles: dict[int, Tensor], step: Step) -> None:
        self.closed.add(step.session)
        self.settle(session)
        handles.clear()
        session.close()

    # -- answers ---------------------------------------------------------------------------------------------------

    def compare_reads(self) -> list[str]:
        wrong = []
        for (number, request), (value, error) in self.read.items():
            wanted: Value = self.expected.sessions[number].answers[request]
            possible = {(kind_of(e), e.op) for e in wanted.errors}
            if error is None and (wanted.array is None or not same(wanted.array, value)):
                wrong.append(f"session {number}, step {request}: {value!r}, expected {wanted.array!r} or {possible}")
            if error is not None and not is_possible(error, possible):
                wrong.append(f"session {number}, step {request}: {error!r}, expected {wanted.array!r} or {possible}")
        return wrong

    def compare_effects(self, prints: Container[int]) -> list[str]:
        wrong = []
        happening = [effect for effect in self.expected.encoder.effects if effect[2] not in prints]
        for key in {key for key, _, _ in self.effects} | {effect[:2] for effect in happening}:
            wanted = [effect[2:] for effect in happening if effect[:2] == key]
            found = [(number, arrays) for chain, number, arrays in self.effects if chain == key]
            answers = self.expected.sessions[key[0]].answers
            wrong += compare_chain({n for n, _ in wanted if not answers[n].errors}, wanted, found, str(key))
        return wrong

    def compare_prints(self, labels: Mapping[int, str]) -> list[str]:
        """The steps that print whose certain lines are missing or out of order, or that print an impossible line."""
        wanted: dict[str, list[Line]] = {label: [] for label in labels.values()}
        for session, chain, number, arrays in self.expected.encoder.effects:
            if number in labels:
                sure = not self.expected.sessions[session].answers[number].errors
                wanted[labels[number]].append(Line((session, chain), " ".join(map(str, arrays)), sure))
        found = self.printed.by_label()
        wrong = [f"no step prints lines that begin with {label}" for label in found.keys() - wanted.keys()]
        return wrong + [
            f"print {label}: {each}" for label in wanted for each in compare_lines(wanted[label], found[label])
        ]


class Line(NamedTuple):
    """An expected line: the session and chain that print it, its text, and whether it is certain."""

    chain: tuple[int, int]
    text: str
    sure: bool


class Lines(StringIO):
    """Replaces the standard output: stores each line that is written."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def write(self, text: str) -> int:
        self.lines.append(text.removesuffix("\n"))
        return len(text)

    def by_label(self) -> defaultdict[str, list[str]]:
        """The written lines by their first word, without that word; "an error" for each error."""
        found = defaultdict(list)
        for line in self.lines:
            label, _, text = line.partition(" ")
            found[label].append("an error" if text.startswith("<") else text)
        return found


def labels_of(program: Program) -> dict[int, str]:
    """For the number of each print of a run with control flow, the first word of its lines."""
    return {
        number: str(one.location)
        for step in program.steps
        if step.kind == "FLOW"
        for (one, _), (_, number, _) in zip(
            effects_of(step.fields[ROUTINE].program), step.fields[FLOW_EFFECTS], strict=True
        )
        if one.op == PRINT
    }


def compare_lines(wanted: list[Line], found: list[str]) -> list[str]:
    """The problems with the lines of one step. If several chains print them, any order is right."""
    if len({line.chain for line in wanted}) > 1:
        return compare_unordered(wanted, Counter(found))
    rest = iter(wanted)
    for text in found:
        for line in rest:
            if line.text == text or (text == "an error" and not line.sure):
                break
            if line.sure:
                return [f"the line {text!r}; expected {line.text!r}"]
        else:
            return [f"the line {text!r} was not expected there"]
    return [f"the line {line.text!r} is missing" for line in rest if line.sure]


def compare_unordered(wanted: list[Line], found: Counter[str]) -> list[str]:
    """The same for lines in any order."""
    missing = []
    for line in sorted(wanted, key=lambda line: not line.sure):
        if found[line.text]:
            found[line.text] -= 1
        else:
            missing.append(line)
    found["an error"] -= sum(not line.sure for line in missing)
    wrong = [f"the line {line.text!r} is missing" for line in missing if line.sure]
    return wrong + [f"the line {text!r} was not expected" for text in +found]


def parameters_of(program: programs.Program, numbers: Sequence[Any]) -> list[Any]:
    """The numbers of a run that are parameters."""
    return [value for number, value in zip(program.numbers, numbers, strict=True) if number.op == PARAMETER]


def with_texts(program: programs.Program) -> programs.Program:
    """The program with texts in the place of the numbers of its lines, as clients have them."""
    reader = RecordsReader()
    found = [reader.add(record) for record in wire_records(program, lambda line: f"step {line}")]
    assert found[-1] is not None
    return found[-1]


def nothing(*_arrays: Any) -> None:
    """The callback in a slot that no step calls."""


def is_possible(error: TensordError, possible: set[tuple[str, str | None]]) -> bool:
    """Whether the error is one of the possible ones. Any cancelled instruction may be the first."""
    kind = kind_of(error)
    return (kind, error.op) in possible or (kind == "CancelledError" and any(k == kind for k, _ in possible))


def attempt(action: Any) -> Answer:
    """The result of an action, or its error."""
    try:
        result = action()
    except TensordError as error:
        return None, error
    return (np.array(result) if isinstance(result, np.ndarray) else result), None

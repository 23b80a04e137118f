"""Runs a program through the client's surface, on a virtual machine with its threads."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import tensord
from tensord.client.routines.linked import Linked
from tensord.client.tensor import Tensor
from tensord.interpreter.errors import TensordError
from tensord.interpreter.types.meta import Meta
from tensord.vm.serial.values import Value

from .check import Expected, compare_chain, kind_of, same
from .steps import Program, Step

Answer = tuple[Any, TensordError | None]


def devices_of(program: Program) -> list[dict[str, object]]:
    """The world's devices, slowed down by the seed."""
    rng, world = random.Random(program.seed), program.world
    specs: list[dict[str, object]] = [{"name": "cpu:0", "workers": world.workers}]
    for name in world.devices[1:]:
        delays = {"latency": rng.choice((0.0, 1e-4)), "compute_delay": rng.choice((0.0, 1e-4))}
        streams = {"compute_streams": world.compute_streams, "peer": world.peer, "inline": world.inline}
        specs.append({"name": name, **delays, **streams, "late_errors": name in world.late})
    return specs


class Clients:
    """The sessions of one run and their handles, by the ids that the program gives them.

    A real client learns the shape of what it reads; the program's does so only where it says so ("await").
    """

    def __init__(self, program: Program, address: str, connect: Any = tensord.connect) -> None:
        specs = devices_of(program)
        self.expected = Expected(program)
        self.sessions = [connect(address, devices=specs) for _ in range(program.world.sessions)]
        self.handles: list[dict[int, Tensor]] = [{} for _ in self.sessions]
        self.chains: dict[tuple[int, int], int] = {}
        self.routines: dict[tuple[int, int], Linked] = {}  # by session and key
        self.closed: set[int] = set()
        self.read: dict[tuple[int, int], Answer] = {}
        self.asked: dict[int, tuple[int, ...]] = {}
        self.effects: list[tuple[tuple[int, int], int, tuple[Any, ...]]] = []

    def run(self, program: Program) -> list[str]:
        """Do every step; what was read and is wrong."""
        for step in program.steps:
            self.do(self.sessions[step.session], self.handles[step.session], step)
        for session in self.open_sessions():
            session.sync()  # or side effects that nobody has read the results of would be cancelled
        trace = next(self.open_sessions()).trace()
        self.handles.clear()
        self.routines.clear()
        for session in self.sessions:
            session.close()
        wrong = [f"trace: {problem}" for problem in trace.verify()]
        return [*wrong, *self.compare_reads(), *self.compare_effects()]

    def open_sessions(self) -> Iterator[Any]:
        return (session for number, session in enumerate(self.sessions) if number not in self.closed)

    # -- steps -----------------------------------------------------------------------------------------------------

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
        answer = self.expected.sessions[step.session].answers.get(step.fields[0])
        if answer is not None and answer.array is not None and not answer.errors:
            assert handles[self.asked[step.fields[0]][0]].shape is not None

    def sync(self, session: Any, _handles: dict[int, Tensor], _step: Step) -> None:
        session.sync()

    def chain(self, session: Any, _handles: dict[int, Tensor], step: Step) -> None:
        self.chains[step.session, step.fields[0]] = session.chain()

    def effect(self, session: Any, handles: dict[int, Tensor], step: Step) -> None:
        ids, chain, _ = step.fields
        session.effect(self.callback(step), *[handles[id_] for id_ in ids], chain=self.chains[step.session, chain])

    def callback(self, step: Step) -> Callable[..., None]:
        _, chain, raises = step.fields

        def callback(*arrays: Any) -> None:
            self.effects.append(((step.session, chain), step.number, tuple(array.copy() for array in arrays)))
            if raises:
                raise ValueError("the callback failed")

        return callback

    def run_(self, session: Any, handles: dict[int, Tensor], step: Step) -> None:
        routine, _, inner, inputs, numbers, renamed, released = step.fields
        callbacks = [self.callback(one) for one in inner if one.kind == "EFFECT"]
        key = (step.session, routine.key)
        if key not in self.routines or callbacks:  # which are those of one run here
            chains = [chain for (number, _), chain in self.chains.items() if number == step.session]
            captured = [handles[id_] for id_ in routine.captured]
            self.routines[key] = Linked(session, routine.program, routine.devices, captured, chains, callbacks)
        made = self.routines[key].run([handles[id_] for id_ in inputs], numbers)
        handles.update(zip([output for _, output in renamed], made, strict=True))
        for id_ in released:
            del handles[id_]

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
        session.flush()  # a cancellation overtakes what was not sent; the program's comes after what was before it
        session.cancel()

    def restart(self, session: Any, _handles: dict[int, Tensor], _step: Step) -> None:
        session.restart()

    def close(self, session: Any, handles: dict[int, Tensor], step: Step) -> None:
        self.closed.add(step.session)
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

    def compare_effects(self) -> list[str]:
        wrong = []
        expected = self.expected.encoder.effects
        for key in {key for key, _, _ in self.effects} | {effect[:2] for effect in expected}:
            wanted = [effect[2:] for effect in expected if effect[:2] == key]
            found = [(number, arrays) for chain, number, arrays in self.effects if chain == key]
            answers = self.expected.sessions[key[0]].answers
            wrong += compare_chain({n for n, _ in wanted if not answers[n].errors}, wanted, found, str(key))
        return wrong


def is_possible(error: TensordError, possible: set[tuple[str, str | None]]) -> bool:
    """Is it one of the roots? Which of several instructions was cancelled first is open."""
    kind = kind_of(error)
    return (kind, error.op) in possible or (kind == "CancelledError" and any(k == kind for k, _ in possible))


def attempt(action: Any) -> Answer:
    """A result, or the error."""
    try:
        result = action()
    except TensordError as error:
        return None, error
    return (np.array(result) if isinstance(result, np.ndarray) else result), None

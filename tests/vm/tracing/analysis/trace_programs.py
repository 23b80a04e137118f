"""Random valid traces from a model of their own, written to be obviously right rather than fast: no access list is
ever edited, the whole history of a copy is searched backwards each time."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tensord.interpreter.opcodes import Opcode
from tensord.vm.tracing.analysis.trace import Trace
from tensord.vm.tracing.record import EdgeRecord, OperandRecord, Record

STREAMS = (("cpu:0", "compute"), ("sim:0", "compute"), ("sim:0", "h2d"), ("sim:1", "compute"))


def record(
    instruction: int,
    *operands: tuple[int, str],
    edges: Sequence[tuple[Any, ...]] = (),
    ticks: tuple[int, int] | None = None,
    **fields: Any,
) -> Record:
    """A record with the given fields: operands as (copy, kind), edges as (source, reason, copy[, elided])."""
    admitted, erased = ticks or (2 * instruction, 0)
    defaults: dict[str, Any] = {
        "id": instruction,
        "session": 1,
        "opcode": Opcode.CALL.value,
        "op": "add",
        "status": "DONE" if erased else "WAITING",
        "device": "cpu:0",
        "stream": "compute" if erased else "",
        "operands": tuple(OperandRecord(copy, kind, 0) for copy, kind in operands),
        "edges": tuple(EdgeRecord(*(edge if len(edge) == 4 else (*edge, False))) for edge in edges),
        "admitted": admitted,
        "erased": erased,
        "received": 0,
        "ready": 0,
        "dispatched": 0,
        "started": 0,
        "finished": 0,
        "nbytes": 0,
        "location": "",
        "error": "",
        "span": (),
        "caused_by": fields.get("session", 1),
    }
    return Record(**(defaults | fields))


@dataclass
class Running:
    """An instruction of the model; `erased` is its tick."""

    record: Record
    sources: list[Running]
    finished: int = 0
    erased: int = 0


@dataclass
class Machine:
    """Admits, finishes and erases instructions at random, but each finishes and is erased after its sources."""

    rng: random.Random
    all: list[Running] = field(default_factory=list)
    tick: int = 0
    clock: int = 1000

    def step(self) -> None:
        self.clock += self.rng.randrange(1, 50)
        live = [one for one in self.all if not one.erased]
        finishable = [one for one in live if not one.finished and all(source.finished for source in one.sources)]
        erasable = [one for one in live if one.finished and all(source.erased for source in one.sources)]
        choice = self.rng.random()
        if choice < 0.4 and finishable:
            self.finish(self.rng.choice(finishable))
        elif choice < 0.7 and erasable:
            self.erase(self.rng.choice(erasable))
        else:
            self.admit()

    def admit(self) -> None:
        self.tick += 1
        device, stream = self.rng.choice(STREAMS)
        barrier = self.rng.random() < 0.05
        opcode = Opcode.BARRIER if barrier else Opcode.TRANSFER if stream == "h2d" else Opcode.CALL
        kinds = self.rng.choices(("const", "mut", "mut2"), (5, 3, 1), k=0 if barrier else self.rng.randrange(1, 5))
        operands = [(self.rng.randrange(1, 9), kind) for kind in kinds]
        one = record(len(self.all) + 1, *operands, ticks=(self.tick, 0), received=self.clock)
        one = one._replace(opcode=opcode.value, device=device, stream=stream, session=self.rng.randrange(1, 3))
        edges = self.barrier_edges(one) if barrier else self.data_edges(one)
        sources = [self.all[edge.source - 1] for edge in edges]
        self.all.append(Running(one._replace(edges=tuple(edges)), sources))
        if not edges and self.rng.random() < 0.3:
            self.run_at_once(self.all[-1])

    def run_at_once(self, one: Running) -> None:
        """Finish and erase an instruction; the next admission may have the same tick."""
        self.finish(one)
        self.erase(one)
        self.tick -= self.rng.randrange(2)

    def data_edges(self, one: Record) -> list[EdgeRecord]:
        edges = []
        for copy in dict.fromkeys(operand.copy for operand in one.operands):
            kinds = {operand.kind for operand in one.operands if operand.copy == copy}
            for other in reversed(self.all):
                theirs = {operand.kind for operand in other.record.operands if operand.copy == copy}
                wrote = bool(theirs & {"mut", "mut2"})
                conflict = wrote or (theirs and kinds != {"const"})
                if conflict and not other.erased:
                    reason = "WAR" if not wrote else "RAW" if "const" in kinds else "WAW"
                    edges.append(EdgeRecord(other.record.id, reason, copy, self.elide(other.record, one, theirs)))
                if wrote:
                    break
        return edges

    def elide(self, source: Record, target: Record, kinds: set[str]) -> bool:
        same = (source.device, source.stream) == (target.device, target.stream)
        return same and "mut2" not in kinds and self.rng.random() < 0.5

    def barrier_edges(self, one: Record) -> list[EdgeRecord]:
        mine = [other for other in self.all if other.record.session == one.session and not other.erased]
        barriers = [number for number, other in enumerate(mine) if other.record.opcode == Opcode.BARRIER]
        if barriers:
            mine = mine[barriers[-1] :]
        return [EdgeRecord(other.record.id, "barrier", 0, elided=False) for other in mine]

    def finish(self, one: Running) -> None:
        times = [self.clock + self.rng.randrange(20) for _ in range(3)]
        ready, dispatched, started = sorted(times)
        one.finished = self.clock = max(times) + self.rng.randrange(1, 500)
        stamped: dict[str, Any] = {
            "ready": ready,
            "dispatched": dispatched,
            "started": started,
            "finished": one.finished,
        }
        if self.rng.random() < 0.1:
            one.record = one.record._replace(status="SKIPPED", error="KernelError: no")
        else:
            one.record = one.record._replace(status="DONE", **stamped)

    def erase(self, one: Running) -> None:
        self.tick += 1
        one.erased = self.tick
        one.record = one.record._replace(erased=self.tick)

    def trace(self) -> Trace:
        return Trace([one.record for one in self.all], devices=["cpu:0", "sim:0", "sim:1"])


def random_trace(seed: int, steps: int = 150) -> Trace:
    machine = Machine(random.Random(seed))
    for _ in range(steps):
        machine.step()
    return machine.trace()

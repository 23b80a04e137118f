from __future__ import annotations

import random
from typing import Any

import pytest

from tensord.vm.tracing.analysis.checks.verify import Problem, ProblemKind
from tensord.vm.tracing.analysis.trace import Trace
from tensord.vm.tracing.record import EdgeRecord, OperandRecord, PartRecord, Record

from .....each_case import each_case
from ..trace_programs import random_trace, record

SEEDS = range(6)


def kinds(problems: list[Problem]) -> list[ProblemKind]:
    return [problem.kind for problem in problems]


def verify(*records: Record, dropped: int = 0) -> list[ProblemKind]:
    return kinds(Trace(records, dropped=dropped).verify())


def replaced(trace: Trace, new: Record, dropped: int = 0) -> Trace:
    return Trace([new if old.id == new.id else old for old in trace.records], dropped=dropped)


def an_edge(trace: Trace, rng: random.Random) -> tuple[Record, int]:
    target = rng.choice([record for record in trace.records if record.edges])
    return target, rng.randrange(len(target.edges))


def access(instruction: int, *operands: tuple[int, str, int], **fields: Any) -> Record:
    """A record of operands as (copy, kind, version), that ran at once."""
    found = record(instruction, ticks=(2 * instruction, 2 * instruction + 1), **fields)
    return found._replace(operands=tuple(OperandRecord(*operand) for operand in operands))


class TestVersions:
    def test_what_is_read_has_the_version_that_was_written_last(self):
        write, other = access(1, (7, "mut", 1)), access(2, (7, "mut", 2))
        assert verify(write, other, access(3, (7, "const", 2))) == []
        assert verify(write, other, access(3, (7, "const", 1))) == [ProblemKind.VERSION]
        assert verify(write, other, access(3, (7, "const", 3))) == [ProblemKind.VERSION]

    def test_what_was_written_before_the_trace_is_not_known(self):
        assert verify(access(3, (7, "const", 5)), access(4, (7, "const", 5))) == []

    def test_a_write_may_be_lost_in_a_gap(self):
        records = [access(1, (7, "mut", 1)), access(3, (7, "const", 2))]
        assert kinds(Trace(records).verify()) == [ProblemKind.VERSION]
        assert Trace(records, base_tick=6).verify() == []
        later = [*records, access(5, (7, "const", 2))]
        assert Trace(later, base_tick=6).verify() == []

    def test_an_instruction_without_versions_is_not_checked(self):
        assert verify(access(1, (7, "mut", 1)), access(3, (7, "const", 0))) == []

    def test_what_is_read_and_written_may_have_either_version(self):
        write = access(1, (7, "mut", 1))
        for read in (1, 2):
            assert verify(write, access(2, (7, "const", read), (7, "mut", 2))) == []

    def test_a_run_makes_a_new_version_of_what_it_writes(self):
        write, part = access(1, (7, "mut", 1)), PartRecord(1, 0, 1)
        assert verify(write, access(2, (7, "const", 1), (7, "mut", 2), part=part)) == []
        assert verify(write, access(2, (7, "const", 1), (7, "mut", 1), part=part)) == [ProblemKind.VERSION]


class TestRules:
    def test_a_read_waits_for_the_leading_write(self):
        assert verify(record(1, (7, "mut")), record(2, (7, "const"), edges=[(1, "RAW", 7)])) == []

    def test_reads_do_not_wait_for_reads(self):
        assert verify(record(1, (7, "const")), record(2, (7, "const"))) == []

    def test_a_write_waits_for_every_access_in_the_list(self):
        write = record(4, (7, "mut"), edges=[(1, "WAW", 7), (2, "WAR", 7), (3, "WAR", 7)])
        reads = [record(number, (7, "const"), edges=[(1, "RAW", 7)]) for number in (2, 3)]
        assert verify(record(1, (7, "mut2")), *reads, write) == []

    def test_a_write_replaces_the_list(self):
        first, second = record(1, (7, "mut")), record(2, (7, "mut"), edges=[(1, "WAW", 7)])
        assert verify(first, second, record(3, (7, "const"), edges=[(2, "RAW", 7)])) == []

    @pytest.mark.parametrize("operands", [[(7, "const"), (7, "mut")], [(7, "mut"), (7, "const")]])
    def test_who_reads_and_writes_has_one_edge_and_never_waits_for_itself(self, operands):
        assert verify(record(1, (7, "mut")), record(2, *operands, edges=[(1, "RAW", 7)])) == []

    def test_edges_about_several_copies_are_several_edges(self):
        both = record(2, (7, "const"), (8, "mut"), edges=[(1, "RAW", 7), (1, "WAW", 8)])
        assert verify(record(1, (7, "mut"), (8, "mut")), both) == []

    def test_an_erased_access_is_waited_for_no_more(self):
        assert verify(record(1, (7, "mut"), ticks=(1, 2)), record(2, (7, "const"), ticks=(3, 0))) == []

    def test_what_ran_at_once_may_share_the_tick_of_the_next_admission(self):
        assert verify(record(1, (7, "mut"), ticks=(1, 2)), record(2, (7, "const"), ticks=(2, 0))) == []

    def test_readers_stay_when_their_writer_leaves(self):
        records = [
            record(1, (7, "mut"), ticks=(1, 3)),
            record(2, (7, "const"), edges=[(1, "RAW", 7)], ticks=(2, 0)),
            record(3, (7, "mut"), edges=[(2, "WAR", 7)], ticks=(4, 0)),
        ]
        assert verify(*records) == []


class TestBarriers:
    def barrier(self, instruction: int, *sources: int, **fields) -> Record:
        edges = [(source, "barrier", 0) for source in sources]
        return record(instruction, edges=edges, opcode="Barrier", **fields)

    def test_a_barrier_waits_for_the_live_ones_of_its_session(self):
        records = [record(1, ticks=(1, 4)), record(2, ticks=(2, 0)), record(3, ticks=(3, 0), session=2)]
        assert verify(*records, self.barrier(4, 2, ticks=(5, 0))) == []

    def test_what_a_live_barrier_waits_for_is_left_to_it(self):
        assert verify(record(1), self.barrier(2, 1), record(3), self.barrier(4, 3, 2)) == []

    def test_a_barrier_that_left_covers_nothing(self):
        records = [record(1, ticks=(1, 3)), self.barrier(2, 1, ticks=(2, 4)), self.barrier(5, ticks=(6, 0))]
        assert verify(*records) == []

    def test_a_barrier_with_operands_waits_for_those_as_well(self):
        records = [record(1), record(2, (7, "mut"), session=2)]
        edges = [(1, "barrier", 0), (2, "RAW", 7)]
        assert verify(*records, record(3, (7, "const"), edges=edges, opcode="Barrier")) == []

    def test_a_wait_over_tensors_waits_for_those_alone(self):
        records = [record(1), record(2, (7, "mut"))]
        assert verify(*records, record(3, (7, "const"), edges=[(2, "RAW", 7)], opcode="Wait")) == []

    def test_a_forgotten_source_is_missing(self):
        assert verify(record(1), record(2), self.barrier(3, 2)) == [ProblemKind.MISSING]

    def test_nothing_waits_for_a_barrier(self):
        assert verify(self.barrier(1), record(2, edges=[(1, "barrier", 0)])) == [ProblemKind.SUPERFLUOUS]


class TestRandomPrograms:
    @each_case("seed", SEEDS)
    def test_a_valid_trace_has_no_problems(self, seed):
        assert [str(problem) for problem in random_trace(seed).verify()] == []

    @each_case("seed", SEEDS)
    def test_a_removed_edge_is_missed(self, seed):
        trace = random_trace(seed)
        target, number = an_edge(trace, random.Random(seed))
        gone = target.edges[number]
        edges = target.edges[:number] + target.edges[number + 1 :]
        (problem,) = replaced(trace, target._replace(edges=edges)).verify()
        assert (problem.kind, problem.instruction) == (ProblemKind.MISSING, target.id)
        assert (problem.source, problem.copy) == (gone.source, gone.copy)

    @each_case("seed", SEEDS)
    def test_an_added_edge_is_superfluous(self, seed):
        trace, rng = random_trace(seed), random.Random(seed)
        target = rng.choice(trace.records)
        taken = {(edge.source, edge.copy) for edge in target.edges}
        source = rng.choice([one.id for one in trace.records if (one.id, 3) not in taken])
        edge = EdgeRecord(source, "RAW", 3, elided=False)
        problems = replaced(trace, target._replace(edges=(*target.edges, edge))).verify()
        assert (ProblemKind.SUPERFLUOUS, target.id, source) in [
            (one.kind, one.instruction, one.source) for one in problems
        ]

    @each_case("seed", SEEDS)
    def test_a_changed_reason_is_noticed(self, seed):
        trace, rng = random_trace(seed), random.Random(seed)
        target, number = an_edge(trace, rng)
        edges = list(target.edges)
        other = rng.choice([reason for reason in ("RAW", "WAR", "WAW", "barrier") if reason != edges[number].reason])
        edges[number] = edges[number]._replace(reason=other)
        (problem,) = replaced(trace, target._replace(edges=tuple(edges))).verify()
        assert (problem.kind, problem.instruction) == (ProblemKind.REASON, target.id)

    @each_case("seed", SEEDS)
    def test_a_doubled_edge_is_noticed(self, seed):
        trace = random_trace(seed)
        target, number = an_edge(trace, random.Random(seed))
        (problem,) = replaced(trace, target._replace(edges=(*target.edges, target.edges[number]))).verify()
        assert (problem.kind, problem.instruction) == (ProblemKind.DUPLICATE, target.id)

    @each_case("seed", SEEDS)
    def test_who_leaves_before_its_source_has_overtaken_it(self, seed):
        trace, rng = random_trace(seed), random.Random(seed)
        target = rng.choice([one for one in trace.records if one.edges and one.erased])
        source = trace.require(target.edges[0].source)
        trace = replaced(trace, target._replace(erased=source.erased))
        trace = replaced(trace, source._replace(erased=target.erased))
        problems = trace.verify()
        assert (ProblemKind.OVERTAKEN, target.id, source.id) in [
            (one.kind, one.instruction, one.source) for one in problems
        ]

    @each_case("seed", SEEDS)
    def test_an_early_erasure_that_hides_an_edge_is_noticed(self, seed):
        """A source that is erased right before its reader's admission: the edge should not have been made."""
        trace, rng = random_trace(seed), random.Random(seed)
        trace = Trace([one._replace(admitted=2 * one.admitted, erased=2 * one.erased) for one in trace.records])
        target, number = an_edge(trace, rng)
        source = trace.require(target.edges[number].source)
        problems = replaced(trace, source._replace(erased=target.admitted - 1, status="DONE")).verify()
        assert ProblemKind.SUPERFLUOUS in kinds(problems)

    @each_case("seed", SEEDS)
    def test_edges_to_lost_records_are_excused(self, seed):
        trace = random_trace(seed)
        # The ring loses the records that were erased first.
        erased = sorted((one for one in trace.records if one.erased), key=lambda one: one.erased)
        lost = {one.id for one in erased[: len(erased) // 2]}
        rest = [one for one in trace.records if one.id not in lost]
        assert Trace(rest, dropped=len(lost)).verify() == []

    def test_a_large_trace_is_verified(self):
        """A long chain, wide fans of readers, and barriers: verification must not be quadratic."""
        records = []
        for number in range(1, 6001):
            kind = "mut" if number % 100 == 0 else "const"
            records.append(record(number, (number % 7 + 1, kind), ticks=(2 * number, 2 * number + 1)))
        assert Trace(records).verify() == []


class TestSanity:
    def test_an_edge_to_an_unknown_source_is_superfluous(self):
        assert verify(record(2, (7, "mut"), edges=[(1, "WAW", 7)])) == [ProblemKind.SUPERFLUOUS]
        assert verify(record(2, (7, "mut"), edges=[(1, "WAW", 7)]), dropped=1) == []

    def test_nothing_waits_for_itself(self):
        problems = Trace([record(1, (7, "mut"), edges=[(1, "WAW", 7)])]).verify()
        assert kinds(problems) == [ProblemKind.SUPERFLUOUS]
        assert "itself" in problems[0].message

    def test_times_go_forward(self):
        assert verify(record(1, received=10, ready=0, started=20, finished=20)) == []
        assert verify(record(1, received=10, ready=0, started=20, finished=19)) == [ProblemKind.TIMES]
        assert verify(record(1, received=10, ready=9)) == [ProblemKind.TIMES]

    def test_nothing_starts_before_its_source_has_finished(self):
        source = record(1, (7, "mut"), ticks=(1, 3), started=10, finished=20)
        target = record(2, (7, "const"), edges=[(1, "RAW", 7)], ticks=(2, 4), started=19, finished=30)
        assert verify(source, target) == [ProblemKind.EARLY]
        assert verify(source, target._replace(started=20)) == []
        elided = target._replace(edges=(EdgeRecord(1, "RAW", 7, elided=True),))
        assert verify(source, elided) == []

    def test_nothing_starts_while_its_source_is_live(self):
        source = record(1, (7, "mut"))
        target = record(2, (7, "const"), edges=[(1, "RAW", 7)], started=19, status="DISPATCHED")
        assert verify(source, target) == [ProblemKind.EARLY]

    def test_nothing_leaves_while_its_source_is_live(self):
        source = record(1, (7, "mut"))
        assert verify(source, record(2, (7, "const"), edges=[(1, "RAW", 7)], ticks=(4, 5))) == [ProblemKind.OVERTAKEN]

    def test_edges_from_mut2_and_into_what_the_host_sees_are_never_elided(self):
        reader = record(2, (7, "const"), edges=[(1, "RAW", 7, True)])
        assert verify(record(1, (7, "mut2")), reader) == [ProblemKind.ELIDED]
        assert verify(record(1, (7, "mut")), reader) == []
        access = reader._replace(opcode="AccessBlobByCallback")
        assert verify(record(1, (7, "mut")), access) == [ProblemKind.ELIDED]

    def test_a_status_is_legal_and_fits(self):
        assert verify(record(1, status="ASLEEP")) == [ProblemKind.STATUS]
        assert verify(record(1, status="READY", ticks=(1, 2))) == [ProblemKind.STATUS]
        assert verify(record(1, status="SKIPPED")) == []  # reported at once, but keeps its position

    def test_ticks_are_unique_and_in_order(self):
        assert verify(record(1, ticks=(1, 0)), record(2, ticks=(1, 0))) == [ProblemKind.TICKS]
        assert verify(record(1, ticks=(5, 5))) == [ProblemKind.TICKS]
        assert verify(record(1, ticks=(1, 4)), record(2, ticks=(2, 4))) == [ProblemKind.TICKS]

    def test_ids_are_unique(self):
        assert verify(record(1, ticks=(1, 0)), record(1, ticks=(2, 0))) == [ProblemKind.IDS]


class TestParts:
    """Any part of a trace is as consistent as the whole: omitted records explain missing edges."""

    @each_case("seed", SEEDS)
    def test_of_a_session(self, seed):
        whole = random_trace(seed)
        for session in (1, 2):
            assert whole.only(one for one in whole.records if one.session == session).verify() == []

    @each_case("seed", SEEDS)
    def test_of_what_began_or_ended_later(self, seed):
        whole = random_trace(seed)
        ticks = sorted(one.erased for one in whole.records if one.erased)
        for tick in ticks[:: max(1, len(ticks) // 5)]:
            assert whole.only(one for one in whole.records if one.admitted > tick).verify() == []
            assert whole.only(one for one in whole.records if not one.erased or one.erased > tick).verify() == []

    def test_what_is_left_out_is_not_lost_and_what_came_behind_it_is_checked(self):
        first = record(1, (7, "mut"), ticks=(1, 9))
        wrong = [record(2, (8, "mut"), ticks=(2, 0)), record(3, (8, "const"), ticks=(3, 0))]
        late = [record(4, (8, "const"), ticks=(12, 0))]
        part = Trace([first, *wrong, *late]).only([*wrong, *late])
        assert (part.dropped, part.before, part.base_tick) == (0, 1, 9)
        assert [(problem.kind, problem.instruction) for problem in part.verify()] == [(ProblemKind.MISSING, 4)]

"""Programs and routines of a session on both engines: the ids, the counts, and the refusals."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import pytest

from tensord.interpreter.errors import MetadataError, ProtocolError, QuotaError, TensordError
from tensord.interpreter.programs.builder import Builder
from tensord.interpreter.programs.program import Program
from tensord.interpreter.programs.records import RecordsReader
from tensord.interpreter.types.meta import Meta
from tensord.interpreter.wire.limits import Limits
from tensord.interpreter.wire.message_kinds import LINK, PROGRAM, RUN
from tensord.interpreter.wire.program_messages import Link, ProgramPart, Run
from tensord.vm.model.linked import SessionProgram
from tensord.vm.routines.programs import add_part, check_run, drop, link, routine_of, steps_of_runs, written_by

from ...each_case import each_case
from ..programs import ONE, accumulate, chain_of, parts_of

DEVICES = ("cpu:0", "sim:0")


class Session:
    """The attributes of a session for programs alone."""

    def __init__(self, **limits: int) -> None:
        self.limits = Limits(**limits)
        self.newest = 0
        self.programs: dict[int, RecordsReader | Program | TensordError] = {}
        self.routines: dict[int, SessionProgram | TensordError] = {}
        self.steps = 0

    def add(self, id_: int, program: Program, size: int = 64) -> None:
        for part in parts_of(id_, program, size):
            add_part(self, part, None)

    def link(self, id_: int, program: int, devices: tuple[str, ...] = ("cpu:0",), captured: Any = ()) -> None:
        link(self, Link(id_, program, devices, captured, 0), DEVICES)


def test_a_program_in_parts_is_a_reader_until_its_last_record() -> None:
    session, program = Session(), chain_of(5)
    parts = parts_of(1, program, 2)
    for part in parts[:-1]:
        add_part(session, part, None)
        assert isinstance(session.programs[1], RecordsReader)
    add_part(session, parts[-1], None)
    assert session.programs[1] == program
    assert (session.newest, session.steps) == (1, 5)


def test_parts_of_two_programs_may_come_in_any_order() -> None:
    session, programs = Session(), {1: chain_of(4), 2: accumulate()}
    for pair in zip_longest(parts_of(1, programs[1], 1), parts_of(2, programs[2], 2)):
        for part in filter(None, pair):
            add_part(session, part, None)
    assert session.programs == programs


def test_steps_come_and_go_with_programs_and_routines() -> None:
    session = Session()
    session.add(1, chain_of(5))
    session.link(2, 1)
    session.link(3, 1)
    assert session.steps == 15
    assert drop(session, 1) is None
    assert session.steps == 10
    assert isinstance(drop(session, 2), SessionProgram)
    assert drop(session, 2) is None
    assert (session.steps, len(session.programs), len(session.routines)) == (5, 0, 1)
    assert routine_of(session, 3).program == chain_of(5)


def test_a_part_that_is_refused_gives_back_the_steps_of_all_parts() -> None:
    session = Session()
    add_part(session, parts_of(1, chain_of(5), 3)[0], None)
    assert session.steps == 2
    add_part(session, ProgramPart(1, (("negative", (0,), (), 0, None, 0), ("negative", (9,), (), 0, None, 0))), None)
    assert isinstance(session.programs[1], ProtocolError)
    assert session.steps == 0
    add_part(session, parts_of(1, chain_of(5), 3)[1], None)
    assert session.steps == 0
    drop(session, 1)
    assert session.steps == 0


def test_a_complete_program_that_gets_more_records_is_one_no_longer_and_routines_go_on() -> None:
    session = Session()
    session.add(1, chain_of(2))
    session.link(2, 1)
    session.add(1, chain_of(2))
    assert isinstance(session.programs[1], ProtocolError)
    assert (routine_of(session, 2).program, session.steps) == (chain_of(2), 2)


def test_the_quota_of_steps_is_of_programs_and_routines_together() -> None:
    session = Session(steps=10)
    session.add(1, chain_of(5))
    session.link(2, 1)
    session.link(3, 1)
    assert isinstance(session.routines[3], QuotaError)
    session.add(4, chain_of(1))
    assert isinstance(session.programs[4], QuotaError)
    assert session.steps == 10


@each_case("id_", [1, 2, 3])
def test_an_id_that_is_not_new_defines_nothing(id_: int) -> None:
    session = Session()
    session.add(1, chain_of(2))
    session.link(3, 1)
    with pytest.raises(ProtocolError, match="not new"):
        session.link(id_, 1)
    if id_ != 1:
        with pytest.raises(ProtocolError, match="not new"):
            session.add(id_, chain_of(2))
    assert (list(session.programs), list(session.routines)) == ([1], [3])


def test_a_link_names_devices_of_the_machine() -> None:
    session, builder = Session(), Builder()
    x = builder.parameter(ONE)
    program = builder.finish([builder.move(x, 1)])
    session.add(1, program)
    session.link(2, 1, ("cpu:0", "sim:0"))
    assert routine_of(session, 2).results == [(ONE, "sim:0")]
    session.link(3, 1, ("cpu:0", "cpu:0"))
    assert routine_of(session, 3).results == [(ONE, "cpu:0")]
    session.link(4, 1, ("cpu:0", "gpu:0"))
    with pytest.raises(MetadataError, match="devices: cpu:0, sim:0"):
        routine_of(session, 4)


@pytest.mark.parametrize("found", [ONE, None])
def test_a_run_may_be_of_inputs_whose_metas_are_not_known_yet(found: Meta | None) -> None:
    session = Session()
    session.add(1, chain_of(2))
    session.link(2, 1)
    check_run(routine_of(session, 2), Run(2, (1,), (), (5,), (), 0), [found], 2)
    with pytest.raises(ProtocolError, match="an input is"):
        check_run(routine_of(session, 2), Run(2, (1,), (), (5,), (), 0), [Meta.of((2,), "float64")], 2)


@each_case(("outputs", "newest"), [((5,), 2), ((6,), 3), ((100,), 2)])
def test_results_may_lie_anywhere_behind_the_room_for_values_inside(outputs: tuple[int, ...], newest: int) -> None:
    session = Session()
    session.add(1, chain_of(2))
    session.link(2, 1)
    check_run(routine_of(session, 2), Run(2, (1,), (), outputs, (), 0), [ONE], newest)
    with pytest.raises(ProtocolError, match="leaves no room"):
        check_run(routine_of(session, 2), Run(2, (1,), (), outputs, (), 0), [ONE], outputs[0] - 2)


def test_results_rise() -> None:
    session, builder = Session(), Builder()
    x = builder.parameter(ONE)
    session.add(1, builder.finish([builder.move(x, 0), builder.move(x, 0)]))
    session.link(2, 1)
    for outputs in ((9, 8), (9, 9)):
        with pytest.raises(ProtocolError, match="is not new"):
            check_run(routine_of(session, 2), Run(2, (1,), (), outputs, (), 0), [ONE], 2)


def test_a_run_writes_what_its_program_writes_from_outside() -> None:
    session, builder = Session(), Builder()
    x, y = builder.parameter(ONE), builder.parameter(ONE)
    w = builder.captured(ONE)
    (a,) = builder.op("add", [x, y])
    (a,) = builder.op("add", [a, a], into=[a])
    builder.op("add", [x, a], into=[y])
    builder.op("add", [x, a], into=[w])
    session.add(1, builder.finish([]))
    session.link(2, 1, captured=(30,))
    routine = routine_of(session, 2)
    assert written_by(routine, Run(2, (10, 20), (), (), (), 0)) == [20, 30]
    assert written_by(routine, Run(2, (10,), (), (), (), 0)) == []


def test_steps_of_a_group_s_runs_count_each_run_and_what_the_group_itself_links() -> None:
    session = Session()
    session.add(1, chain_of(10))
    session.link(2, 1)
    add_part(session, parts_of(3, chain_of(10), 5)[0], None)
    run, other = (RUN, 2, (), (), (), (), 0), (RUN, 9, (), (), (), (), 0)
    assert steps_of_runs(session, [run, run]) == 20
    assert steps_of_runs(session, [other]) == 0
    assert steps_of_runs(session, [(LINK, 9, 1, (), (), 0), other, other]) == 20
    assert steps_of_runs(session, [(PROGRAM, 3, ((),) * 7), (LINK, 9, 3, (), (), 0), other]) == 11
    assert steps_of_runs(session, [(PROGRAM, 8, ((),) * 7), (LINK, 9, 8, (), (), 0), other]) == 7
    assert steps_of_runs(session, [(LINK, 2, 3, (), (), 0), run]) == 10  # the routine with that id is there

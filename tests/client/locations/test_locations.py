"""Locations are the user's line at every public entry, however it is called; and locating never fails."""

from __future__ import annotations

import _thread
import asyncio
import collections
import gc
import json
import operator
import os
import sys
import threading
from pathlib import Path

import pytest

import tensord as td
from tensord.client.linking.linked import Bindings, ProgramBinding
from tensord.client.locations import frames, locations
from tensord.client.locations.frames import FrameOwner, owner_of, shown
from tensord.client.session.handlers import DEFAULT_HANDLER
from tensord.interpreter.errors import KernelError, MetadataError, TensordError
from tensord.interpreter.programs.builder import Builder
from tensord.interpreter.types.meta import Meta

from ...each_case import each_case
from ...forked import run_script
from ..public_entries import Watch, entries, missing, names_for, program

ROOT = Path(__file__).parents[3]
WAIT = 60.0
LIBRARY = "/opt/python/lib/site-packages/fitting/models.py"
SCRIPT = """
import json, sys
import tensord as td
from tests.client.public_entries import Watch, entries, names_for
with td.connect("local", devices=["cpu:0"]) as session:
    names = names_for(session)
    session.flush()
    watch = Watch(session)
    globals().update(names)
{program}
print(json.dumps(watch.found))
"""


@pytest.fixture
def watched(make_session):
    """A watch over a session, its entries, and the names in the texts of entries."""
    session = make_session()
    names = names_for(session)
    session.flush()
    watch = Watch(session)
    return watch, entries(session), names | {"watch": watch}


def check(found, listed, expected):
    """Every location is the expected one, and every entry that issues something has one."""
    wrong = {entry.name: found[entry.name] for entry in listed if set(found[entry.name]) - {expected(entry.name)}}
    assert wrong == {}
    silent = [entry.name for entry in listed if entry.issues and not found[entry.name]]
    assert silent == []


def run(text, file, names):
    """Run a program as if it were that file."""
    exec(compile(text, file, "exec"), names)  # noqa: S102


def test_every_public_name_has_an_entry(watched):
    assert missing(watched[1]) == set()


def test_inside_a_function(watched):
    watch, listed, names = watched
    text, line = program(listed, "    ")
    run(f"def work():\n{text}\nwork()", "/home/me/job.py", names)
    check(watch.found, listed, lambda name: f"/home/me/job.py:{line[name] + 1} in work")


def test_inside_a_library_whose_caller_follows(watched):
    watch, listed, names = watched
    text, line = program(listed, "    ")
    run(f"def fit():\n{text}", LIBRARY, names)
    run("def main():\n    fit()\nmain()", "/home/me/job.py", names)
    caller = "/home/me/job.py:2 in main"
    check(watch.found, listed, lambda name: f"fitting/models.py:{line[name] + 1} in fit <- {caller}")


def test_at_the_top_level_of_a_script(make_session, tmp_path):
    listed = entries(make_session())
    text, line = program(listed, "    ")
    before = SCRIPT[: SCRIPT.index("{")].count("\n")
    (tmp_path / "job.py").write_text(SCRIPT.format(program=text))
    done = run_script("job.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    check(found, listed, lambda name: f"job.py:{before + line[name]} in <module>")


def test_without_a_python_frame_below(watched, monkeypatch):
    """As for calls from atexit, weakref.finalize or a thread whose function is written in C."""
    watch, listed, names = watched
    raised, done = [], threading.Event()

    def note(problem):
        raised.append(problem.exc_value)
        done.set()

    monkeypatch.setattr(sys, "unraisablehook", note)
    for entry in listed:
        call = eval(f"partial({entry.function}, {entry.arguments})", names)  # noqa: S307
        watch.begin(entry.name)
        done.clear()
        _thread.start_new_thread(collections.deque, (map(operator.call, [call, done.set]), 0))
        assert done.wait(WAIT)
        for error in raised:
            assert isinstance(error, TensordError), (entry, error)
            watch.fail(error)
        raised.clear()
    watch.begin("the end")
    check(watch.found, listed, lambda _: "")


def without_a_frame(function):
    """Call it in a thread of its own, with no Python frame below."""
    done = threading.Event()
    _thread.start_new_thread(collections.deque, (map(operator.call, [function, done.set]), 0))
    assert done.wait(WAIT)


def lines_of(session, op):
    """The locations of the records of an op, in program order."""
    session.sync()
    return [record.location for record in session.trace().records if record.op == op]


def nested(names, depth, file="/home/me/job.py"):
    """Functions f1 to f`depth` of that file, each of which calls the one before; f0 adds 1 to x."""
    for level in range(depth + 1):
        run(f"def f{level}():\n    return {f'f{level - 1}()' if level else 'x + 1'}", file, names)


class TestCallers:
    def test_an_own_line_comes_alone(self, session):
        names = {"x": session.asarray([1.0])}
        nested(names, 3)
        names["f3"]()
        assert lines_of(session, "add") == ["/home/me/job.py:2 in f0"]

    def test_a_library_called_from_two_places_is_two_locations_each_sent_once(self, session):
        names = {"x": session.asarray([1.0])}
        nested(names, 0, LIBRARY)
        run("def work():\n    f0()\n    f0()", "/home/me/job.py", names)
        for _ in range(3):
            names["work"]()
        library = "fitting/models.py:2 in f0"
        assert lines_of(session, "add") == [f"{library} <- /home/me/job.py:{line} in work" for line in (2, 3)] * 3
        texts = list(session._core.transport._session.source.lines.values())
        assert len(texts) == len(set(texts))

    def test_of_a_deep_library_the_nearest_lines_and_the_programs_remain(self, session):
        names = {"x": session.asarray([1.0])}
        nested(names, 9, LIBRARY)
        run("f9()", "/home/me/job.py", names)
        lines = [f"fitting/models.py:2 in f{level}" for level in range(3)]
        assert lines_of(session, "add") == [" <- ".join([*lines, "/home/me/job.py:1 in <module>"])]

    def test_a_library_without_a_program_is_named_by_itself(self, session):
        names = {"x": session.asarray([1.0])}
        nested(names, 1, LIBRARY)
        without_a_frame(names["f1"])
        assert lines_of(session, "add") == ["fitting/models.py:2 in f0 <- fitting/models.py:2 in f1"]

    @each_case(
        ("file", "depth", "job", "line"),
        [
            ("/home/me/job.py", 0, True, "/home/me/job.py:2"),
            (LIBRARY, 0, True, "/home/me/main.py:1"),
            (LIBRARY, 9, True, "/home/me/main.py:1"),
            (LIBRARY, 1, False, "fitting/models.py:2"),
        ],
    )
    def test_the_line_of_a_number_is_the_programs_line(self, session, file, depth, job, line):
        """Without a program, the last line that is known."""
        names, known = {"x": session.asarray([1.0])}, session._core.outbox.locations
        nested(names, depth, file)
        if job:
            run(f"f{depth}()", "/home/me/main.py", names)
        else:
            without_a_frame(names[f"f{depth}"])
        number = known.newest
        names["x"] + 1  # another line
        assert known.line_of_site(number) == line
        assert known.line_of_site(number + 2) == ""

    def test_deep_recursion_in_a_library_costs_no_more_than_a_look_at_its_nearest_frames(self, session):
        """However deep the recursion: one location, sent once, and found again by as many lookups as it has lines."""
        names = {"x": session.asarray([1.0])}
        nested(names, 40, LIBRARY)
        for depth in (20, 30, 40):
            names[f"f{depth}"]()
        nearest = " <- ".join(f"fitting/models.py:2 in f{level}" for level in range(4))
        assert lines_of(session, "add") == [nearest] * 3
        assert session._core.outbox.locations.size == 4 + 2  # and the two of `asarray` and `lines_of`

    def test_paths_of_a_library_share_their_beginnings(self, session):
        """A recursion that branches has many paths to one line: all of them are remembered."""
        names = {"x": session.asarray([1.0])}
        choose = "def go(k, n):\n    return x + 1 if n == 0 else (a if k & 1 else b)(k >> 1, n - 1)\n"
        run(f"{choose}def a(k, n):\n    return go(k, n)\ndef b(k, n):\n    return go(k, n)\n", LIBRARY, names)
        run("def main():\n    for k in range(64): go(k, 6)\nmain()", "/home/me/job.py", names)
        known = session._core.outbox.locations
        before, keys = known.newest, known.size
        run("main()", "/home/me/job.py", names)
        assert (known.newest, known.size) == (before, keys)
        assert keys < 64 * 6

    def test_a_file_whose_name_is_no_text(self, session):
        names = {"x": session.asarray([1.0])}
        run("x + 1", os.fsdecode(b"/home/me/caf\xe9.py"), names)
        (text,) = lines_of(session, "add")
        assert text == "/home/me/caf\\udce9.py:1 in <module>"

    @each_case(("count", "levels"), [(1, 1), (2, 2), (3, 3), (16, 4)])
    def test_a_number_that_is_set_holds_for_every_call(self, make_session, count, levels):
        session = make_session(frames=count)
        names = {"x": session.asarray([1.0])}
        nested(names, 2)
        run("def main():\n    f2()", "/home/me/main.py", names)
        without_a_frame(names["main"])
        lines = [*(f"/home/me/job.py:2 in f{level}" for level in range(3)), "/home/me/main.py:2 in main"]
        assert lines_of(session, "add") == [" <- ".join(lines[:levels])]

    def test_errors_of_calls_and_of_kernels_name_the_callers(self, session):
        names = {"x": session.asarray([[0.0, 0.0], [0.0, 0.0]]), "inv": session.xp.linalg.inv}
        run("def solve(x):\n    return inv(x)", LIBRARY, names)
        run("def main(x):\n    return solve(x)", "/home/me/job.py", names)
        line = r"\[fitting/models\.py:2 in solve <- /home/me/job\.py:2 in main\]$"
        with pytest.raises(MetadataError, match=line):
            names["main"](session.asarray(1.0))
        with pytest.raises(KernelError, match=line):
            names["main"](names["x"]).numpy()

    def test_long_names_leave_room_for_every_line(self, session):
        names = {"x": session.asarray([1.0])}
        nested(names, 2, "/opt/site-packages/" + 900 * "a" + ".py")
        run("f2()", "/home/" + 900 * "b" + ".py", names)
        (text,) = lines_of(session, "add")
        assert len(text) <= frames.MAX_LOCATION
        assert [line[-12:] for line in text.split(" <- ")] == [
            *(f"a.py:2 in f{n}"[-12:] for n in range(3)),
            ":1 in <module>"[-12:],
        ]

    def test_a_table_of_lines_is_bounded(self, make_session, monkeypatch):
        monkeypatch.setattr(locations, "MAX_SITES", 20)
        session = make_session()
        names = {"x": session.asarray([1.0])}
        nested(names, 0, LIBRARY)
        for number in range(50):
            run("f0()", f"cell {number}", names)
            run("x * 1", f"cell {number}", names)
        assert session._core.outbox.locations.size < 25
        assert lines_of(session, "add")[-1] == "fitting/models.py:2 in f0 <- cell 49:1 in <module>"


class TestHandlers:
    """Ops that a handler issues have the line of the op that it handles, wherever the handler is."""

    HANDLERS = """
def forward(inner):
    def handle(invocation):
        return inner(invocation)
    return handle

def rewrite(inner):
    def handle(invocation):
        if invocation.op.name != "square":
            return inner(invocation)
        (x,) = invocation.inputs
        return [(x * x).to_device("cpu:0")]
    return handle
"""

    @pytest.fixture
    def names(self, session):
        names = {"x": session.asarray([1.0]), "s": session}
        run(self.HANDLERS, "/home/me/handlers.py", names)
        return names

    @pytest.mark.parametrize("call", ["x + 1", "s.xp.add(x, 1)", "s.call('add', [x, 1])", "x.sum()"])
    def test_an_op_that_a_handler_passes_on(self, session, names, call):
        session.handler = names["forward"](session.handler)
        run(f"def work():\n    {call}\nwork()\nwork()", "/home/me/job.py", names)
        session.sync()
        found = [record.location for record in session.trace().records if record.op in {"add", "sum"}]
        assert found == ["/home/me/job.py:2 in work"] * 2

    def test_ops_that_a_handler_issues_in_its_place(self, session, names):
        session.handler = names["forward"](names["rewrite"](session.handler))
        run("with s.span('a span'):\n    s.xp.square(x)\nx + 1", "/home/me/job.py", names)
        assert lines_of(session, "multiply") == ["/home/me/job.py:2 in <module>"]
        assert lines_of(session, "add") == ["/home/me/job.py:3 in <module>"]
        session.sync()
        spans = {record.op: record.span for record in session.trace().records}
        assert spans["multiply"] == ("a span",)

    def test_errors_of_a_call(self, session, names):
        session.handler = names["forward"](session.handler)
        with pytest.raises(MetadataError) as caught:
            run("x @ x @ x", "/home/me/job.py", names)
        assert caught.value.location == "/home/me/job.py:1 in <module>"
        with pytest.raises(MetadataError) as caught:
            run("s.call('add', [x, s])", "/home/me/job.py", names)
        assert caught.value.location == "/home/me/job.py:1 in <module>"

    def test_after_a_handler_has_raised(self, session, names):
        session.handler = lambda _: 1 // 0
        with pytest.raises(ZeroDivisionError):
            run("x + 1", "/home/me/job.py", names)
        session.handler = names["forward"](DEFAULT_HANDLER)
        run("\nx + 2", "/home/me/job.py", names)
        assert lines_of(session, "add") == ["/home/me/job.py:2 in <module>"]


class TestSetting:
    def test_by_the_environment(self, make_session, monkeypatch):
        monkeypatch.setenv("TENSORD_FRAMES", "2")
        session = make_session()
        names = {"x": session.asarray([1.0])}
        nested(names, 3)
        names["f3"]()
        assert lines_of(session, "add") == ["/home/me/job.py:2 in f0 <- /home/me/job.py:2 in f1"]

    @each_case("frames", [0, 17, -1, 2.0, "4", True])
    def test_a_number_from_1_to_16(self, frames):
        with pytest.raises(MetadataError, match="frames= must be a number from 1 to 16"):
            td.connect("local", frames=frames)

    @pytest.mark.parametrize("value", ["0", "many", "17", "²"])
    def test_the_environment_is_checked_too(self, monkeypatch, value):
        monkeypatch.setenv("TENSORD_FRAMES", value)
        with pytest.raises(MetadataError, match=r"\$TENSORD_FRAMES is a number from 1 to 16"):
            td.connect("local")


class TestFiles:
    @each_case(
        ("file", "owner", "name"),
        [
            (locations.__file__, FrameOwner.PACKAGE, None),
            (td.__file__, FrameOwner.PACKAGE, None),
            ("src/tensord/vm/engine.py", FrameOwner.PACKAGE, None),  # a compiled module's
            (threading.__file__, FrameOwner.INSTALLED, "threading.py"),
            (asyncio.events.__file__, FrameOwner.INSTALLED, "asyncio/events.py"),
            (pytest.__file__, FrameOwner.INSTALLED, "pytest/__init__.py"),
            ("/usr/lib/python3/dist-packages/yaml/nodes.py", FrameOwner.INSTALLED, "yaml/nodes.py"),
            ("<frozen importlib._bootstrap>", FrameOwner.INSTALLED, "<frozen importlib._bootstrap>"),
            ("<__array_function__ internals>", FrameOwner.INSTALLED, "<__array_function__ internals>"),
            ("<string>", FrameOwner.PROGRAM, "<string>"),
            ("<ipython-input-3-abc>", FrameOwner.PROGRAM, "<ipython-input-3-abc>"),
            ("/tmp/ipykernel_7/123.py", FrameOwner.PROGRAM, "/tmp/ipykernel_7/123.py"),  # noqa: S108 - only a name
            (__file__, FrameOwner.PROGRAM, "tests/client/locations/test_locations.py"),
            ("/home/me/tensord/job.py", FrameOwner.PROGRAM, "/home/me/tensord/job.py"),
        ],
    )
    def test_whose_they_are_and_what_they_are_called(self, file, owner, name, monkeypatch):
        monkeypatch.chdir(ROOT)
        assert owner_of(file) is owner
        assert name is None or shown(file) == name

    def test_the_names_that_are_remembered_are_bounded(self, monkeypatch):
        monkeypatch.setattr(frames, "MAX_FILES", 10)
        owners = type(frames.OWNERS)()
        for number in range(100):
            assert owners[f"cell {number}"] is FrameOwner.PROGRAM
            assert len(owners) <= 10

    def test_a_working_directory_that_is_gone_is_no_obstacle(self, session, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        tmp_path.rmdir()
        run("x + 1", "/home/me/job.py", {"x": session.asarray([1.0])})
        assert lines_of(session, "add") == ["/home/me/job.py:1 in <module>"]


def test_lines_of_calls_and_of_programs_take_no_numbers_of_each_other(
    session: td.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers are reused. A routine that was linked long ago still has its own lines, and so has a call."""
    monkeypatch.setattr(locations, "MAX_SITES", 4)
    monkeypatch.setattr(locations, "SITE_NUMBERS", 16)
    bad, made = session.asarray([[-1.0]]), Meta.of((1, 1), "float64")
    linked, lines = [], set()
    for number in range(30):
        builder = Builder()
        root = builder.op("cholesky", [builder.parameter(made)], location=f"model.py:{number}")
        linked.append(ProgramBinding(session._core, builder.finish(list(root)), Bindings(["cpu:0"])))
        with pytest.raises(KernelError) as caught:
            session.call("cholesky", [bad])[0].item()
        lines.add(caught.value.location)
        exec(f"x + {number}.0", {"x": bad})  # noqa: S102 - a new line each time
    assert len(lines) == 1
    for number, routine in enumerate(linked):
        with pytest.raises(KernelError) as caught:
            routine.run([bad])[0].item()
        assert caught.value.location == f"model.py:{number}"


class Lines:
    """A user of lines, such as a linked program."""

    def __init__(self) -> None:
        self.lines: set[int] = set()


def test_a_line_of_programs_has_one_number(session: td.Session) -> None:
    found, user = session._core.outbox.locations, Lines()
    with session._core.outbox.lock:
        one, again, other = (found.numbered(text, user) for text in ("a.py:1", "a.py:1", "a.py:2"))
    assert one == again != other
    assert user.lines == {one, other}


def failing_at(session: td.Session, *lines: str) -> ProgramBinding:
    """A routine that fails at its last line."""
    builder = Builder()
    value = builder.parameter(Meta.of((1, 1), "float64"))
    for line in lines[:-1]:
        (value,) = builder.op("positive", [value], location=line)
    return ProgramBinding(
        session._core, builder.finish(list(builder.op("cholesky", [value], location=lines[-1]))), Bindings(["cpu:0"])
    )


def line_of_failure(session: td.Session, routine: ProgramBinding) -> str:
    with pytest.raises(KernelError) as caught:
        routine.run([session.asarray([[-1.0]])])[0].item()
    return caught.value.location or ""


def test_lines_of_routines_that_live_stay_theirs_where_all_numbers_are_given_away(
    session: td.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locations, "PROGRAM_LINE_NUMBERS", 6)
    monkeypatch.setattr(locations, "RETRY_INTERVAL", 2)
    old = failing_at(session, *(f"old.py:{n}" for n in range(3)))
    short = [failing_at(session, f"short.py:{n}") for n in range(3)]
    late = failing_at(session, "late.py:1")
    assert [line_of_failure(session, each) for each in (old, *short)] == [
        "old.py:2",
        *(f"short.py:{n}" for n in range(3)),
    ]
    assert "test_locations.py" in line_of_failure(session, late)  # where the value is asked for: no other line is known
    del short
    gc.collect()  # errors keep frames
    new = [failing_at(session, f"new.py:{n}") for n in range(5)]
    found = [line_of_failure(session, each) for each in new]
    assert found.count("old.py:2") == 0
    assert sum(line.startswith("new.py") for line in found) == 3
    assert line_of_failure(session, old) == "old.py:2"

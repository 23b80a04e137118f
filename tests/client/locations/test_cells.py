"""Lines of notebooks are named as the notebook names them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.client.locations import frames
from tensord.client.locations.frames import cell_of
from tensord.interpreter.programs.program import Program

from ...each_case import each_case

FILE = "/tmp/ipykernel_7/123.py"  # noqa: S108 - only a name


def shell_of(format_code_name: Callable[[str], Any]) -> Callable[[], Any]:
    """A shell with that hook of IPython's compiler."""
    return lambda: SimpleNamespace(compile=SimpleNamespace(format_code_name=format_code_name))


@pytest.fixture
def ipython(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """ipython(get_ipython): a module of that name is imported."""

    def imported(get_ipython: Any) -> None:
        monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=get_ipython))

    imported(shell_of(lambda file: ("Cell", "In[12]") if file == FILE else None))
    return imported


def run(source: str, names: dict[str, Any], file: str = FILE) -> None:
    """Run it as a cell."""
    exec(compile(source, file, "exec"), names)  # noqa: S102


@pytest.mark.usefixtures("ipython")
class TestInANotebook:
    def test_errors_of_calls_and_of_kernels(self, make_session):
        s = make_session()
        names: dict[str, Any] = {"x": s.asarray(np.ones(3)), "s": s}
        with pytest.raises(td.MetadataError, match=r"\[Cell In\[12\], line 2 in <module>\]$"):
            run("\nx.reshape(7)", names)
        run("def f(x):\n    return s.call('cholesky', [x])[0]\ny = f(s.asarray([[-1.0]]))", names)
        with pytest.raises(td.KernelError, match=r"Cell In\[12\], line 2 in f") as caught:
            names["y"].numpy()
        assert caught.value.location == "Cell In[12], line 2 in f"

    def test_records_and_what_chooses_them(self, make_session):
        s = make_session()
        run("x = s.asarray(1.0)\ny = x + 1", {"s": s})
        s.sync()
        trace = s.trace()
        assert [r.location for r in trace.records if r.op == "add"] == ["Cell In[12], line 2 in <module>"]
        add = next(r.id for r in trace.records if r.op == "add")
        assert "called at Cell In[12], line 2 in <module>\n" in trace.why(add)
        assert "Cell In[12], line 2" in trace.dag("html")

    def test_routines_whose_programs_can_be_read_back(self, make_session):
        s = make_session(devices=["cpu:0"])
        run("@s.routine\ndef step(w):\n    w += 1\n    return w.sum()\nw = s.asarray(1.0)", names := {"s": s})
        run("step(w)\nstep(w)", names)
        s.sync()
        (routine,) = s.trace().routines.values()
        assert "# Cell In[12], line 3 in step\n" in routine.text
        assert Program.parse(routine.text).steps[0].location == "Cell In[12], line 3 in step"

    def test_an_offset_without_its_function(self):
        code = compile("x = 1", FILE, "exec")
        assert frames.describe_offset(code, 0) == "Cell In[12], line 1"

    def test_other_files_keep_their_names(self):
        assert frames.line_in("/home/me/job.py", 3) == "/home/me/job.py:3"


@each_case(
    ("file", "named"),
    [
        ("<ipython-input-3-0abc>", "Cell In[3], line 1"),
        ("/tmp/marimo_77/__marimo__cell_Hbol_.py", "Cell Hbol, line 1"),  # noqa: S108 - only a name
        ("/tmp/marimo_77/__marimo__cell_Hbol_output", "Cell Hbol, line 1"),  # noqa: S108 - only a name
        ("<stdin>", "<stdin>:1"),
        ("<python-input-0>", "<python-input-0>:1"),
        ("<string>", "<string>:1"),
        ("<doctest pages.md[3]>", "<doctest pages.md[3]>:1"),
        ("<timed exec>", "<timed exec>:1"),
        ("/srv/app.zip/job.py", "/srv/app.zip/job.py:1"),
        ("", ":1"),
    ],
)
def test_without_a_shell_the_name_of_the_file_says_what_it_can(file, named):
    assert frames.line_in(file, 1) == named


@each_case(
    "get_ipython",
    [
        lambda: None,  # imported, and not the shell of this process
        None,
        SimpleNamespace,
        lambda: SimpleNamespace(compile=SimpleNamespace()),  # before version 8
        shell_of(lambda _: None),
        shell_of(lambda _: 7),
        shell_of(lambda _: ("Cell", 7)),
        shell_of(lambda _: 1 / 0),
    ],
)
def test_a_shell_that_does_not_know_is_no_obstacle(ipython, get_ipython):
    ipython(get_ipython)
    assert cell_of(FILE) == ""
    assert cell_of("<ipython-input-3-0abc>") == "Cell In[3]"

"""The display of a tensor: values by `str`, states by `repr`, both in notebooks."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import tensord as td
from tensord.client.tensor import display

from ...behaviours.looking_inside import WAIT, held, moved, moved_since
from ...behaviours.made_ops import here
from ...each_case import each_case

ARRAYS = {
    "0-d": np.array(2.5),
    "empty": np.zeros((0, 3)),
    "small": np.arange(6).reshape(2, 3),
    "bool": np.array([True, False]),
    "at the threshold": np.arange(1000.0),
    "long": np.arange(1001) * 1000,
    "matrix": np.random.default_rng(1).normal(size=(40, 50)),
    "one axis is long": np.random.default_rng(1).normal(size=(2, 4000)),
    "many": np.arange(9 * 8 * 7 * 9).reshape(9, 8, 7, 9),
    "no axis is long": np.arange(6**4).reshape(6, 6, 6, 6),
    "complex": np.linspace(0, 1j, 2000),
}


@each_case("name", ARRAYS)
@each_case(
    "options",
    [{}, {"edgeitems": 2, "threshold": 5, "precision": 3}, {"edgeitems": 0, "threshold": 5}],
    ids=["default", "other", "no edges"],
)
def test_print_shows_what_numpy_prints(session, name, options):
    x = session.asarray(ARRAYS[name])
    with np.printoptions(**options):
        assert str(x) == f"{x}" == str(ARRAYS[name])


def test_only_the_corners_of_a_large_tensor_are_fetched(sim_session):
    """A tensor may be larger than the memory of the process that prints it."""
    x = sim_session.xp.ones((3000, 3000), device="sim:0")
    x.wait()
    before = moved(sim_session)
    assert str(x) == str(np.ones((3000, 3000)))
    assert sum(nbytes for _, nbytes in moved_since(sim_session, before).values()) < 1000


def test_print_waits_and_raises_the_error_of_the_call_that_failed(session):
    xp = session.xp
    assert str(xp.unique_values(xp.asarray([2, 1, 2]))) == "[1 2]"
    failed = xp.linalg.inv(xp.zeros((2, 2)))
    with pytest.raises(td.KernelError, match="ingular") as caught:
        str(failed)
    assert here(-3) in str(caught.value)
    failed.release()
    with pytest.raises(td.ProtocolError, match="was released"):
        str(failed)


def test_repr_says_ready_pending_or_failed_and_with_what(sim_session):
    xp = sim_session.xp
    x = xp.ones((2, 3), device="sim:0")
    x.wait()
    assert repr(x) == f"<tensor {x._id} float64[2, 3] on sim:0, ready>"
    with held(sim_session, "sim:0", "compute"):
        y = x + 1.0
        mask = x[x > 0.0]
        assert repr(y) == f"<tensor {y._id} float64[2, 3] on sim:0, pending>"
        assert repr(mask) == f"<tensor {mask._id} of unknown shape on sim:0, pending>"
    mask.wait()
    failed = xp.linalg.inv(xp.zeros((2, 2)))
    later = failed @ failed
    sim_session.sync()
    for each in (failed, later):
        assert repr(each).startswith(f"<tensor {each._id} float64[2, 2] on cpu:0, failed: KernelValueError: inv")
        assert here(-5) in repr(each)


def test_repr_of_a_failed_tensor_of_unknown_shape_does_not_look_healthy(session):
    xp = session.xp
    wrong = xp.repeat(xp.ones(2), xp.asarray([1, -1]))
    session.sync()
    assert f"<tensor {wrong._id} of unknown shape on cpu:0, failed: KernelValueError: repeat_each" in repr(wrong)


def test_looking_changes_nothing(session):
    """The program's knowledge of a shape decides what is a view: printing in a debugger must not change it."""
    xp = session.xp
    rows = xp.ones((3, 2))[xp.asarray([True, False, True])]
    session.sync()
    assert "float64[2, 2]" in repr(rows)
    assert rows._meta is None
    assert "float64[2, 2]" in rows._repr_html_()


def test_repr_raises_nothing_and_waits_for_nobody(session, make_session):
    x = session.asarray([1.0, 2.0])
    with session.atomic():
        assert repr(x + 1.0).endswith("pending>")
    inside, done = threading.Event(), threading.Event()

    def hold() -> None:
        with session.atomic():
            inside.set()
            done.wait(WAIT)

    holder = threading.Thread(target=hold)
    holder.start()
    assert inside.wait(WAIT)
    assert repr(x).endswith("pending>")
    done.set()
    holder.join()
    assert repr(x).endswith("ready>")
    session.cancel()
    assert repr(x + 1.0).find("failed: CancelledError") > 0
    other = make_session()
    y = other.asarray(1.0)
    other.close()
    assert repr(y) == f"<tensor {y._id} float64[] on cpu:0, lost: its session has ended>"
    assert "lost" in y._repr_html_()


def test_an_error_is_shown_in_one_line_of_bounded_length():
    text = display.shortened("KernelError: first\nsecond " + "x" * 10_000)
    assert text.startswith("KernelError: first second xxx")
    assert len(text) < 400


def test_notebooks_show_the_value_if_it_is_there(sim_session):
    x = sim_session.asarray(np.arange(6.0).reshape(2, 3), device="sim:0")
    x.wait()
    shown = x._repr_html_()
    head, _, value = shown.partition("</code>")
    assert head.endswith("float64[2, 3] on sim:0, ready&gt;")
    assert value.endswith(">[[0. 1. 2.]\n [3. 4. 5.]]</pre>")
    assert all(f'<{tag} style="font-family: ' in shown and "monospace" in shown for tag in ("code", "pre"))
    with held(sim_session, "sim:0", "compute"):
        assert "pending" in (x + 1.0)._repr_html_()
        assert "<pre" not in (x + 1.0)._repr_html_()


def test_what_notebooks_show_is_escaped_and_bounded(session):
    x = session.asarray(np.arange(30_000))
    with np.printoptions(threshold=10**9):
        assert len(x._repr_html_()) < display.MAX_HTML_LENGTH + 200
    failed = session.xp.linalg.inv(session.xp.zeros((2, 2)))
    session.sync()
    assert "<tensor" not in failed._repr_html_()
    assert "&lt;tensor" in failed._repr_html_()
    x.release()
    assert x._repr_html_().startswith("&lt;tensor")


def test_a_look_moves_nothing(sim_session):
    """Moves of a program start when the program asks for a value, and not when a person looks."""
    x, y = sim_session.asarray(np.ones(1000)), sim_session.asarray(np.ones(3))
    away = x.to_device("sim:0")
    assert repr(y).endswith("ready>")
    assert repr(away).endswith("pending>")
    assert moved(sim_session) == {}
    away.wait(WAIT)
    assert repr(away).endswith("ready>")

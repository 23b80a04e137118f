"""`session.link`: programs that were not captured here; and the report of a routine."""

from __future__ import annotations

import numpy as np
import pytest

import tensord as td
from tensord.interpreter.errors import MetadataError, MetadataTypeError, ProtocolError

from ...each_case import each_case

TEXT = """\
tensord program 1
number $0 rate: float
number $1: float = neg $0
parameter %0 x: float64[3] on d0
captured %1 w: float64[3] on d0
%2: float64[3] = multiply %0, $1 on d0
%3: float64[3] = add %1, %2 into %1 on d0
%4: float64[] = sum %3 on d0
return %2, %4
"""
PROGRAM = td.Program.parse(TEXT)


@pytest.fixture
def w(session):
    return session.asarray([1.0, 1.0, 1.0])


@pytest.fixture
def x(session):
    return session.asarray([1.0, 2.0, 3.0])


def test_a_linked_program_is_a_function(session, w, x):
    f = session.link(PROGRAM, tensors={"w": w})
    for n in range(1, 5):  # op by op at first
        y, total = f(x, rate=0.5)
        assert y.tolist() == [-0.5, -1.0, -1.5]
        assert w.tolist() == [1 - 0.5 * n, 1 - 1.0 * n, 1 - 1.5 * n]
        assert total.item() == 3 - 3.0 * n


def test_of_several_programs_there_are_several_functions(session, w, x):
    f, g = session.link([PROGRAM, PROGRAM], tensors={"w": w})
    f(x, rate=1.0)
    assert g(x, rate=1.0)[1].item() == 3 - 12.0


def test_slots_may_lie_on_other_devices(session, w, x):
    device = session.devices[-1]
    f = session.link(PROGRAM, devices={"d0": device}, tensors={"w": w})
    assert [each.device for each in f(x, rate=1.0)] == [device, device]


def test_what_a_program_captures_is_found_in_the_contexts_around(session, x):
    with session.context() as outer:
        outer["w"] = session.asarray([1.0, 1.0, 1.0])
        with session.context():
            assert session.link(PROGRAM)(x, rate=1.0)[1].item() == -3.0
    with pytest.raises(MetadataError, match="captures a tensor 'w'"):
        session.link(PROGRAM)


class TestRefusals:
    @each_case(
        ("call", "error", "said"),
        [
            (lambda f, _: f(rate=1.0), MetadataError, "takes 1 tensors: x float64"),
            (lambda f, x: f(x, x, rate=1.0), MetadataError, "takes 1 tensors"),
            (lambda f, x: f(x[:2], rate=1.0), MetadataError, r"parameter x is float64\[3\], not float64\[2\]"),
            (lambda f, x: f(x), MetadataTypeError, "takes the numbers rate, by name"),
            (lambda f, x: f(x, rate="1"), MetadataTypeError, "the number rate is float, not str"),
            (lambda f, x: f(x, rate=1.0, more=2), MetadataTypeError, "takes the numbers rate"),
            (lambda f, _: f(3.0, rate=1.0), MetadataTypeError, "expected a tensor"),
        ],
    )
    def test_a_call_names_what_does_not_fit_at_its_line(self, session, w, x, call, error, said):
        f = session.link(PROGRAM, tensors={"w": w})
        with pytest.raises(error, match=said) as caught:
            call(f, x)
        assert "test_linking.py" in (caught.value.location or "")

    @each_case(
        ("options", "said"),
        [
            ({"devices": {"d1": "cpu:0"}}, "no device slot 'd1'"),
            ({"devices": {"d0": "tpu:0"}}, "unknown device 'tpu:0'"),
            ({"tensors": {}}, "captures a tensor 'w'"),
        ],
    )
    def test_a_link_names_what_does_not_fit(self, session, w, options, said):
        with pytest.raises(MetadataError, match=said):
            session.link(PROGRAM, **{"tensors": {"w": w}, **options})

    def test_only_programs_are_linked(self, session):
        for wrong in (3, "text", [PROGRAM, None]):
            with pytest.raises(MetadataTypeError, match="takes a program"):
                session.link(wrong)

    def test_a_captured_tensor_has_the_programs_meta(self, session):
        with pytest.raises(MetadataError, match=r"w is float64\[3\], not float64\[2\]"):
            session.link(PROGRAM, tensors={"w": session.asarray([1.0, 2.0])})

    @pytest.mark.parametrize("name", ["w", ""])
    def test_captured_tensors_of_one_name_are_not_given_by_it(self, session, w, name):
        program = td.Program.parse(
            f"tensord program 1\ncaptured %0 {name}: float64[3] on d0\ncaptured %1 {name}: float64[3] on d0\n"
            "%2: float64[3] = subtract %0, %1 on d0\nreturn %2\n"
        )
        with pytest.raises(MetadataError, match=f"captures 2 tensors of the name '{name}'") as caught:
            session.link(program, tensors={name: w})
        assert "test_linking.py" in (caught.value.location or "")


class TestReport:
    def test_says_where_each_value_lies_and_why(self, session, w, x):
        f = session.link(PROGRAM, devices={"d0": "cpu:0"}, tensors={"w": w})
        assert "not compiled yet" in str(f.report())
        for _ in range(2):
            f(x, rate=1.0)
        report = f.report()
        (piece,) = report["pieces"]
        assert (report["ops"], piece["how"], piece["calls"]) == (3, "segment", 3)
        assert [tuple(each) for each in report["values"]] == [
            ("on device", "a parameter"),
            ("on device", "captured"),
            ("on device", "a result"),
            ("on device", "written in place"),
            ("on device", "a result"),
        ]
        assert "%3 float64[3]: on device, written in place" in str(report)

    def test_names_what_is_local_virtual_or_a_view(self, session):
        f = session.routine(lambda x: (((x * 2 + 1) * x).T @ x).sum())
        x = session.asarray(np.ones((600, 600)), device="cpu:0")
        for _ in range(3):
            f(x)
        modes = {why.split()[0]: mode for mode, why in f.report()["values"]}
        assert modes["between"] == "virtual"
        assert "local" in {mode for mode, _ in f.report()["values"]}
        assert [fusion for piece in f.report()["pieces"] for fusion in piece["fusions"]]

    @each_case(("axis", "why"), [(-1, ""), (0, "other than the last ones"), (None, "all axes"), ((0, 1), "all axes")])
    def test_says_why_a_reduction_is_in_no_fusion(self, session, axis, why):
        f = session.routine(lambda x: (x * 2 + 1).sum(axis=axis))
        x = session.asarray(np.ones((600, 600)), device="cpu:0")
        for _ in range(3):
            f(x)
        reason = f.report()["values"][-1][1]
        assert reason.partition("; not in a fusion: ")[0] == "a result"
        assert why in reason
        assert ("not in a fusion" in reason) == bool(why)

    def test_a_softmax_is_one_fusion(self, session):
        def softmax(x):
            exp = session.xp.exp(x - session.xp.max(x, axis=-1, keepdims=True))
            return exp / session.xp.sum(exp, axis=-1, keepdims=True)

        f, values = session.routine(softmax), np.random.default_rng(0).normal(size=(600, 600))
        values[3, 5], values[7, 9] = np.nan, np.inf
        x = session.asarray(values, device="cpu:0")
        for operand in (x, x, x, x.T):  # the last operand differs from the one it was compiled for
            assert f(operand).numpy().tobytes() == softmax(operand).numpy().tobytes()
        assert f.captures == 1
        assert [piece["fusions"] for piece in f.report()["pieces"]] == [[[0, 1, 2, 3, 4]]]

    def test_a_routine_that_was_not_called_has_none(self, session):
        with pytest.raises(ProtocolError, match="has not been called yet"):
            session.routine(lambda x: x).report()

"""`tensord ops`: all ops, one op, an unknown name."""

from __future__ import annotations

import json
import re
import sys
import types
from typing import Any

import numpy as np
import pytest

import tensord.interpreter.ops  # noqa: F401 - fills the registry
from tensord.client.cli.drawing import terminal
from tensord.client.cli.programs import ops as cli_ops
from tensord.interpreter import op_descriptions
from tensord.interpreter.schema import op_table
from tensord.interpreter.schema.opdef import REGISTRY
from tensord.interpreter.schema.opdoc import description_of


@pytest.fixture(autouse=True)
def without_cupy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)


@pytest.fixture
def cupy(monkeypatch):
    """An array module that has elementwise functions and little else."""
    made: Any = types.ModuleType("cupy")
    made.add, made.take, made.linalg = np.add, np.take, types.SimpleNamespace(svd=np.linalg.svd)
    monkeypatch.setitem(sys.modules, "cupy", made)
    return made


@pytest.fixture
def made(monkeypatch, tmp_path):
    """made(**fields of OpDef) -> an op in the table."""

    def make(**fields):
        from tensord.interpreter.schema.opdef import OpDef

        op = OpDef(**{"name": "made", "inputs": 1, "infer": lambda metas, _: metas, "summary": "Made up.", **fields})
        table = tmp_path / "ops.json"
        table.write_text(op_table.json_table(map(description_of, [*REGISTRY.values(), op])))
        monkeypatch.setattr(op_descriptions, "TABLE_FILE", table)
        return op

    return make


class TestAll:
    def test_every_op_stands_in_its_family_with_its_operands_and_text(self, run):
        code, out, err = run("ops")
        assert (code, err) == (0, "")
        lines = [line.split() for line in out.splitlines()]
        for family, members in op_table.by_family(map(description_of, REGISTRY.values())).items():
            assert family.split() in lines
            for op in members:
                assert [line for line in lines if line[:1] == [op["name"]]]
        assert f"{len(REGISTRY)} ops; `tensord ops NAME` describes one" in out
        assert " where " in out
        assert " condition, x1, x2 " in out

    def test_long_texts_are_whole_lines_in_a_pipe(self, run, made, monkeypatch):
        monkeypatch.setattr(terminal, "PIPED_WIDTH", 80)
        long = " ".join(["word"] * 200) + "."
        made(summary=long)
        assert long in run("ops")[1]
        assert long in run("ops", "made")[1]

    def test_on_a_terminal_texts_take_several_lines(self, run, made, monkeypatch):
        made(summary="word " * 100 + "end.")
        monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
        monkeypatch.setenv("COLUMNS", "70")
        lines = re.sub("\x1b\\[[0-9]*m", "", run("ops")[1]).splitlines()
        assert [line for line in lines if len(line) > 70] == []
        assert " ".join(lines).count("word") == 100

    def test_for_programs_with_every_field(self, run):
        code, out, _ = run("ops", "--json")
        found = json.loads(out)
        assert code == 0
        assert [one["name"] for one in found] == list(REGISTRY)
        for one in found:
            expected = json.loads(json.dumps(description_of(REGISTRY[one["name"]])))
            assert one == {**expected, "lacks": {}}

    def test_no_daemon_is_asked(self, run, monkeypatch):
        monkeypatch.setenv("TENSORD_ADDRESS", "ipc:///nowhere")
        assert run("ops")[0] == 0


class TestOne:
    def test_operands_dtypes_attributes_and_results_are_told(self, run):
        code, out, err = run("ops", "where")
        assert (code, err) == (0, "")
        lines = [line.strip() for line in out.splitlines()]
        assert lines[0] == f"where: {REGISTRY['where'].summary}"
        assert "operands      condition  boolean" in lines
        assert "x1, x2     all: bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, " in out
        assert "attributes    none" in lines
        assert "gives         1 tensor, shape and dtype known at the call" in lines
        assert "memory        may be that of an operand, with out=" in lines
        assert "devices       all" in lines

    def test_attributes_have_their_defaults(self, run):
        lines = [line.strip() for line in run("ops", "uniform")[1].splitlines()]
        assert "attributes    shape  required" in lines
        assert "dtype  'float64' by default" in lines
        assert "high   1.0 by default" in lines
        assert "operands      seed, [call], [part]  Python scalar" in lines

    def test_what_is_special_is_told(self, run, made):
        assert "of a shape that the data decide" in run("ops", "nonzero")[1]
        assert "its operand's, where strides can express it" in run("ops", "reshape")[1]
        assert "only a part is written" in run("ops", "setitem")[1]
        made(outputs=2)
        assert "2 tensors, shapes and dtypes known at the call" in run("ops", "made")[1]
        made(outputs=2, dynamic=True)
        assert "2 tensors, of shapes that the data decide" in run("ops", "made")[1]

    def test_for_programs_it_is_one_object(self, run):
        found = json.loads(run("ops", "sum", "--json")[1])
        assert found == {**json.loads(json.dumps(description_of(REGISTRY["sum"]))), "lacks": {}}

    @pytest.mark.parametrize(("compose", "elsewhere"), [(None, "runs on a cpu device"), (len, "is made of other ops")])
    def test_without_cupy_it_says_what_a_device_has_to_have(self, run, made, compose, elsewhere):
        made(needs=("linalg.eig", "take"), compose=compose)
        said = f"cpu and sim, and cuda where CuPy has linalg.eig and take; else it {elsewhere}\n"
        assert said in run("ops", "made")[1]

    @pytest.mark.parametrize(("compose", "elsewhere"), [(None, "runs on a cpu device"), (len, "is made of other ops")])
    @pytest.mark.usefixtures("cupy")
    def test_with_cupy_it_says_what_that_lacks(self, run, made, compose, elsewhere):
        made(needs=("take", "linalg.eig"), compose=compose)
        said = f"cpu and sim; CuPy has no linalg.eig, so that for cuda it {elsewhere}\n"
        assert said in run("ops", "made")[1]
        assert json.loads(run("ops", "made", "--json")[1])["lacks"] == {"cupy": "linalg.eig"}
        made(needs=("take", "linalg.svd"))
        assert "devices       all\n" in run("ops", "made")[1]
        assert json.loads(run("ops", "made", "--json")[1])["lacks"] == {"cupy": None}

    def test_a_cupy_that_does_not_work_is_none(self, monkeypatch):
        class Broken:
            def find_spec(self, name, *_):
                if name == "cupy":
                    raise OSError("no driver")

        monkeypatch.delitem(sys.modules, "cupy")
        monkeypatch.setattr("sys.meta_path", [Broken(), *sys.meta_path])
        assert cli_ops._cupy() is None


class TestNone:
    def test_near_names_are_offered(self, run):
        assert run("ops", "mulitply") == (2, "", "tensord: unknown op 'mulitply'; did you mean multiply?\n")

    def test_otherwise_the_list_is(self, run):
        assert run("ops", "zzz") == (2, "", "tensord: unknown op 'zzz'; `tensord ops` lists all\n")

    def test_for_programs_it_is_an_object_with_the_error(self, run):
        code, out, err = run("ops", "zzz", "--json")
        assert (code, err) == (2, "")
        assert json.loads(out) == {"error": "unknown op 'zzz'"}

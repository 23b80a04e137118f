"""The harness of the proof: however a stage ends, the others run, and the report says how it ended."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from . import check, report, supervise
from .bundle import ROOT, Unpacked
from .check import Proof, judge, lacking, main, parse
from .record import Recorder, Tally, read
from .resume import Earlier
from .stages import NAMES, STAGES, Stage, limit_of, stages_for
from .supervise import Ended

TRIAL = "tests.gpu.trial_stage"
MACHINE = {"missing": "", "modules": {}}


def trial(what: str, **fields: object) -> Stage:
    return Stage(what, "1-trial", what, TRIAL, 1.0, (what,), **fields)  # type: ignore[arg-type]


@pytest.fixture
def prove(tmp_path, monkeypatch):
    """prove(stages, budget) -> the report, with an empty bundle, without a description of the machine."""
    monkeypatch.setattr(check, "unpack", lambda *_: Unpacked([], [], []))
    monkeypatch.setattr(check, "describe", lambda *_: dict(MACHINE))

    def run(*stages: Stage, budget: float = 60.0, resume: dict[str, Any] | None = None) -> dict[str, Any]:
        work, folder = tmp_path / "work", tmp_path / "out"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        folder.mkdir(exist_ok=True)
        passed = Proof("sim:0", folder, budget, work, stages, earlier=Earlier(resume)).run()
        document = json.loads((folder / "report.json").read_text())
        assert document["passed"] is passed
        return document

    return run


OUTCOMES = {  # of trial stages: the status, and the reason in the report
    "skips": ("passed", ""),
    "fails": ("failed", "1 checks, the first: third: ValueError: it is wrong"),
    "breaks": ("failed", "the first: the stage itself: ValueError: nobody expected that"),
    "crashes": ("crashed", "exit status -11; in the stage itself, third"),
    "passes": ("passed", ""),
}


def test_a_stage_is_told_of_and_the_next_one_runs(prove, tmp_path, capsys):
    document = prove(*map(trial, OUTCOMES))
    assert document["passed"] is False
    printed, page = capsys.readouterr().out, (tmp_path / "out/report.md").read_text()
    assert "1/5" in printed
    assert "5/5" in printed
    for what, found in zip(OUTCOMES, document["stages"], strict=True):
        status, why = OUTCOMES[what]
        assert found["status"] == status, what
        assert why in found["why"]
        assert found["figures"] == [{"name": "answer", "value": 42, "unit": "units", "bound": 50}]
        assert {"reason": "nothing here to do it with", "count": 1} in found["skipped"]
        assert f"| {what} " in printed
        assert status in printed
        assert f"## {what}: {what}" in page
    assert page.count("- answer: 42 units (bound 50)") == 5


def test_what_passes_is_a_proof(prove):
    assert prove(trial("passes"))["passed"] is True


def test_a_check_that_hangs_is_ended_and_its_stage_goes_on_behind_it(prove, tmp_path):
    (stage,) = prove(trial("hangs in one", each=2.0))["stages"]
    assert stage["status"] == "failed"
    assert [(one["check"], one["message"].partition(":")[0]) for one in stage["failures"]] == [("fourth", "it hung")]
    assert stage["running"] == []
    assert "trial_stage.py" in (tmp_path / "out" / stage["log"]).read_text()


def test_nothing_that_a_stage_has_started_outlives_it(prove):
    (stage,) = prove(trial("starts others"))["stages"]
    (pid,) = stage["notes"]
    status = Path(f"/proc/{pid}/stat")
    assert not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z"


def test_the_parts_of_a_stage_are_added_up(prove, monkeypatch):
    monkeypatch.setattr(check, "parts_of", lambda _: 3)
    (stage,) = prove(trial("passes", split=True))["stages"]
    assert stage["counts"] == {"passed": 6, "failed": 0, "skipped": 3}


def test_a_stage_without_what_it_needs_is_skipped_with_the_reason_and_proves_nothing(prove):
    document = prove(trial("passes", needs=("no_such_module",)))
    assert [stage["status"] for stage in document["stages"]] == ["skipped"]
    assert "no_such_module" in document["stages"][0]["why"]
    assert document["passed"] is False


def test_a_stage_that_shows_something_on_a_gpu_alone_is_no_part_of_another_devices_proof(tmp_path):
    real = {stage.name for stage in STAGES if stage.real}
    assert {stage.name for stage in stages_for("cuda:0")} - {stage.name for stage in stages_for("sim:0")} == real
    with pytest.raises(SystemExit, match="sanitizer: this shows nothing on sim:0"):
        main(["--device", "sim:0", "--only", "sanitizer", "--out", str(tmp_path)])


def test_each_finding_is_a_line_in_a_file_and_on_standard_output(prove, tmp_path, capsys):
    prove(trial("fails"), trial("misses"))
    found = [json.loads(line) for line in (tmp_path / "out/findings.jsonl").read_text().splitlines()]
    assert [(one["stage"], one["kind"]) for one in found] == [
        ("fails", "failed"),
        ("fails", "stage"),
        ("misses", "missed"),
        ("misses", "stage"),
    ]
    assert (found[0]["check"], found[0]["message"].splitlines()[0]) == ("third", "ValueError: it is wrong")
    assert (found[1]["status"], found[1]["counts"]["failed"]) == ("failed", 1)
    printed = capsys.readouterr().out
    shown = [json.loads(line.partition("finding ")[2]) for line in printed.splitlines() if "finding " in line]
    assert [one["kind"] for one in shown] == ["failed", "missed"]


def test_a_stage_that_hangs_is_ended_and_the_report_has_what_it_has_found_while_it_still_runs(
    prove, monkeypatch, tmp_path
):
    monkeypatch.setattr(supervise, "WATCH", 0.0)
    seen: list[Any] = []
    write = report.write

    def keep(folder, document):
        write(folder, document)
        seen.append((folder / "findings.jsonl").exists() and document["stages"][-1])

    monkeypatch.setattr(report, "write", keep)
    document = prove(trial("fails and hangs"), budget=6.0)
    running = [stage for stage in seen if stage and stage["status"] == "running"]
    assert running[-1]["failures"][0]["check"] == "third"
    (stage,) = document["stages"]
    assert seen[-1]["status"] == stage["status"] == "timed out"
    assert "in the stage itself, fourth" in stage["why"]
    assert stage["seconds"] < 30
    assert "trial_stage.py" in (tmp_path / "out" / stage["log"]).read_text()


def test_where_the_device_is_missing_every_stage_says_so():
    missing = {"missing": "CuPy cannot be imported", "modules": {}}
    assert {lacking(stage, "cuda:0", missing) for stage in STAGES} == {"no CUDA device: CuPy cannot be imported"}


def test_a_stage_that_ends_early_or_without_a_check_has_not_passed():
    well = Ended((0,), 1.0, timed_out=False)
    assert judge(Tally(), well, "")[0] == "failed"
    assert judge(Tally(passed=1, finished=False), well, "last words") == ("crashed", "exit status 0; last words")
    assert judge(Tally(passed=1), Ended((0, 1), 1.0, timed_out=False), "")[0] == "crashed"


def test_a_record_that_was_cut_off_in_the_middle_counts_up_to_there(tmp_path):
    path = tmp_path / "record"
    record = Recorder(path)
    record.begin("a")
    record.passed("a")
    record.begin("b")
    record.finish()
    with path.open("a") as file:
        file.write('{"event": "pas')
    tally = read([path, tmp_path / "never-written"])
    assert (tally.passed, tally.running, tally.finished) == (1, ["b"], False)


@pytest.fixture
def short_hangs(monkeypatch):
    """A stage that hangs has five seconds; the others have the time that the proof gives them."""
    run = supervise.run

    def shorter(commands, *, limit, **given):
        return run(commands, limit=5.0 if "hangs" in commands[0] else limit, **given)

    monkeypatch.setattr(supervise, "run", shorter)


@pytest.mark.usefixtures("short_hangs")
def test_a_report_is_resumed_by_the_checks_that_it_lacks_and_the_stages_that_did_not_end(prove, capsys):
    stages = [trial("fails"), trial("counts", resumes=True), trial("hangs"), trial("passes")]
    first = prove(*stages[:3], budget=60.0)
    assert [stage["status"] for stage in first["stages"]] == ["failed", "failed", "timed out"]
    assert (first["stages"][1]["done"], first["stages"][1]["unreached"]) == (["first", "second", "a", "b"], 2)

    capsys.readouterr()
    stages[2] = replace(trial("passes"), name="hangs")
    second = prove(*stages, resume=first)
    assert "failed before" in capsys.readouterr().out
    fails, counts, hangs, passes = second["stages"]
    assert fails == first["stages"][0]
    assert counts["done"] == ["first", "second", "a", "b", "first", "second", "c", "d"]
    assert (counts["unreached"], counts["counts"]) == (0, {"passed": 7, "failed": 1, "skipped": 2})
    assert [failure["check"] for failure in counts["failures"]] == ["b"]
    assert (hangs["status"], passes["status"]) == ("passed", "passed")
    assert hangs["counts"]["passed"] == 2  # anew: it cannot go on
    assert [run["commit"] for run in second["resumed"]] == [first["commit"]]
    assert second["seconds"] > first["seconds"]


def test_what_a_resumed_run_has_not_come_to_stays_in_its_report(prove, tmp_path):
    first = prove(trial("fails"), trial("passes"))
    again = prove(trial("passes"), resume=first)
    assert sorted(stage["name"] for stage in again["stages"]) == ["fails", "passes"]
    assert again["passed"] is False
    assert "goes on with a run of commit" in (tmp_path / "out/report.md").read_text()


def test_a_report_that_cannot_be_resumed_is_refused(tmp_path, capsys):
    report = {"device": "sim:0", "fake": "", "stages": [], "resumed": [], "seconds": 9.0, "commit": "", "started": ""}
    (tmp_path / "report.json").write_text(json.dumps(report))
    (tmp_path / "old.json").write_text(json.dumps({**report, "stages": [{"name": "ops"}]}))
    assert parse(["--device", "sim:0", "--resume", str(tmp_path)]).earlier.seconds == 9.0
    for device, name in (("cpu:0", ""), ("sim:0", "none"), ("sim:0", "old.json")):
        options = ["--device", device, "--resume", str(tmp_path / name)]
        with pytest.raises(SystemExit) as ended:
            parse(options)
        assert ended.value.code == 2
    assert "is of --device sim:0" in (printed := capsys.readouterr().err)
    assert "cannot be resumed" in printed


def test_stages_share_cupys_cache(tmp_path, monkeypatch):
    monkeypatch.delenv("CUPY_CACHE_DIR", raising=False)
    proof = Proof("sim:0", tmp_path, 1.0, tmp_path)
    assert proof.environment()["CUPY_CACHE_DIR"] == str(tmp_path / "kernels")
    monkeypatch.setenv("CUPY_CACHE_DIR", "/somewhere/warm")
    assert proof.environment()["CUPY_CACHE_DIR"] == "/somewhere/warm"


def test_time_that_a_stage_leaves_goes_to_the_later_ones():
    first, *later = STAGES
    assert limit_of(STAGES[-1], [], 100.0) == 100.0
    assert limit_of(first, later, 200.0) == 2 * limit_of(first, later, 100.0)
    assert sum(limit_of(stage, (), 1.0) for stage in STAGES) == len(STAGES)


@pytest.fixture
def limits(monkeypatch):
    """The seconds that each stage may take; it takes none."""
    limits: list[float] = []

    def noted(*_, limit, **__):
        limits.append(limit)
        return Ended((0,), 0.0, timed_out=False)

    monkeypatch.setattr(supervise, "run", noted)
    return limits


def test_a_stage_that_is_slow_may_take_twice_its_share_of_the_time(prove, limits):
    prove(trial("passes"), trial("passes"), trial("passes"), budget=90.0)
    assert limits[0] == pytest.approx(60, rel=0.2)
    assert limits[-1] < 90


def test_a_slow_stage_leaves_half_of_their_time_to_the_later_ones(prove, limits):
    prove(replace(trial("passes"), share=80.0), replace(trial("passes"), share=20.0), budget=100.0)
    assert limits[0] == pytest.approx(90, rel=0.1)


def test_what_is_kept_for_the_last_stage_does_not_shrink_with_each_slow_one(tmp_path):
    stages = [replace(trial("passes"), share=share) for share in (50.0, 30.0, 20.0)]
    proof = Proof("sim:0", tmp_path, 100.0, tmp_path, stages)
    assert proof.kept(stages[1:]) == 25.0
    assert proof.kept(stages[2:]) == 10.0


def test_a_package_with_our_name_is_not_in_the_way(tmp_path, monkeypatch):
    (tmp_path / "elsewhere/tests").mkdir(parents=True)
    (tmp_path / "elsewhere/tests/__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path / "elsewhere")
    site = tmp_path / "site"
    site.mkdir()
    check.unshadow(site)
    assert [path.name for path in site.iterdir()] == ["tests"]
    assert str(ROOT / "tests") in (site / "tests/__init__.py").read_text()


def test_stages_know_nothing_of_the_users_daemons(tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORD_ADDRESS", "ipc:///somewhere")
    env = Proof("sim:0", tmp_path, 1.0, tmp_path).environment()
    assert "TENSORD_ADDRESS" not in env
    assert env["PYTHONPATH"].split(os.pathsep)[0] == str(tmp_path / "site")


def test_a_long_log_keeps_its_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(check, "LOG", 100)
    log = tmp_path / "log"
    log.write_text("begin" + "." * 1000 + "end")
    check.shorten(log)
    assert log.stat().st_size < 120
    assert (log.read_text()[:5], log.read_text()[-3:]) == ("begin", "end")


@pytest.mark.parametrize("wrong", [["--only", "nothing"], ["--budget", "0"], ["--budget", "soon"], ["--colour"]])
def test_wrong_options_are_refused_with_the_right_ones(wrong, capsys):
    with pytest.raises(SystemExit) as ended:
        main(wrong)
    assert ended.value.code == 2
    assert wrong[0] in capsys.readouterr().err


def test_results_go_where_out_says(monkeypatch, tmp_path):
    monkeypatch.setenv("OUT", str(tmp_path))
    assert parse([]).out == tmp_path / "gpu"
    monkeypatch.delenv("OUT")
    assert parse([]).out == ROOT / "out/gpu"


def test_help_names_every_stage(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    printed = capsys.readouterr().out
    assert all(name in printed for name in NAMES)


def test_a_verdict_does_not_say_more_than_was_run():
    stage = {"name": "ops", "status": "passed"}
    about = {"device": "cuda:0", "stages": [stage], "passed": True, "interrupted": False, "seconds": 1.0}
    assert report.verdict({**about, "complete": True}) == "cuda:0 is proven: all 1 stages passed in 1 s"
    assert report.verdict({**about, "complete": False}) == "ops passed on cuda:0; other stages were not run"


def test_what_a_stage_needs_is_kept_for_it(prove, limits):
    needy = replace(trial("passes"), share=1.0, least=40.0)
    prove(replace(trial("passes"), share=200.0), needy, budget=check.BUDGET)
    assert limits == [pytest.approx(check.BUDGET - 40, rel=0.1), pytest.approx(check.BUDGET, rel=0.1)]
    limits.clear()
    prove(replace(trial("passes"), share=200.0), needy, budget=check.BUDGET / 10)
    assert limits[0] == pytest.approx((check.BUDGET - 40) / 10, rel=0.1)


def test_a_stage_aside_runs_at_the_same_time_as_those_behind_it(prove):
    document = prove(trial("waits", aside=True), trial("passes"), trial("skips"), budget=40.0)
    assert {stage["name"]: stage["status"] for stage in document["stages"]} == {
        "waits": "passed", "passes": "passed", "skips": "passed"
    }  # fmt: skip


def test_an_interrupt_ends_a_stage_aside(prove, monkeypatch):
    run = supervise.run

    def interrupted(commands, **options):
        if "passes" in commands[0]:
            raise KeyboardInterrupt
        return run(commands, **options)

    monkeypatch.setattr(supervise, "run", interrupted)
    document = prove(trial("hangs", aside=True), trial("passes"), budget=600.0)
    assert document["interrupted"]
    assert [stage["status"] for stage in document["stages"]] == ["timed out"]

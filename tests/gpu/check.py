"""One command that proves a device: every stage in a process of its own, under a time limit, and a report.

    python tests/gpu                    # `make gpu-check`: cuda:0
    python tests/gpu --device sim:0     # the same without a GPU

Nothing is installed and nothing fetched: what this Python lacks comes from the bundle (`bundle`), unpacked into a
folder that is on the path of the stages alone. A stage that fails, crashes or hangs is told of, and the next one runs.
This file and those that it imports need nothing but Python.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from . import fake, report, supervise
from .bundle import FOLDER, ROOT, Unpacked, unpack
from .findings import Findings
from .record import Tally, give_up, hanging, read
from .resume import Earlier, load, merged
from .stages import MEMORY_OF_A_PART, NAMES, PARTS, STAGES, Stage, limit_of, stages_for

BUDGET = 450.0  # seconds
OWN = 0.9  # of its limit, within which a stage tries to end by itself
PATIENCE = 2.0  # times its share, after which a stage that has not ended is killed
LEFT = 0.5  # of its share of the whole time, which is reserved for each of the others
LOG = 8 << 20  # bytes of a log that are kept
OURS = ("tests", "examples", "bench")  # folders that stages import, and that some installed package may also be called


@dataclass
class Proof:
    """One run of the stages, and its results so far."""

    device: str
    folder: Path
    budget: float
    work: Path  # for temporary files: unpacked wheels, records, compiled kernels
    stages: Sequence[Stage] = STAGES
    outcomes: list[dict[str, Any]] = field(default_factory=list)
    machine: dict[str, Any] = field(default_factory=dict)
    bundle: Unpacked = field(default_factory=lambda: Unpacked([], [], []))
    fake: str = ""  # the fake in place of the GPU: its seed and faults
    earlier: Earlier = field(default_factory=Earlier)  # results of the run that is resumed
    interrupted: bool = False
    over: bool = False  # do running stages have to end?
    running: dict[str, dict[str, Any]] = field(default_factory=dict)  # findings of running stages so far
    lock: threading.RLock = field(default_factory=threading.RLock)  # of the results, since stages run side by side
    findings: Findings = field(init=False)
    begun: float = field(default_factory=time.monotonic)
    started: str = field(default_factory=lambda: time.strftime("%Y-%m-%d %H:%M:%S %Z"))

    def __post_init__(self) -> None:
        self.findings = Findings(self.folder / "findings.jsonl", say)

    @property
    def passed(self) -> bool:
        """Has every stage passed?"""
        good = all(one["status"] == "passed" for one in (*self.outcomes, *self.untouched(self.outcomes)))
        return good and len(self.outcomes) == len(self.stages) and not self.interrupted

    def run(self) -> bool:
        """Run all stages; have all of them passed?"""
        self.prepare()
        aside: list[threading.Thread] = []
        try:
            for index, stage in enumerate(self.stages):
                say(f"{index + 1}/{len(self.stages)} {stage.name}: {stage.title}")
                if known := self.earlier.whole(stage):
                    self.outcomes.append(known)
                    say(f"    {known['status']} before")
                    continue
                later = [one for one in self.stages[index + 1 :] if not (one.aside or self.earlier.whole(one))]
                if stage.aside:
                    aside.append(threading.Thread(target=self.run_one, args=(stage, [])))
                    aside[-1].start()
                else:
                    self.run_one(stage, later)
            for thread in aside:
                thread.join()
        except KeyboardInterrupt:
            self.interrupted = True
        finally:
            self.over = True
            for thread in aside:
                thread.join()
        self.outcomes.sort(key=lambda outcome: in_order(outcome["name"]))
        report.write(self.folder, self.document())
        say("", *report.table(self.outcomes), "", report.verdict(self.document()), f"{self.folder}/report.md")
        return self.passed

    def run_one(self, stage: Stage, later: Sequence[Stage]) -> None:
        """Run a stage, and report it. `later`: the stages for which time is reserved."""
        outcome = self.outcome(stage, later)
        with self.lock:
            self.running.pop(stage.name, None)
            self.outcomes.append(outcome)
            self.findings.of_stage(outcome)
            said = f"{outcome['status']} in {outcome['seconds']:.1f} s, {counted(outcome)}"
            say(f"    {stage.name}: {said}" if stage.aside else f"    {said}")
            report.write(self.folder, self.document())

    def prepare(self) -> None:
        """Unpack the bundle, and look at the machine."""
        for pattern in () if self.earlier.stages else ("*.log", "report.*", "findings.jsonl"):
            for old in self.folder.glob(pattern):
                old.unlink()
        site = self.work / "site"
        site.mkdir()
        self.bundle = unpack(FOLDER, site)
        unshadow(site)
        fake.prepare(site)
        self.machine = describe(self.device, self.environment(), self.work)
        say(f"{self.device}: {self.machine['missing'] or 'there'}; report in {self.folder}")
        for problem in self.bundle.problems:
            say(f"bundle: {problem}")

    def environment(self) -> dict[str, str]:
        """The environment of stages: unpacked wheels come first on the path, then the checkout; a daemon of the user's
        is out of reach.
        """
        path = [str(self.work / "site"), str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("TENSORD_")},
            **({fake.VARIABLE: self.fake} if self.fake else {}),
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
            "PYTHONUNBUFFERED": "1",
            "PYTHONFAULTHANDLER": "1",
            "PYTHONPYCACHEPREFIX": str(self.work / "bytecode"),  # compiled once for all stages, and not in the checkout
            "CUPY_CACHE_DIR": os.environ.get("CUPY_CACHE_DIR") or str(self.work / "kernels"),  # one for all processes
            "HYPOTHESIS_STORAGE_DIRECTORY": str(self.work / "hypothesis"),
            "XDG_RUNTIME_DIR": str(self.work),
        }

    def outcome(self, stage: Stage, later: Sequence[Stage]) -> dict[str, Any]:
        """Run one stage, unless a requirement of it is missing."""
        log = self.folder / f"{stage.group}.log"
        about = {"name": stage.name, "group": stage.group, "title": stage.title, "log": log.name}
        if reason := lacking(stage, self.device, self.machine):
            empty = {"limit": 0.0, "seconds": 0.0, "exit": [], **Tally().as_json()}
            return {**about, "status": "skipped", "why": reason, **empty}
        remaining = max(1.0, self.budget - (time.monotonic() - self.begun))
        share = limit_of(stage, later, remaining)
        limit = max(1.0, min(max(PATIENCE * share, self.least(stage)), remaining - self.kept(later)))
        records = [self.work / f"{stage.name}-{index}.jsonl" for index in range(parts_of(stage))]
        with log.open("a") as file:
            file.write(f"== {stage.name}: {stage.title} (at most {limit:.0f} s)\n")
        known = self.earlier.part(stage)
        until = time.monotonic() + OWN * (share if stage.fills else limit)
        commands = stage.commands(self.device, records, until, self.done(stage, known))
        watch = partial(self.watch, {**about, "limit": round(limit, 1)}, known, records)
        hung = partial(self.hung, records, stage.each)
        ended = supervise.run(
            commands,
            env=self.environment(),
            cwd=ROOT,
            log=log,
            limit=limit,
            watch=watch,
            hung=hung,
            is_over=self.is_over,
        )
        with self.lock:
            self.findings.look(stage.name, records)
        shorten(log)
        tally = merged(known, read(records))
        status, why = judge(tally, ended, last_lines(log))
        seconds = round(ended.seconds + (known["seconds"] if known else 0), 2)
        figures = {"limit": round(limit, 1), "seconds": seconds, "exit": ended.statuses}
        return {**about, "status": status, "why": why, **figures, **tally.as_json()}

    def kept(self, later: Sequence[Stage]) -> float:
        """Seconds that are reserved for later stages."""
        whole = sum(one.share for one in self.stages if not one.aside)
        return sum(max(LEFT * self.budget * one.share / whole, self.least(one)) for one in later)

    def least(self, stage: Stage) -> float:
        """Seconds without which a stage shows nothing, with the usual budget."""
        return stage.least * min(1.0, self.budget / BUDGET)

    def hung(self, records: Sequence[Path], each: float, index: int) -> bool:
        """Has a process been in one check for too long? If so, the record says that the check has failed."""
        check = hanging(records[index], each) if each else ""
        if check:
            give_up(records[index], check, f"it hung: it had not ended after {each:.0f} s; the log says where it was")
        return bool(check)

    def is_over(self) -> bool:
        """Do running stages have to end?"""
        return self.over

    def done(self, stage: Stage, known: dict[str, Any] | None) -> Path | None:
        """A file with the checks that were made before."""
        if known is None:
            return None
        path = self.work / f"{stage.name}-done.json"
        path.write_text(json.dumps(known["done"]))
        return path

    def watch(
        self, about: dict[str, Any], known: dict[str, Any] | None, records: Sequence[Path], seconds: float
    ) -> None:
        """While a stage runs: write its findings so far, in case the process ends before the next report."""
        figures = {"seconds": round(seconds, 2), "exit": []}
        running = {**about, "status": "running", "why": "the proof was cut off here", **figures}
        with self.lock:
            self.findings.look(about["name"], records)
            self.running[about["name"]] = {**running, **merged(known, read(records)).as_json()}
            report.write(self.folder, self.document())

    def untouched(self, stages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The stages of the report that is resumed, but for these."""
        names = {stage["name"] for stage in stages}
        return [stage for name, stage in self.earlier.stages.items() if name not in names]

    def document(self) -> dict[str, Any]:
        """The report."""
        stages = [*self.outcomes, *self.running.values()]
        stages = sorted([*stages, *self.untouched(stages)], key=lambda stage: in_order(stage["name"]))
        return {
            "device": self.device,
            "passed": self.passed,
            "fake": self.fake,
            "complete": len(stages) == len(stages_for(self.device)),
            "interrupted": self.interrupted,
            "commit": commit(),
            "started": self.started,
            "seconds": round(time.monotonic() - self.begun + self.earlier.seconds, 1),
            "resumed": self.earlier.runs,
            "budget": self.budget,
            "machine": self.machine,
            "bundle": self.bundle._asdict(),
            "stages": stages,
        }


def judge(tally: Tally, ended: supervise.Ended, last: str) -> tuple[str, str]:
    """A stage's status, and the reason if it has not passed."""
    where = f"; in {', '.join(tally.running[:3])}" if tally.running else ""
    failed = f"; {len(tally.failures)} checks had failed" if tally.failures else ""
    if ended.timed_out:
        return "timed out", f"it had not ended after {ended.seconds:.0f} s{where}{failed}"
    if not tally.finished or any(ended.statuses):
        return "crashed", f"exit status {', '.join(map(str, ended.statuses))}{where}{failed}; {last}"
    if tally.failures:
        first = tally.failures[0]
        return "failed", f"{len(tally.failures)} checks, the first: {first['check']}: {first['message']}"
    if tally.passed:
        return "passed", ""
    if tally.skipped:
        return "skipped", ", ".join(tally.skipped)
    return "failed", "it made no check"


def in_order(name: str) -> int:
    """The place of a stage."""
    return NAMES.index(name) if name in NAMES else len(NAMES)


def lacking(stage: Stage, device: str, machine: dict[str, Any]) -> str:
    """Why the stage cannot run here, "" if it can."""
    if machine["missing"]:
        return f"no CUDA device: {machine['missing']}" if device.startswith("cuda") else machine["missing"]
    absent = [name for name in stage.needs if not machine["modules"].get(name)]
    return f"not installed, and not in the bundle: {', '.join(absent)}" if absent else ""


def parts_of(stage: Stage) -> int:
    """How many processes the stage is: one per processor, if there is memory for them."""
    room = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MEMORY_OF_A_PART
    return max(1, min(PARTS, len(os.sched_getaffinity(0)), room)) if stage.split else 1


def describe(device: str, env: dict[str, str], work: Path) -> dict[str, Any]:
    """The description of the machine; if even that fails, the reason why no stage can run."""
    command = [sys.executable, "-m", "tests.gpu.machine", device]
    log = work / "machine.log"
    try:
        with log.open("w") as errors:
            done = subprocess.run(  # noqa: S603 - our own command
                command, env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, check=True, timeout=60
            )
        found: dict[str, Any] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return {"missing": f"the machine cannot be looked at ({error}): {last_lines(log)}", "modules": {}}
    return found


def unshadow(site: Path) -> None:
    """Let `tests`, `examples` and `bench` be the checkout's, also where an installed package has such a name."""
    for name in OURS:
        found = PathFinder.find_spec(name, [str(ROOT), *sys.path])
        origin = Path(found.origin).resolve() if found and found.origin else None
        if origin is not None and not origin.is_relative_to(ROOT / name):
            (site / name).mkdir(exist_ok=True)
            (site / name / "__init__.py").write_text(f"__path__ = [{str(ROOT / name)!r}]\n")


@cache
def commit() -> str:
    """The checked-out commit, "" where git does not give one."""
    with suppress(OSError, subprocess.SubprocessError):
        command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=10)  # noqa: S603
        return done.stdout.strip()
    return ""


def last_lines(log: Path, count: int = 3) -> str:
    """The last lines of a log."""
    with suppress(OSError):
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
        return " / ".join(lines[-count:])
    return ""


def shorten(log: Path) -> None:
    """Cut the middle out of a log that is too long."""
    if log.stat().st_size > LOG:
        content = log.read_bytes()
        log.write_bytes(content[: LOG // 2] + b"\n[...]\n" + content[-LOG // 2 :])


def counted(outcome: dict[str, Any]) -> str:
    """An outcome's checks in words."""
    counts = outcome["counts"]
    text = f"{counts['passed']:,} checks passed, {counts['failed']} failed, {counts['skipped']} skipped"
    return f"{text}\n    {report.first_line(outcome['why'])}" if outcome["why"] else text


def say(*lines: str) -> None:
    """Progress, at once."""
    for line in lines:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options."""
    names = "\n".join(f"  {stage.name:<14}{stage.title}" for stage in STAGES)
    parser = argparse.ArgumentParser(
        prog="python tests/gpu",
        description="Prove a device: run every stage, and write out/gpu/report.json, report.md and logs.",
        epilog=f"stages:\n{names}\n\nThe exit status is 0 if every stage passed. docs/gpu.md says more.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--device", "--devices", default="cuda:0", metavar="NAME", help="cuda:0 (default), sim:0, cpu:0"
    )
    parser.add_argument("--only", action="append", choices=NAMES, metavar="STAGE", help="this stage; may be repeated")
    parser.add_argument("--resume", type=Path, metavar="REPORT", help="run what that report's run did not reach")
    parser.add_argument("--budget", type=float, default=BUDGET, metavar="SECONDS", help=f"default: {BUDGET:.0f}")
    out = Path(os.environ.get("OUT") or ROOT / "out") / "gpu"
    parser.add_argument("--out", type=Path, default=out, metavar="FOLDER", help="default: $OUT/gpu, else out/gpu")
    parser.add_argument("--fake", default="", metavar="SEED", help="try the proof itself: tests/gpu/fake.py says how")
    options = parser.parse_args(arguments)
    with as_usage(parser):
        fake.parse(options.fake or "0")
        options.earlier = load(options.resume, options.device, options.fake) if options.resume else Earlier()
    if options.budget <= 0:
        parser.error("--budget is a number of seconds above 0")
    return options


@contextmanager
def as_usage(parser: argparse.ArgumentParser) -> Iterator[None]:
    """A ValueError is the user's: report it as argparse does."""
    try:
        yield
    except ValueError as error:
        parser.error(str(error))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 130 after Ctrl-C."""
    options = parse(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    stages = stages_for(options.device, options.only or ())
    if not stages:
        raise SystemExit(f"{', '.join(options.only)}: this shows nothing on {options.device}")
    work = Path(tempfile.mkdtemp(prefix="tdg-"))
    try:
        out, earlier = options.out.resolve(), options.earlier
        proof = Proof(options.device, out, options.budget, work, stages, fake=options.fake, earlier=earlier)
        passed = proof.run()
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return 130 if proof.interrupted else 0 if passed else 1

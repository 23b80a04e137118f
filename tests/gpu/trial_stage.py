"""A stage for the tests of the harness: it passes, fails, crashes, hangs, or leaves a daemon of its own behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from .record import Skip
from .stage import Given, main


def work(given: Given) -> None:
    """Do what the options say."""
    record = given.record
    with record.check("first"):
        record.figure("answer", 42, "units", bound=50)
    record.skipped("second", "nothing here to do it with")
    match given.chosen:
        case "fails":
            with record.check("third"):
                raise ValueError("it is wrong")
        case "misses":
            record.figure("chain", 9.0, "us", must=7.0, met="missed")
        case "fails and hangs":
            with record.check("third"):
                raise ValueError("it is wrong")
            record.begin("fourth")
            threading.Event().wait()
        case "breaks":
            raise ValueError("nobody expected that")
        case "crashes":
            record.begin("third")
            os.kill(os.getpid(), signal.SIGSEGV)
        case "hangs in one":
            for check in ("third", "fourth", "fifth"):
                if check not in given.begun:
                    with record.check(check):
                        threading.Event().wait(None if check == "fourth" else 0)
        case "hangs":
            record.begin("third")
            threading.Event().wait()
        case "skips":
            with record.check("third"):
                raise Skip("nor for this")
        case "counts":
            left = [check for check in "abcd" if given.is_left(check)]
            for check in left[:2]:
                with record.check(check):
                    assert check != "b"
            if left[2:]:
                record.unreached(len(left) - 2, len(left), "the time is over")
        case "waits":
            other = Path(os.environ["XDG_RUNTIME_DIR"], "passes-0.jsonl")
            while not (other.exists() and "finished" in other.read_text()):
                threading.Event().wait(0.05)
        case "starts others":
            started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], process_group=0)
            record.note(str(started.pid))


if __name__ == "__main__":
    main(work)

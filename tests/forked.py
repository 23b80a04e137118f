"""Processes that start with the package imported: forked from one that has imported it.

A daemon takes three quarters of a second of processor time to start, most of it for imports, and the tests start
hundreds. `Forked` is a `subprocess.Popen` of a Python module's function, whose process has an environment, a working
directory, arguments and standard streams of its own. The process ends as any interpreter does: its threads end, and
exit handlers run. Only with `whole` does the interpreter also take apart its memory, which costs most. Real processes
test what comes before `main` or depends on the interpreter's own options.

The process to fork from (`python forked.py FD`) is started when the first one is asked for, and ends with this process.
Only it may wait for the forked ones, so it is asked for their exit status. It has one thread, and opens nothing.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, NoReturn

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - imports as little as may be
# Modules that daemons, clients and machines need, the late imports among them.
IMPORTED = (
    "tensord.client.cli.main",
    "tensord.client.cli.serve",
    "tensord.vm.service.daemon",
    "tensord.client.session.connect",
    "tensord.client.transport.remote",
    "tensord.client.embedded.local",
    "tensord.client.array_api.namespace",
    "tensord.client.linking.linked_routine",
    "tensord.client.routines.routine",
    "numpy.random",
    "tests.forked",
    "tests.puppet",
)
MOST = 1 << 20  # bytes of a request: the environment


class Parent:
    """The process to fork from."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._of = os.getpid()

    def ask(self, request: Mapping[str, Any], descriptors: Sequence[int] = ()) -> Any:
        """Send a request, and return its answer."""
        assert self._of == os.getpid(), "a forked child asks nobody"
        with self._lock:
            if self._process is None:
                command = [sys.executable, __file__, str(self._theirs.fileno())]
                null, inherited = subprocess.DEVNULL, (self._theirs.fileno(),)
                self._process = subprocess.Popen(  # noqa: S603
                    command, stdin=null, stdout=null, cwd=ROOT, pass_fds=inherited
                )
                atexit.register(self.end)
            socket.send_fds(self._ours, [json.dumps(request).encode()], descriptors)
            return json.loads(self._ours.recv(MOST))

    def close(self) -> None:
        """Close the connection."""
        self._ours.close()
        self._theirs.close()

    def end(self) -> None:
        """End the process to fork from, when this process ends."""
        if self._process is not None and self._of == os.getpid():
            self.close()
            self._process.wait()


PARENT = Parent()


class Forked(subprocess.Popen[Any]):
    """A process that calls `module.function()` as a program with these arguments. Streams: descriptors; None: ours."""

    def __init__(
        self,
        main: tuple[str, str],
        arguments: Sequence[str],
        *,
        env: Mapping[str, str],
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        cwd: str | os.PathLike[str] | None = None,
        whole: bool = False,
    ) -> None:
        self.args = [*main, *arguments]
        self.stdin = self.stdout = self.stderr = None
        self.returncode: int | None = None
        self._child_created = self._communication_started = False
        request: dict[str, Any] = {"main": main, "arguments": list(arguments), "env": dict(env), "whole": whole}
        request["cwd"] = os.fspath(cwd or os.getcwd())  # noqa: PTH109
        streams = [ours if given is None else given for ours, given in enumerate((stdin, stdout, stderr))]
        self.pid: int = PARENT.ask(request, streams)
        self._child_created = True

    def _internal_poll(self, *_: object, **__: object) -> int | None:
        if self.returncode is None:
            self.returncode = PARENT.ask({"poll": self.pid})
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        if self._internal_poll() is None:
            ended = os.pidfd_open(self.pid)
            try:
                found = select.select([ended], (), (), timeout)[0]
            finally:
                os.close(ended)
            if not found:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self._internal_poll()
        assert self.returncode is not None
        return self.returncode


def popen(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    stdout: int | IO[Any] | None = None,
    stderr: IO[Any] | None = None,
    **_: object,
) -> Forked:
    """In place of `subprocess.Popen`, for Python with a script, or with `-m tensord.client.cli`."""
    main, arguments = ("tests.forked", "script"), command[1:]
    if command[1:3] == ["-m", "tensord.client.cli"]:
        main, arguments = ("tensord.client.cli.main", "main"), ["tensord", *command[3:]]
    reads, writes = os.pipe() if stdout == subprocess.PIPE else (None, None)
    given = [stream if stream is None or isinstance(stream, int) else stream.fileno() for stream in (stdout, stderr)]
    out = given[0] if writes is None else writes
    process = Forked(main, arguments, env=os.environ if env is None else env, stdout=out, stderr=given[1])
    if reads is not None and writes is not None:
        os.close(writes)
        process.stdout = os.fdopen(reads)
    return process


def run(
    main: tuple[str, str],
    arguments: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    timeout: float = 100.0,
    whole: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Call a function as a program, as `subprocess.run` would with `capture_output` and `text`."""
    given = os.environ if env is None else env
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        process = Forked(main, arguments, env=given, stdout=out.fileno(), stderr=errors.fileno(), cwd=cwd, whole=whole)
        try:
            status = process.wait(timeout)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        out.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(process.args, status, out.read().decode(), errors.read().decode())


def run_script(
    script: str,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    whole: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run a script with warnings as errors. `whole`: it ends as an interpreter does, with its memory taken apart."""
    return run(("tests.forked", "script"), [script, *arguments], env=env, cwd=cwd, whole=whole)


# -- in the other process ----------------------------------------------------------------------------------------------


def serve(asked: socket.socket) -> dict[str, Any] | None:
    """Fork and wait on request, until the requests end. Returns only in a forked process, with its request."""
    while True:
        text, descriptors, _, _ = socket.recv_fds(asked, MOST, 3)
        if not text:
            return None
        request: dict[str, Any] = json.loads(text)
        if "poll" in request:
            asked.send(json.dumps(status_of(request["poll"])).encode())
            continue
        pid = os.fork()
        if not pid:
            asked.close()
            become(request, descriptors)
            return request
        for descriptor in descriptors:
            os.close(descriptor)
        asked.send(json.dumps(pid).encode())


def status_of(pid: int) -> int | None:
    """The exit status of a forked process, as `Popen` has it; None while it runs."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def become(request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    """Take over the streams, environment, working directory and arguments of the requested process."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = list(request["arguments"])
    signal.signal(signal.SIGINT, signal.default_int_handler)


def script() -> None:
    """Run the script that the arguments name."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))  # noqa: PTH100, PTH120
    warnings.simplefilter("error")
    runpy.run_path(sys.argv[0], run_name="__main__")


def main() -> None:
    """Import, and serve. A forked process calls its function last, so that it ends as an interpreter does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal, for the processes that started us
    sys.path[0] = ROOT
    for name in IMPORTED:
        importlib.import_module(name)
    for parent in (PARENT, importlib.import_module("tests.forked").PARENT):
        parent.close()  # forked processes do not use one
    gc.collect()
    gc.freeze()  # otherwise each collection in a forked process examines all objects, and so copies their pages
    request = serve(socket.socket(fileno=int(sys.argv[1])))
    if request is not None:
        module, name = request["main"]
        function = getattr(importlib.import_module(module), name)
        if request["whole"]:
            gc.unfreeze()
            function()
        else:
            leave(function)


def leave(function: Callable[[], object]) -> NoReturn:
    """Call the function, and end without taking apart the memory, which is nine tenths of the cost of a process here.

    The interpreter handles every exception but SystemExit.
    """
    status: object = 0
    try:
        function()
    except SystemExit as ended:
        status = ended.code or 0
    if not isinstance(status, int):
        sys.stderr.write(f"{status}\n")
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status & 0xFF)


if __name__ == "__main__":
    main()

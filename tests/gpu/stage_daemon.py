"""Two processes through one daemon that owns the device, before and after a kernel faults."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..daemon import Daemon
from ..puppet import Failed, Puppet, eventually
from .faulty_ops import NAME, faulty
from .record import Skip
from .stage import Given, main

MANY = 1 << 24  # elements: 64 MiB of float32
PATIENCE = 60.0  # seconds: the first use of a GPU compiles
USER = "from tests.gpu import faulty_ops\nimport tensord as td\nfaulty_ops.add()\n"


@contextmanager
def daemon_with(device: str) -> Iterator[Daemon]:
    """A daemon with cpu:0 and the device, and with an op that breaks it."""
    options = faulty(device)
    table = ", ".join(f"{key} = {toml(value)}" for key, value in options.items())
    with tempfile.TemporaryDirectory(prefix="tdg-") as folder:
        config = Path(folder, "tensord.toml")
        config.write_text(f'devices = ["cpu:0", {{{table}}}]\n')
        with Daemon.start(Path(folder), "--config", str(config), program=("-m", "tests.gpu.faulty_ops")) as daemon:
            yield daemon


def toml(value: object) -> str:
    """A value in TOML: tables have other signs than JSON's."""
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key} = {toml(one)}' for key, one in value.items())}}}"
    return json.dumps(value)


def share(device: str, daemon: Daemon) -> None:
    """One process publishes and reads, another one writes in place."""
    with Puppet.start(daemon.address) as first, Puppet.start(daemon.address) as second:
        first.do(f"x = s.asarray(np.arange({MANY}, dtype=np.float32), device={device!r})", PATIENCE)
        first.do("s.publish('x', x); s.sync()", PATIENCE)
        second.do("y = s.lookup('x')\nbefore = s.lookup('x', snapshot=True)\ny += 1\ns.sync()", PATIENCE)
        where = second.do("y.device, before.device")
        assert where == [device, device], where
        assert first.do(f"np.array_equal(x.numpy(), np.arange({MANY}, dtype=np.float32) + 1)", PATIENCE) is True
        assert second.do(f"np.array_equal(before.numpy(), np.arange({MANY}, dtype=np.float32))", PATIENCE) is True
        second.kill()
        eventually(lambda: first.do("len(s._core.answers.query('sessions'))") == 1)
        assert first.do("float(x[-1].numpy())") == float(MANY)
        first.do("s.unpublish('x')")


def break_it(device: str, daemon: Daemon) -> None:
    """The device is lost, values that were only there carry the error, and nothing else is harmed."""
    with Puppet.start(daemon.address) as user, Puppet.start(daemon.address) as other:
        other.do("c = s.asarray(np.ones(1000), device='cpu:0')")
        user.do(USER)
        user.do(f"x = s.asarray(np.ones(1000, np.float32), device={device!r})\nx.wait()", PATIENCE)
        user.do(f"z = s.call({NAME!r}, [x])[0]")
        assert "is lost" in failure(user, "z.numpy()")
        assert "is lost" in failure(user, "(z + 1).numpy()")
        assert "is lost" in failure(user, f"s.asarray(np.ones(3), device={device!r}).numpy()")
        assert other.do("float((c + c).sum().numpy())") == 2000.0
        assert user.do("float(s.asarray(np.ones(3), device='cpu:0').sum().numpy())") == 3.0
        assert other.do(f"bool(s._core.answers.query('status')['devices'][{device!r}]['lost'])") is True
        with Puppet.start(daemon.address) as late:
            assert late.do("float(s.asarray(np.ones(3)).sum().numpy())") == 3.0


def failure(puppet: Puppet, code: str) -> str:
    """The message of the KernelError that the code raises there."""
    try:
        value = puppet.do(code, PATIENCE)
    except Failed as error:
        if error.kind.startswith("Kernel"):
            return str(error)
        raise
    raise AssertionError(f"{code} gave {value}")


def end(daemon: Daemon) -> None:
    """It stops on request, with status 0. Its log has no traceback but those of CuPy's destructors, to which a lost
    device gives errors as to all calls.
    """
    status = daemon.stop()
    assert status == 0, f"exit status {status}: {daemon.log[-1500:]}"
    ours = [trace for trace in daemon.log.split("Traceback (most recent call last):\n")[1:] if has_frame_of_ours(trace)]
    assert not ours, ours[0][:1500]


def has_frame_of_ours(trace: str) -> bool:
    """Does a traceback pass any code that is not CuPy's?"""
    frames = [line for line in trace.splitlines() if line.startswith('  File "')]
    return not frames or any('File "cupy' not in frame for frame in frames)


def work(given: Given) -> None:
    """First whole, then broken."""
    record = given.record
    with daemon_with(given.device) as daemon:
        with record.check("two processes share tensors on the device"):
            share(given.device, daemon)
        with record.check("a kernel that faults loses the device and nothing else"):
            if given.device.startswith("cpu"):
                raise Skip("without the host's device there is nothing that could go on")
            break_it(given.device, daemon)
        with record.check("a daemon that has lost a device ends well"):
            end(daemon)


if __name__ == "__main__":
    main(work)

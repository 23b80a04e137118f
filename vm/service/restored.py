"""Names that the daemon restores from a checkpoint before it opens its sockets, so that every client finds them.

Restoring 10,000 names takes some 0.3 s, whatever the size of their values, which stay in their files until an op needs
them: half of the time is for checking the files, the rest for making the tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from time import monotonic
from typing import Any, Final

from ...interpreter.checkpoints.layout import FORMAT_FILE, generation_of
from ...interpreter.errors import TensordError
from ...interpreter.types.device_names import counterpart
from ...interpreter.types.sizes import size
from ...streams.catalogue import check_devices
from ...streams.disk.store import NAME as STORE
from ..client_files import real_path
from ..durability.restoring import FoundGeneration, look
from ..durability.written_with import changed
from ..engine import Engine
from ..log import log
from .process.errors import StartError
from .settings.config import Config

MAX_LINES: Final = 5  # lines of one kind in the log


def generation_to_restore(config: Config) -> FoundGeneration | None:
    """The generation to restore; None if none is configured, or none was ever written. Changes nothing.

    StartError if checkpoints cannot be read, or, with `restore_strict`, if anything is damaged.
    """
    path, strict = directory_to_restore(config), config.restore_strict
    if path is None:
        return None
    if is_unwritten(path):
        if strict and config.restore is not None:
            raise StartError(f"{path}: has no checkpoint to restore; take one first, or leave out --strict")
        return None
    try:
        generation = look(real_path(str(path.absolute())), 0, (), deep=False)
    except TensordError as error:
        without = "start without it" if config.restore is not None else "move it away"
        raise StartError(f"{error.message}; {without} to serve all the same") from None
    if strict:
        check_damage({**{f"generation {n}": why for n, why in generation.notes.items()}, **generation.damaged}, path)
    return generation


def directory_to_restore(config: Config) -> Path | None:
    """The directory to restore: `restore`, or else the directory of durable names, which survive a restart.

    StartError if durable names of an earlier run would be left out, or if `restore_strict` has nothing to apply to.
    """
    durable = durable_directory(config)
    if config.restore is None:
        if durable is None and config.restore_strict:
            raise StartError("restore_strict (--strict) applies only to a restore: name a directory (--restore)")
        return durable
    if durable is not None and not is_unwritten(durable) and durable.resolve() != config.restore.resolve():
        raise StartError(
            f"{durable} has durable names of an earlier run, and {config.restore} is to be restored, which would hide "
            "them. Restore from there, or give the device store:0 another directory (durable)"
        )
    return config.restore


def durable_directory(config: Config) -> Path | None:
    """The directory of durable names, if there is one."""
    _, options = check_devices(config.opened).get(STORE, ("", None))
    return Path(options.durable).absolute() if options is not None and options.durable else None


def is_unwritten(path: Path) -> bool:
    """Whether the directory does not exist, or no checkpoint was ever finished there."""
    try:
        names = [entry.name for entry in path.iterdir()]
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return not names or (FORMAT_FILE in names and not any(map(generation_of, names)))


def check_damage(failed: Mapping[str, str], path: Path) -> None:
    """StartError that names some of the damaged names, if there are any."""
    if failed:
        first = "; ".join(f"{name}: {why}" for name, why in sorted(failed.items())[:MAX_LINES])
        more = f"; and {len(failed) - MAX_LINES} more" if len(failed) > MAX_LINES else ""
        raise StartError(f"{path}: {first}{more}; `tensord restore --list` lists all; start without --strict to go on")


def hold_durable(engine: Engine) -> None:
    """Lock the directory of durable names for this daemon; StartError while another machine has locked it.

    Called before the directory is read, so that this daemon serves no names that another machine still writes.
    """
    try:
        engine.admission.durable.checkpoints.hold_durable()
    except TensordError as error:
        raise StartError(f"durable names: {error.message}") from None


def restore(engine: Engine, config: Config) -> None:
    """Publish the names to restore, and log what differs from the checkpoint. StartError as in
    `generation_to_restore`."""
    began = monotonic()
    generation = generation_to_restore(config)
    if generation is None:
        if config.restore is not None:
            log.warning("nothing to restore: no checkpoint was ever written there", directory=str(config.restore))
        return
    try:
        report = engine.admission.durable.restore_at_once(generation)
    except TensordError as error:
        raise StartError(f"{generation.reader.path}: {error.message}") from None
    if config.restore_strict:
        check_damage(report["failed"], generation.reader.path)
    log_report(report, engine)
    log_plugins(generation)
    log.info(
        "restored",
        directory=report["directory"],
        generation=report["generation"],
        names=report["names"],
        size=size(report["bytes"]),
        seconds=round(monotonic() - began, 3),
    )


def log_report(report: Mapping[str, Any], engine: Engine) -> None:
    """Log damaged generations, unrestored names and missing devices, a few lines of each kind."""
    message = "a generation of the checkpoint is damaged; an older one is restored"
    warn(message, ({"generation": n, "error": why} for n, why in report["notes"].items()))
    warn("a name was not restored", ({"name": name, "error": why} for name, why in sorted(report["failed"].items())))
    moved: dict[str, list[str]] = {}
    for name, device in report["moved"].items():
        moved.setdefault(device, []).append(name)
    message = "a device of the checkpoint is missing here"
    devices = engine.devices
    warn(
        message,
        (
            {"missing": one, "instead": counterpart(one, devices), "names": len(names), "first": names[0]}
            for one, names in moved.items()
        ),
    )


def log_plugins(found: FoundGeneration) -> None:
    """Log the plugins and own ops that differ from those with which names were written, and the names."""
    warn(
        "names were written with another plugin or op than there is here; what they do may differ",
        (
            {
                difference.what: difference.name,
                "written_with": difference.was,
                "now": difference.now or "not loaded",
                "names": len(difference.names),
                "first": list(difference.names[:MAX_LINES]),
            }
            for difference in changed(found.fields)
        ),
    )


def warn(event: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Log one line for each of the first few rows, and the number of the others."""
    every = list(rows)
    for row in every[:MAX_LINES]:
        log.warning(event, **row)
    if len(every) > MAX_LINES:
        log.warning(f"{event}: not all are listed", more=len(every) - MAX_LINES)

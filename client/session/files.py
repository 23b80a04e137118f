"""Methods of a session that read and write files of tensors (`load`, `save`) and checkpoints.

Only the arguments are prepared here; `files/loading`, `files/saving` and `files/checkpoints` have the procedures, as
steps: the plain form takes the steps on the calling thread, the `_async` form on the event loop. `checkpoint` has one
form, since it never waits: what it returns can be waited for and awaited. The same methods of a cluster session are in
`client/cluster`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..calls.checks import Device
from ..files.checkpoints import Checkpointing, checkpoint, restoring
from ..files.loading import LoadOptions, loading
from ..files.saving import Saving, saving
from ..locations.tracebacks import make_public
from ..tensor.tensor import Tensor
from ..waiting.steps import Awaiting, on_thread
from .parts import Facet, listed


class Files(Facet):
    """The methods that read and write files."""

    def load(
        self,
        path: str | os.PathLike[str],
        names: Iterable[str] | None = None,
        device: Device | None = None,
        *,
        own: bool = False,
        raw: bool = False,
        digest: bool = False,
    ) -> dict[str, Tensor]:
        """Return the tensors of a safetensors, .npz or .npy file by name, before they are read.

        The first op that needs a tensor reads it, straight to its device; a tensor whose memory was needed for other
        values is read again. So the file has to stay unchanged, or be replaced as a whole: if the file is written to
        meanwhile, its tensors fail with FileError. See docs/files.md. Source: Glow (a compiler for
        neural networks), deferred weights.

        :param path: The file.
        :param names: The names of the tensors; all of the file by default.
        :param device: The home of the tensors; by default the first device.
        :param own: Read each tensor once. The file is not needed afterwards.
        :param raw: Read dtypes that tensord does not have as unsigned integers of the same size. Otherwise such a
            tensor fails when it is used.
        :param digest: Compare the SHA-256 of bytes that are read again, which notices every change.
        :returns: The tensors by name.
        :raises FileError: The file cannot be opened, or is damaged.
        :raises MetadataError: The file has no such name, or the device does not exist.
        """
        wanted = LoadOptions(path, listed(names), device, bool(own), bool(raw), bool(digest))
        return on_thread(self._core.outbox, loading(self._core, wanted))

    def load_async(
        self,
        path: str | os.PathLike[str],
        names: Iterable[str] | None = None,
        device: Device | None = None,
        *,
        own: bool = False,
        raw: bool = False,
        digest: bool = False,
    ) -> Awaiting[dict[str, Tensor]]:
        """`tensors = await session.load_async(path)`: see `load`."""
        wanted = LoadOptions(path, listed(names), device, bool(own), bool(raw), bool(digest))
        return self._awaiting(loading(self._core, wanted))

    def save(
        self, path: str | os.PathLike[str], tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
    ) -> Saving:
        """Save the present values of tensors as a safetensors file. Returns at once, like an op.

        The file is written under another name, flushed to the disk and renamed, so it is complete or absent.
        ``saving.wait()`` waits for that, and raises the error of a tensor or of the disk. `close` waits, too. `close`
        and the next `save` log the failures of saves that the program has not waited for. The call waits for a tensor
        whose shape depends on data.

        :param path: The file.
        :param tensors: The tensors by name.
        :param metadata: Texts by name, for the header of the file.
        :returns: The saving, to wait for.
        :raises MetadataError: The format does not have a dtype (complex128).
        :raises FileError: The folder does not exist.
        """
        return on_thread(self._core.outbox, saving(self._core, self._core.writes, path, tensors, metadata))

    def save_async(
        self, path: str | os.PathLike[str], tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
    ) -> Awaiting[Saving]:
        """`saving = await session.save_async(path, tensors)`, and `await saving`: see `save`.

        The values are those at the end of the first `await`, when the file has been begun.
        """
        return self._awaiting(saving(self._core, self._core.writes, path, tensors, metadata))

    def checkpoint(
        self, directory: str | os.PathLike[str], names: str | Sequence[str] | None = None, *, keep: int = 2
    ) -> Checkpointing:
        """Write published values to a directory of checkpoints. Returns at once, like an op.

        All values are those at this point in program order; sessions go on meanwhile. Values that have not changed
        since the last checkpoint in that directory are neither read nor written. ``checkpoint.wait()`` waits until
        everything is on the disk, and returns a report: `generation`, `names`, bytes `written` and `kept`, and `failed`
        by name. A failed name keeps its last value: its tensor has an error, or, in the machine's directory of durable
        names, its value is not computed yet. `note` says why older generations could not be removed.

        :param directory: The directory.
        :param names: One name or several; by default all that are published.
        :param keep: The number of generations to keep; 0 for all.
        :returns: The checkpoint, to wait for.
        :raises FileError: The directory cannot be written.
        :raises ProtocolError: The session is over tcp, the daemon is another user's, or another checkpoint is being
            written to the directory.
        """
        given = (names,) if isinstance(names, str) else names
        return checkpoint(self._core, self._core.writes, directory, given, keep)

    def restore(
        self,
        directory: str | os.PathLike[str],
        names: str | Sequence[str] | None = None,
        *,
        generation: int = 0,
        deep: bool = False,
    ) -> dict[str, Any]:
        """Publish the values of a checkpoint. They are read when they are first needed.

        :param directory: The directory of the checkpoint.
        :param names: One name or several; by default all of the checkpoint.
        :param generation: The generation to restore; the newest by default.
        :param deep: Read all values first, and compare their checksums.
        :returns: A dict: `generation`, `names` (the number of published names), `failed` (reasons, by name), `moved`
            (names whose device is missing here, which are now on the first device), `notes` (faults of newer
            generations).
        :raises FileError: Nothing can be restored.
        :raises MetadataError: The checkpoint has no such name or generation.
        """
        given = (names,) if isinstance(names, str) else names
        return on_thread(self._core.outbox, restoring(self._core, directory, given, generation, deep=bool(deep)))

    def restore_async(
        self,
        directory: str | os.PathLike[str],
        names: str | Sequence[str] | None = None,
        *,
        generation: int = 0,
        deep: bool = False,
    ) -> Awaiting[dict[str, Any]]:
        """`report = await session.restore_async(directory)`: see `restore`."""
        given = (names,) if isinstance(names, str) else names
        return self._awaiting(restoring(self._core, directory, given, generation, deep=bool(deep)))


make_public(Files)

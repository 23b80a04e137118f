"""Files of tensors, and checkpoints, as methods of a session."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..calls.checks import Device
from ..files.checkpoints import Checkpointing, checkpoint, restoring
from ..files.loading import Wanted, loading
from ..files.saving import Saving, saving
from ..locations.tracebacks import make_public
from ..tensor.tensor import Tensor
from ..waiting.steps import Awaiting, on_thread
from .parts import Facet, listed


class Files(Facet):
    """Reading from files, and writing to them."""

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
        """The tensors of a safetensors, .npz or .npy file, by name, at home on `device`. Returns before they are read.

        A tensor is read when an op first needs it, straight to where it is needed, and again whenever its memory was
        needed for others. So the file has to stay as it is, or be replaced as a whole: of a file that was written to
        meanwhile, the tensors fail with FileError. With `own`, a tensor is read once, and the file matters no more.

        `names`: of those that are wanted, all without. `raw`: dtypes that tensord has not become unsigned integers of
        the same size; without it, such a tensor fails when it is used. `digest`: what is read again has to have the
        same SHA-256, which notices every change. A file that cannot be opened or is damaged is a FileError or
        MetadataError here. docs/files.md says more. Source: Glow's deferred weights.
        """
        wanted = Wanted(path, listed(names), device, bool(own), bool(raw), bool(digest))
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
        wanted = Wanted(path, listed(names), device, bool(own), bool(raw), bool(digest))
        return self._awaiting(loading(self._core, wanted))

    def save(
        self, path: str | os.PathLike[str], tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
    ) -> Saving:
        """Save the present values of tensors as a safetensors file. Returns at once, like an op.

        The file is written beside its place, flushed to the disk and renamed, so it is there whole or not at all.
        `saving.wait()` waits for that, and raises what has gone wrong: the error of a tensor, a full disk. `close`
        waits for it, too, and logs failures that nobody has waited for, as the next `save` does. `metadata`: texts by
        name, for the header.
        MetadataError here for a dtype that the format has not (complex128), FileError for a folder that is not there.
        A tensor whose shape depends on data is waited for.
        """
        return on_thread(self._core.outbox, saving(self._core, self._core.savings, path, tensors, metadata))

    def save_async(
        self, path: str | os.PathLike[str], tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
    ) -> Awaiting[Saving]:
        """`saving = await session.save_async(path, tensors)`, and `await saving`: see `save`.

        The values are those at the end of the first `await`, when the file has been begun.
        """
        return self._awaiting(saving(self._core, self._core.savings, path, tensors, metadata))

    def checkpoint(
        self, directory: str | os.PathLike[str], names: str | Sequence[str] | None = None, *, keep: int = 2
    ) -> Checkpointing:
        """Write what is published, or these names of it, to a directory of checkpoints. Returns at once, like an op.

        All values are those at this place in program order, whatever is written meanwhile; sessions go on. What has not
        changed since the last checkpoint in that directory is neither read nor written. `checkpoint.wait()` waits until
        all is on the disk, and returns what was written: `generation`, `names`, bytes `written` and `kept`, and
        `failed`, by name, which keep their last values: those with errors, and in the machine's directory of durable
        names those that are not there yet. The last `keep` generations stay, 0 for all; `note` says why older ones are
        still there, if they could not be removed.
        Errors: FileError for a directory that cannot be written; ProtocolError over tcp, for other users' daemons, and
        while another checkpoint is written there.
        """
        given = (names,) if isinstance(names, str) else names
        return checkpoint(self._core, self._core.savings, directory, given, keep)

    def restore(
        self,
        directory: str | os.PathLike[str],
        names: str | Sequence[str] | None = None,
        *,
        generation: int = 0,
        deep: bool = False,
    ) -> dict[str, Any]:
        """Publish what a checkpoint holds, or these names of it. Values are read when they are first needed.

        Returns a dict: `generation`, `names` (how many were published), `failed` (why a name was not, by name), `moved`
        (names whose device is missing here, which come to the first one), `notes` (what is wrong with newer
        generations). `generation`: an older one. `deep`: read all values first, and compare their checksums. FileError
        or MetadataError if nothing can be restored.
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

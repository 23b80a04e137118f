"""Collectives in random programs: on tensors of all devices of one kind, or some of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensord.interpreter.collectives.collective import REDUCING_KINDS, CollectiveKind
from tensord.interpreter.collectives.request import ResolvedRequest, resolve_request
from tensord.interpreter.errors import MetadataError
from tensord.interpreter.types.meta import Meta

from .handles import Client, Handle

if TYPE_CHECKING:
    from .programs import Generator

MOST = 64  # the most elements of a value


class Collecting:
    """Makes the collectives of one program."""

    def __init__(self, generator: Generator) -> None:
        self.generator = generator
        self.rng = generator.rng

    def emit(self, client: Client) -> bool:
        """Add a collective on existing tensors, moved ones and new ones; False if it would raise."""
        rng, x = self.rng, self.generator.pick(client)
        meta = None if x is None else client.handles[x].meta
        if x is None or meta is None:
            return False
        kind = rng.choice(list(CollectiveKind))
        if kind in REDUCING_KINDS and meta.dtype.kind == "b":
            kind = CollectiveKind.ALL_GATHER
        devices = [name for name in self.generator.world.devices if not name.startswith("cpu")]
        ranks = rng.sample(devices, rng.randint(1, len(devices)))
        given: dict[str, Any] = {
            "reduction": rng.choice(("sum", "max", "min")),
            "axis": rng.randint(-2, 1),
            "concat_axis": rng.randint(0, 1),
            "merge": rng.choice(("copy", "stream")),
        }
        homes = ranks[:1] if kind is CollectiveKind.BROADCAST else ranks
        named = tuple(ranks) if kind is CollectiveKind.BROADCAST else ()
        try:
            resolved = resolve_request(kind, homes, [meta] * len(homes), named, given, len(ranks))
        except MetadataError:
            return False
        if any(made.size > MOST for made in resolved.collective.outputs()):
            return False
        inputs = tuple([self.at(client, x, meta, home) for home in homes])
        self.add(client, resolved, inputs, named, given)
        return True

    def at(self, client: Client, x: int, meta: Meta, home: str) -> int:
        """A tensor with this meta on a device."""
        there = [n for n, handle in client.handles.items() if handle.meta is meta and handle.home == home]
        if there and self.rng.random() < 0.6:
            return self.rng.choice(there)
        if self.rng.random() < 0.5:
            return self.generator.upload_to(client, meta.shape, meta.dtype.name, home)
        new = client.new()
        self.generator.add(client, "TO_DEVICE", x, new, home)
        client.handles[new] = Handle(meta, home)
        return new

    def add(
        self,
        client: Client,
        resolved: ResolvedRequest,
        inputs: tuple[int, ...],
        devices: tuple[str, ...],
        given: dict[str, Any],
    ) -> None:
        """Add the step."""
        outputs = tuple([client.new() for _ in resolved.devices])
        kind = str(resolved.collective.kind)
        self.generator.add(client, "COLLECTIVE", kind, inputs, outputs, devices, given)
        for id_, meta, home in zip(outputs, resolved.collective.outputs(), resolved.devices, strict=True):
            client.handles[id_] = Handle(meta, home)

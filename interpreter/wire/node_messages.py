"""Declarations of the messages about collectives and transfers between nodes (`messages`)."""

from __future__ import annotations

from typing import NamedTuple

from . import fields


class Collective(NamedTuple):
    """Compute together on tensors that are at home on different devices (`interpreter.collectives`). A new tensor is
    made on each home; by a broadcast, of one tensor, on each of the `devices`, which are empty for all other kinds.

    Over several nodes each gets the message with its own `inputs` and `outputs`, and all get the `homes` and `metas` of
    all tensors, and the name of the first of their transfers, whose steps have the names behind that. `incarnations`:
    of the daemons that are meant, in the order in which `homes` and then `devices` first name their nodes."""

    kind: fields.Name
    inputs: fields.UsedIds
    outputs: fields.NewIds
    devices: fields.Names
    attributes: fields.Attributes
    location: fields.LocationNumber
    homes: fields.Names = ()
    metas: fields.Metas = ()
    transfer: fields.TransferNameOrNone = b""
    incarnations: fields.Incarnations = ()


class Send(NamedTuple):
    """Send a value, or its error, to a node, where the RECV of the same `transfer` makes a tensor of it.
    `incarnation`: of the daemon there that is meant, 0 for any."""

    id: fields.UsedId
    node: fields.Name
    transfer: fields.TransferName
    location: fields.LocationNumber
    incarnation: fields.Count = 0


class Recv(NamedTuple):
    """Make a tensor of the value that the SEND of the same `transfer` sends from a node. Both name the meta.
    `incarnation`: of the daemon there that is meant, 0 for any."""

    output: fields.NewId
    shape: fields.Shape
    dtype: fields.Text
    device: fields.Text
    node: fields.Name
    transfer: fields.TransferName
    location: fields.LocationNumber
    incarnation: fields.Count = 0

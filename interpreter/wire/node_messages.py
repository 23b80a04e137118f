"""Declarations of the messages about collectives and transfers between nodes (`messages`)."""

from __future__ import annotations

from typing import NamedTuple

from . import fields


class Collective(NamedTuple):
    """A collective on tensors with homes on different devices (`interpreter.collectives`).

    Makes a new tensor on each home. A broadcast, of one tensor, makes one on each of the `devices`; the other kinds
    have no `devices`.

    A collective over several nodes is sent to each node, with the node's own `inputs` and `outputs`. `homes` and
    `metas` are those of all tensors. `transfer` names the first of the transfers; the names of the others follow by
    counting up. `incarnations`: those of the intended daemons, in the order in which `homes` and then `devices` first
    name the nodes.
    """

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
    """Send a value, or its error, to a node, where the RECV of the same `transfer` makes a tensor of the value.

    `incarnation`: that of the node's intended daemon; 0 for any.
    """

    id: fields.UsedId
    node: fields.Name
    transfer: fields.TransferName
    location: fields.LocationNumber
    incarnation: fields.Count = 0


class Recv(NamedTuple):
    """Make a tensor of the value that the SEND of the same `transfer` sends from a node.

    The meta must be that of the sent value. `incarnation`: that of the node's intended daemon; 0 for any.
    """

    output: fields.NewId
    shape: fields.Shape
    dtype: fields.Text
    device: fields.Text
    node: fields.Name
    transfer: fields.TransferName
    location: fields.LocationNumber
    incarnation: fields.Count = 0

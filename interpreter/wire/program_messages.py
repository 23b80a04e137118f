"""Declarations of the messages about programs and routines (`messages`)."""

from __future__ import annotations

from typing import NamedTuple

from . import fields


class ProgramPart(NamedTuple):
    """Add records to a program (`interpreter.programs.records`).

    The first part, with a new id, begins the program; the record "return" ends it.
    """

    id: fields.UsedId
    records: fields.Arguments


class Link(NamedTuple):
    """Make a routine: link a program to a device for each of its slots, and to the tensors that it captures.

    `name`: for reports. `passes`: the names of the passes that may change the program.
    """

    id: fields.UsedId
    program: fields.UsedId
    devices: fields.Names
    captured: fields.UsedIds
    location: fields.LocationNumber
    name: fields.Name = ""
    passes: fields.Names = ("all",)


class Run(NamedTuple):
    """Run a routine.

    `numbers`: the values of all numbers of its program. `outputs`: new ids. The program's inner values take ids, too:
    between the session's newest id and the first output as many ids are unused as the steps have results. `effects`:
    (chain, callback, request), as of an EFFECT, for each step that prints or calls back.
    """

    routine: fields.UsedId
    inputs: fields.UsedIds
    numbers: fields.Scalars
    outputs: fields.NewIds
    effects: fields.Effects
    location: fields.LocationNumber


class Convention(NamedTuple):
    """Set a routine's calling convention (`interpreter.programs.convention`), for the clients that look it up."""

    routine: fields.UsedId
    convention: fields.Arguments

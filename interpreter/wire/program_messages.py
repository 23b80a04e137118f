"""Declarations of the messages about programs and routines (`messages`)."""

from __future__ import annotations

from typing import NamedTuple

from . import fields


class ProgramPart(NamedTuple):
    """Add records to a program (`interpreter.programs.records`). The first part defines it, under a new id; the record
    that says what it returns ends it."""

    id: fields.UsedId
    records: fields.Arguments


class Link(NamedTuple):
    """Link a program to a device for each of its slots, and to the tensors that it captures. `name` is for people;
    `passes` are the names of those that may change the program."""

    id: fields.UsedId
    program: fields.UsedId
    devices: fields.Names
    captured: fields.UsedIds
    location: fields.LocationNumber
    name: fields.Name = ""
    passes: fields.Names = ("all",)


class Run(NamedTuple):
    """Run a routine.

    `numbers` are the values of all numbers of its program. The ids of `outputs` leave room: as many ids as the program
    has steps' results are between the newest one before and the first of them. `effects` has chain, callback and
    request of each step that prints, or has another effect, as EFFECT has them.
    """

    routine: fields.UsedId
    inputs: fields.UsedIds
    numbers: fields.Scalars
    outputs: fields.NewIds
    effects: fields.Effects
    location: fields.LocationNumber


class Convention(NamedTuple):
    """Say how a routine is called (`interpreter.programs.convention`), for those who look it up."""

    routine: fields.UsedId
    convention: fields.Arguments

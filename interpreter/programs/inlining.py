"""The steps of one program inside another: with other device slots, chains and callbacks.

The caller translates values and numbers of the steps at the top (`operands`, `into`). Those of blocks are unchanged: a
block shares only the slots with the surrounding program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .builder import Builder
from .program import CLIENT_STEPS, NO_DEVICE, Program, Step

# The location of an inlined step, from its former one.
Locate = Callable[[Any], Any]


class SlotMap(NamedTuple):
    """For each slot of the inner program, the slot of the outer one."""

    devices: Sequence[int]
    chains: Sequence[int]
    callbacks: Sequence[int]


def add_step(builder: Builder, step: Step, slots: SlotMap, locate: Locate) -> range:
    """Add a step of another program, whose operands and targets are translated already; returns the values that it
    makes."""
    device = step.device if step.device == NO_DEVICE else slots.devices[step.device]
    blocks = tuple([copied(builder.block(), block, slots, locate) for block in step.blocks])
    moved = step._replace(device=device, blocks=blocks, location=locate(step.location))
    return builder.add(moved._replace(attributes=attributes_in(step, slots)))


def attributes_in(step: Step, slots: SlotMap) -> Any:
    """A step's attributes, with the slots of the outer program."""
    if step.op not in CLIENT_STEPS:
        return step.attributes
    attributes = dict(step.attributes)
    for name, its in (("chain", slots.chains), ("callback", slots.callbacks)):
        if name in attributes:
            attributes[name] = its[attributes[name]]
    return tuple(attributes.items())


def copied(builder: Builder, program: Program, slots: SlotMap, locate: Locate) -> Program:
    """A block with other slots, made by that builder. Its values and numbers keep their numbering."""
    for number in program.numbers:
        builder.number(*number)
    for source in program.parameters:
        builder.parameter(source.meta, slots.devices[source.device], source.name)
    for source in program.captured:
        builder.captured(source.meta, slots.devices[source.device], source.name)
    for step in program.steps:
        add_step(builder, step, slots, locate)
    return builder.finish(program.results)

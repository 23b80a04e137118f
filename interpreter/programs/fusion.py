"""Fusions: runs of pointwise steps that are computed together, a piece at a time, so that intermediate values stay in
the processor's cache.

Steps of one device and one shape belong to a fusion if each of them reads a value that another one makes or reads. They
must be *total* (raise on no data), so that an error never splits a fusion. They may be reductions of rows (`rows`),
with computations on their results row by row.

**A fusion runs at the position of its last step.** No step outside notices that the earlier steps are delayed until
then: a step that reads or overwrites a value of the fusion, or overwrites one that the fusion reads, closes the fusion,
so that the fusion's last step comes before that step. So fusions need no order of their own, and never wait for each
other in a circle.

**Memory.** A value that only the fusion uses is *virtual*: it never exists in memory as a whole. A fusion writes in
place if nothing else that it reads or writes may lie in that memory: then each piece is read before it is written.
Views are assumed to lie in the memory of their sources, as far as the program shows; code that binds tensors of a run
to a fusion's operands has to ensure that no two of them overlap in ways that this rule does not see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from ..types.meta import Shape
from .facts import is_total, made_by, newest_values, roots_of
from .program import NON_OP_STEPS, Program, Step
from .rows import RowShape, common, is_thin, iteration_space

MIN_BYTES: Final = 1 << 20  # bytes that a fusion reads and writes: fewer stay in the cache from step to step anyway
MAX_TENSORS: Final = 16  # tensors of a fusion: if that many would be too small together, no fusion is searched
MAX_STEPS: Final = 64  # of a fusion, at the most
STEPS_PER_SLICE: Final = 512  # steps that are examined at once, at most some 20 ms
MAX_DISTANCE: Final = 64  # positions that a step may wait for the next one of its fusion

_Key: TypeAlias = tuple[int, RowShape]


class Fusion(NamedTuple):
    """One fusion. `steps`: their positions in the program, in order; it runs at the last of them.

    `inputs`: the values and numbers that it reads from outside, as operands, without duplicates. `outputs`: the values
    that are used outside. `virtual`: the values that are not. `over`: for each output the position in `inputs` of the
    value that it overwrites in memory, or -1. Inputs broadcast to `shape`, which may be cut along its first `rows`
    axes. Each output has that shape, or one element a row: with as many axes, or with only these `rows`. If an input
    has an error for a value, the steps have to run one by one, since not every output need depend on it.
    """

    steps: tuple[int, ...]
    device: int
    shape: Shape
    rows: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    virtual: tuple[int, ...]
    over: tuple[int, ...]


class FusionPolicy(NamedTuple):
    """A device's rule for fusions: `takes` says whether the device fuses a step; `least` is the fewest bytes that a
    fusion reads and writes, None for the default."""

    takes: Callable[[Program, Step], bool]
    least: int | None = None


def find_fusions(program: Program, least: int = MIN_BYTES) -> list[Fusion]:
    """The fusions of a program, by their last steps. `least`: the fewest bytes of the tensors that a fusion reads and
    writes."""
    return [fusion for found in finding_fusions(program, least=least) for fusion in found]


def finding_fusions(
    program: Program, terms: Sequence[FusionPolicy | None] = (), least: int = MIN_BYTES
) -> Iterator[list[Fusion]]:
    """`find_fusions` for a long program, with pauses to serve others: yields an empty list after each `STEPS_PER_SLICE`
    steps, and the fusions at the end. `terms`: for each device slot, None for a device that fuses nothing; without any,
    each step is taken."""
    bounds = [least if each is None or each.least is None else each.least for each in terms] or [
        least
    ] * program.devices
    keys: list[_Key | None] = []
    for start in range(0, len(program.steps), STEPS_PER_SLICE):
        steps = program.steps[start : start + STEPS_PER_SLICE]
        keys += [key_of(program, step, bounds[step.device]) if taken(program, step, terms) else None for step in steps]
        yield []
    thin = frozenset(key[1].thin for key in keys if key is not None and key[1].rows < len(key[1].shape))
    for start in range(0, len(program.steps) if thin else 0, STEPS_PER_SLICE):
        for n in range(start, min(start + STEPS_PER_SLICE, len(keys))):
            step = program.steps[n]
            if keys[n] is None and taken(program, step, terms):
                keys[n] = key_of(program, step, bounds[step.device], thin)
        yield []
    if sum(key is not None for key in keys) < 2:
        return
    search = _Search(program)
    for position, (step, key) in enumerate(zip(program.steps, keys, strict=True)):
        search.take(position, step, key)
        if position % STEPS_PER_SLICE == STEPS_PER_SLICE - 1:
            yield []
    search.close(list(search.open))
    uses = _Uses(program)
    found = [described(program, fusion, uses) for fusion in search.found if len(fusion.steps) > 1]
    paying = (fusion for fusion in found if bytes_of(program, fusion) >= bounds[fusion.device])
    yield sorted(paying, key=lambda fusion: fusion.steps[-1])


def taken(program: Program, step: Step, terms: Sequence[FusionPolicy | None]) -> bool:
    """Return whether the device of a step fuses it."""
    if not terms or step.op in NON_OP_STEPS:
        return step.op not in NON_OP_STEPS
    of_device = terms[step.device]
    return of_device is not None and of_device.takes(program, step)


def key_of(program: Program, step: Step, least: int, thin: frozenset[Shape] = frozenset()) -> _Key | None:
    """Device and form of the fusions that the step fits in; None if there are none.

    `thin`: shapes with one element for each row of a large tensor: such tensors may be small.
    """
    found = iteration_space(program, step)
    if found is None or not is_total(program, step):
        return None
    tensor, rows = found
    form = RowShape(tensor.shape, rows)
    if MAX_TENSORS * tensor.nbytes < least and not (form.shape in thin and is_thin(program, step, form.shape)):
        return None
    values = [value for value in (*step.operands, *(step.into or ())) if value >= 0]
    return (step.device, form) if all(program.homes[value] == step.device for value in values) else None


def bytes_of(program: Program, fusion: Fusion) -> int:
    """The bytes of the tensors that the fusion reads and writes."""
    metas = (program.metas[n] for n in (*fusion.inputs, *fusion.outputs) if n >= 0)
    return sum(meta.nbytes for meta in metas if meta is not None)


class _Open:
    """A fusion that may still grow: the positions of its steps, and the values that they make, read and write.

    `forms`: of its steps. `dropped`: results of reductions that drop their axes. `variables`: root -> its variables
    that steps read from outside or write; `written`: the roots of written ones.
    """

    def __init__(self, device: int) -> None:
        self.device = device
        self.forms: set[RowShape] = set()
        self.dropped: set[int] = set()
        self.steps: list[int] = []
        self.made: set[int] = set()
        self.read: set[int] = set()
        self.variables: dict[int, set[int]] = {}
        self.written: set[int] = set()

    def absorb(self, other: _Open) -> None:
        """Take over the steps of another fusion."""
        self.forms |= other.forms
        self.dropped |= other.dropped
        self.steps += other.steps
        self.made |= other.made
        self.read = (self.read | other.read) - self.made
        for root, variables in other.variables.items():
            self.variables.setdefault(root, set()).update(variables)
        self.written |= other.written

    def is_sound(self) -> bool:
        """Return whether it is small enough, nothing else lies in memory that it writes, and its steps have one
        form."""
        apart = all(len(self.variables[root]) == 1 for root in self.written)
        return len(self.steps) <= MAX_STEPS and apart and (len(self.forms) == 1 or common(self.forms) is not None)

    def takes(self, step: Step, other: _Open) -> bool:
        """Return whether the step, of which `other` consists, may join."""
        if self.device != other.device or not self.dropped.isdisjoint(step.operands):
            return False
        return self.forms == other.forms or common(self.forms | other.forms) is not None


class _Search:
    """Goes through the steps in order. `found`: the closed fusions."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.found: list[_Open] = []
        self.roots = roots_of(program)
        self.makers: dict[int, _Open] = {}  # value -> the fusion that makes it
        self.readers: dict[int, list[_Open]] = {}  # value -> the fusions that read it from outside
        self.open: dict[_Open, None] = {}  # the one with the latest step is last

    def take(self, position: int, step: Step, key: _Key | None) -> None:
        """Handle the next step: it joins fusions with common values, or closes those whose values it touches."""
        self.close([fusion for fusion in self.open if fusion.steps[-1] < position - MAX_DISTANCE])
        touched = self.touched(step)
        alone = None if key is None else self.of_one(position, step, key)
        if alone is None or not alone.is_sound():
            self.close(touched)
            return
        akin = (
            fusion for value in step.operands if self.is_whole(value, alone) for fusion in self.readers.get(value, ())
        )
        near = dict.fromkeys((*touched, *akin))
        joined = [fusion for fusion in near if fusion in self.open and fusion.takes(step, alone)]
        fusion = self.merged([*joined, alone])
        if fusion is None:
            fusion, joined = alone, []
        self.close([other for other in touched if other not in joined])
        for other in joined:
            del self.open[other]
        self.enter(fusion)

    def touched(self, step: Step) -> list[_Open]:
        """The open fusions whose results the step reads or overwrites, or whose operands it overwrites."""
        into = step.into or ()
        makers = [self.makers[value] for value in (*step.operands, *into) if value in self.makers]
        found = (*makers, *(fusion for value in into for fusion in self.readers.get(value, ())))
        return [fusion for fusion in dict.fromkeys(found) if fusion in self.open]

    def ndim(self, value: int) -> int:
        meta = self.program.metas[value]
        return 0 if meta is None else len(meta.shape)

    def is_whole(self, value: int, fusion: _Open) -> bool:
        """Return whether it is a tensor of the fusion's shape."""
        meta = self.program.metas[value] if value >= 0 else None
        return meta is not None and any(meta.shape == form.shape for form in fusion.forms)

    def of_one(self, position: int, step: Step, key: _Key) -> _Open:
        """A fusion of only this step."""
        device, form = key
        fusion = _Open(device)
        fusion.forms.add(form)
        fusion.steps.append(position)
        fusion.made.update(made_by(step))
        if form.rows < len(form.shape) and self.ndim(step.first) < len(form.shape):
            fusion.dropped.add(step.first)
        fusion.read.update(value for value in step.operands if value >= 0)
        for value in (*fusion.read, *(step.into or ())):
            fusion.variables.setdefault(self.roots[value], set()).add(self.program.variables[value])
        fusion.written.update(self.roots[value] for value in step.into or ())
        return fusion

    def merged(self, fusions: Sequence[_Open]) -> _Open | None:
        """One fusion of all of these, if it is valid; the last one has the latest step."""
        merged = _Open(fusions[-1].device)
        for fusion in fusions:
            merged.absorb(fusion)
        merged.steps.sort()
        return merged if merged.is_sound() else None

    def enter(self, fusion: _Open) -> None:
        """Register the open fusion as the maker and reader of its values."""
        self.makers.update(dict.fromkeys(fusion.made, fusion))
        for value in fusion.read:
            self.readers[value] = [*filter(self.open.__contains__, self.readers.get(value, ())), fusion]
        self.open[fusion] = None

    def close(self, fusions: Iterable[_Open]) -> None:
        """Close these fusions: no step joins them any more."""
        for fusion in fusions:
            del self.open[fusion]
            self.found.append(fusion)


class _Uses:
    """Uses of values. `positions`: the steps that read or overwrite each; `after`: the values that outlive a run."""

    def __init__(self, program: Program) -> None:
        newest = newest_values(program)
        self.after = {*program.results, *(newest[variable] for variable in range(program.inputs))}
        self.positions: dict[int, list[int]] = {}
        for position, step in enumerate(program.steps):
            for value in (*step.operands, *(step.into or ())):
                self.positions.setdefault(value, []).append(position)

    def outside(self, value: int, steps: frozenset[int]) -> bool:
        """Return whether the value is needed outside of these steps."""
        return value in self.after or not steps.issuperset(self.positions.get(value, ()))


def described(program: Program, fusion: _Open, uses: _Uses) -> Fusion:
    """The public form of the fusion."""
    steps, form = fusion.steps, common(fusion.forms)
    if form is None:
        raise AssertionError("a fusion has a form")
    inside = frozenset(steps)
    made = [value for position in steps for value in made_by(program.steps[position])]
    read = dict.fromkeys(operand for position in steps for operand in program.steps[position].operands)
    inputs = tuple(operand for operand in read if operand not in set(made))
    outputs = tuple(value for value in made if uses.outside(value, inside))
    positions = {program.variables[value]: position for position, value in enumerate(inputs) if value >= 0}
    return Fusion(
        steps=tuple(steps),
        device=fusion.device,
        shape=form.shape,
        rows=form.rows,
        inputs=inputs,
        outputs=outputs,
        virtual=tuple(value for value in made if value not in outputs),
        over=tuple(positions.get(program.variables[value], -1) for value in outputs),
    )

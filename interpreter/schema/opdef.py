"""The definition of an op: its operands, its attributes, its infer function and its kernel, in one place.

An op is defined once, by `define(...)`, in a module of `interpreter.ops`. No other code names single ops: the client,
the virtual machine and the devices work from the definition.

The kernel is written once, against an array module `xp` (NumPy or CuPy). Two forms:

- `ufunc="add"`: the array module's own function of that name, called as `xp.add(*inputs, *outputs)`;
- `kernel=f`: called as `f(xp, inputs, outputs, attributes)`, but for empty outputs only if it `checks_data`. It fills
  `outputs` (packed or strided arrays of exactly the inferred metas), or, for an op with pending outputs (`dynamic`),
  gets `outputs == ()` and returns the arrays; then its attributes also hold `room`: the device's memory in bytes, which
  a result must not exceed.

Inputs are arrays, or Python scalars where the caller gave scalars. Attributes are a read-only mapping with every name
of the schema present.

Source: TFRT's split of an op into metadata function and dispatch function; OneFlow's const/mut/mut2 operands.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ParamSpec, TypeAlias

import numpy as np

from ..errors import MetadataError, MetadataTypeError, metadata_error
from ..layouts.rules import Rule
from ..types.kinds import ANY, DTypes
from ..types.meta import MAX_SIZE, Meta, Metas, OperandMeta
from ..wire.forms import shown
from .bound_kernels import storing_at_end, storing_at_end_if_shared, unless_empty, with_attributes
from .library import Library
from .own_op import OwnOp
from .suggestions import similar

# An attribute's value on the wire: hashable and made of msgpack's types. A dtype is its name, a list of axes a tuple.
AttributeValue: TypeAlias = Any
Attributes: TypeAlias = Mapping[str, AttributeValue]
# Attributes frozen for one call: (name, value) pairs in schema order, every name present.
FrozenAttributes: TypeAlias = tuple[tuple[str, AttributeValue], ...]
OutputMetas: TypeAlias = tuple[Meta | None, ...]
# An array of the device's array module.
Array: TypeAlias = Any
# Operands, some of which may be Python scalars, or results.
Arrays: TypeAlias = Sequence[Any]
ArrayModule: TypeAlias = Any

Infer: TypeAlias = Callable[[Metas, Attributes], OutputMetas]
Kernel: TypeAlias = Callable[[ArrayModule, Arrays, Arrays, Attributes], Arrays | None]
# A kernel bound to array module and attributes: called as bound(*inputs, *outputs).
BoundKernel: TypeAlias = Callable[..., Any]
# (offset, strides) in bytes of a view into its storage.
Layout: TypeAlias = tuple[int, tuple[int, ...]]
# The layout of a view op's result on the storage of its first input: (input meta, input layout, output meta,
# attributes) -> the layout, or None when no strides can express it and the kernel has to copy. ValueError if no strides
# can express it and an attribute forbids the copy.
View: TypeAlias = Callable[[Meta, Layout, Meta, Attributes], Layout | None]
# The estimated work of one call, in element operations (about a nanosecond each). It decides whether the scheduler's
# thread runs the call itself, or a worker thread.
Work: TypeAlias = Callable[[Metas, OutputMetas, Attributes], int]
# The check of a Python int operand, beyond its type: (value, operand metas, attributes); raises
# TypeError/ValueError/OverflowError.
ScalarCheck: TypeAlias = Callable[[int, Metas, Attributes], None]
# The most bytes that the results of a `dynamic` op can take, from the metas of its operands.
MaxBytes: TypeAlias = Callable[[Metas], int]
# The bytes that a kernel uses at its peak besides its operands and results: (operand metas, output metas, attributes).
Scratch: TypeAlias = Callable[[Metas, OutputMetas, Attributes], int]
# Makes a kernel for NumPy arrays of these metas only, or returns None: (operand metas, output metas, attributes).
Direct: TypeAlias = Callable[[Metas, OutputMetas, Attributes], BoundKernel | None]
# A property that an op has for some operands: (operand metas, attributes).
Property: TypeAlias = Callable[[Metas, Attributes], bool]
# The number of leading axes of the operand along which the rows of a reduction lie: (operand metas, attributes).
Rows: TypeAlias = Callable[[Metas, Attributes], int]
# The composition of an op from others: (call, inputs, attributes) -> outputs, where call(name, inputs, attributes) ->
# outputs.
Compose: TypeAlias = Callable[[Callable[..., list[Any]], Arrays, Attributes], list[Any]]

Fields = ParamSpec("Fields")  # of an op's definition
MACHINE_PROCESS = "the machine's process"  # the process that errors name, as far as the machine knows
VARIADIC = -1
DATA_DEPENDENT_SHAPE = "a shape depends on data"
# Temporaries of at most this many bytes need no declaration, and no machine counts them: NumPy casts in buffers of 8192
# elements for each operand.
UNCOUNTED_BYTES = 1 << 19
# The cost of an element relative to other dtypes: vector units do not support these dtypes, and each float16 that
# overflows or underflows costs some 100 ns.
_COSTLY = {np.dtype(np.float16): 16, np.dtype(np.complex64): 8, np.dtype(np.complex128): 8}
REQUIRED: Any = object()
# Functions of array modules that read values on the host, and the reason that a report gives.
_HOST_READERS = {
    "linalg.": "its solver waits for the device",
    "histogram": "its bins are counted on the host",
    "bincount": "its repetitions are counted on the host",
}


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute: its name, `check` (normalises a value or raises TypeError/ValueError), its default."""

    name: str
    check: Callable[[Any], AttributeValue]
    default: AttributeValue = REQUIRED


@dataclass(frozen=True, slots=True, eq=False)
class OpDef:
    """An op.

    :param inputs: The number of operands; VARIADIC for `least` or more.
    :param operands: The operands' names, unless these are the standard's (x, or x1, x2, ...). Operands beyond `least`
        are optional; if there are none beyond it, the last operand repeats.
    :param dtypes: The dtypes that each tensor operand may have; the last entry holds for all further operands.
    :param outputs: The number of results.
    :param elementwise: An output may be the memory of an input of the same shape and itemsize.
    :param pointwise: Each element of the only result depends only on the operands' elements at the same position, so
        the kernel may be called on pieces of them. Or a function that says for which operands this holds.
    :param rows: For a reduction over the last axes, the number of the other axes, if the kernel and `direct` compute
        the same bits for a row whatever rows are beside it; 0 if not.
    :param total: No data of valid operands make the kernel raise, so a call may be omitted if its result is not needed.
        Or a function that says for which operands this holds.
    :param writes_part: With `out=`, the op writes only a part of that tensor, which must be its first input, too.
    :param dynamic: The outputs' metas may be pending until the kernel has run (OneFlow's `mut2`).
    :param max_bytes: The most bytes that the results of a `dynamic` op can take; admission plans so many for them.
    :param bounded: `work` bounds the op's time, so the scheduler's thread may run it if it is small.
    :param checks_data: The kernel refuses some data (such as a position out of bounds). It is called even if the
        results are empty, so it must not loop over axes, which may have any size.
    :param checks_late: On a device that reports refused data late, the kernel does not wait for its check, but
        continues with clamped data (see `ops.positions`). Or a function that says for which operands this holds.
    :param scratch: The memory of the kernel's temporaries, if that may be more than `UNCOUNTED_BYTES` bytes.
    :param direct: Makes a function that does the same as the kernel with fewer Python calls, for some operands on the
        host: most ops are small, and a Python call takes as long as a hundred elements.
    :param scalars: The check of Python int operands, unless they must fit the promoted dtype.
    :param needs: Functions that the kernel calls and an array module may lack ("linalg.eigh"). Devices with such a
        module do not have the op.
    :param library: The library that the kernel calls besides the array module. Devices without it do not have the op.
    :param layouts: The layouts of global tensors with which each device computes only its own part (`layouts.rules`);
        or the reason for which each device computes the whole result.
    :param own: The additional properties of an op that is defined outside of this package.
    """

    name: str
    inputs: int
    infer: Infer
    summary: str
    least: int = 1
    operands: tuple[str, ...] = ()
    dtypes: tuple[DTypes, ...] = (ANY,)
    outputs: int = 1
    attributes: tuple[Attribute, ...] = ()
    ufunc: str | None = None
    kernel: Kernel | None = None
    elementwise: bool = False
    pointwise: bool | Property = False
    rows: Rows | None = None
    total: bool | Property = False
    writes_part: bool = False
    dynamic: bool = False
    max_bytes: MaxBytes | None = None
    bounded: bool = True
    checks_data: bool = False
    checks_late: bool | Property = False
    view: View | None = None
    work: Work | None = None
    scratch: Scratch | None = None
    direct: Direct | None = None
    compose: Compose | None = None
    scalars: ScalarCheck | None = None
    needs: tuple[str, ...] = ()
    library: Library | None = None
    layouts: Rule | str = ""
    own: OwnOp | None = None

    @property
    def prompt(self) -> bool:
        """Whether the op is bounded, and its library, if any, is already imported."""
        return self.bounded and (self.library is None or self.library.imported)

    @property
    def blocking(self) -> bool:
        """Whether the kernel reads values on the host (a shape, a bound, a solver's state), so that its thread waits
        for a GPU."""
        return bool(self.host_read_reason)

    @property
    def host_read_reason(self) -> str:
        """Why the kernel reads values on the host, in words; empty if it does not."""
        if self.dynamic:
            return DATA_DEPENDENT_SHAPE
        found = (text for start, text in _HOST_READERS.items() if any(path.startswith(start) for path in self.needs))
        return next(found, "it checks its data before it continues" if self.checks_data else "")

    def reports_late(self, metas: tuple[OperandMeta | None, ...], attributes: Attributes) -> bool:
        """Whether a device may report refused data after the kernel has run. False for pending operands."""
        return self.checks_data and holds(self.checks_late, metas, attributes)

    def never_raises(self, metas: tuple[OperandMeta | None, ...], attributes: Attributes) -> bool:
        """Whether no data make the kernel raise. False for pending operands, which may still be refused."""
        return holds(self.total, metas, attributes)

    def works_in_pieces(self, metas: tuple[OperandMeta | None, ...], attributes: Attributes) -> bool:
        """Whether the kernel may be called on pieces of these operands. False for pending operands."""
        return holds(self.pointwise, metas, attributes)

    def least_operands(self) -> int:
        """The smallest number of operands."""
        return self.least if self.inputs == VARIADIC else self.inputs

    def operand_names(self) -> tuple[str, ...]:
        """The operands' names in the definition, else those that the array API standard would use."""
        if self.operands or not self.inputs:
            return self.operands
        if self.inputs == VARIADIC:
            return ("inputs",)
        return ("x",) if self.inputs == 1 else tuple(f"x{n + 1}" for n in range(self.inputs))

    def most_operands(self) -> int | None:
        """The largest number of operands; None if there is no limit."""
        if self.inputs != VARIADIC:
            return self.inputs
        return len(self.operands) if len(self.operands) > self.least else None

    def freeze(self, given: Attributes | None) -> FrozenAttributes:
        """The attributes, checked, in normal form, and with defaults.

        MetadataError if one is unknown, missing or wrong.
        """
        if not (given is None or isinstance(given, Mapping)):
            raise MetadataTypeError(f"{self.name}: attributes must be a dict, not {type(given).__name__}", op=self.name)
        if not self.attributes and not given:
            return ()
        rest = dict(given or ())
        frozen = []
        for attribute in self.attributes:
            value = rest.pop(attribute.name, attribute.default)
            if value is REQUIRED:
                raise MetadataError(f"{self.name}: attribute {attribute.name!r} is required", op=self.name)
            try:
                frozen.append((attribute.name, attribute.check(value)))
            except (TypeError, ValueError, OverflowError, IndexError) as error:
                raise metadata_error(error, f"{self.name}: attribute {attribute.name!r}: {error}", self.name) from None
        if rest:
            known = ", ".join(a.name for a in self.attributes) or "none"
            raise MetadataError(f"{self.name}: unknown attribute {min(rest, key=str)!r} (known: {known})", op=self.name)
        return tuple(frozen)

    def estimate(self, metas: Metas, outputs: OutputMetas, attributes: Attributes) -> int:
        """Work of one call in element operations: the largest tensor's size times its dtypes' highest cost, unless the
        op has `work`.

        Never less than the number of elements to write.
        """
        if self.work is None:
            tensors = [m for m in (*metas, *outputs) if isinstance(m, Meta)]
            return max((m.size for m in tensors), default=0) * cost_of(tensors)
        return max(self.work(metas, outputs, attributes), sum(m.size for m in outputs if m is not None))

    def temporaries(
        self,
        metas: Metas,
        outputs: OutputMetas,
        attributes: Attributes,
        *,
        aliased: bool = False,
        least: int = 0,
    ) -> int:
        """The bytes that one call uses besides its operands and results; 0 if they are at most `UNCOUNTED_BYTES`.

        `aliased`: as in `bind`. `least`: the device's lower bound.
        """
        nbytes = 0 if self.scratch is None else self.scratch(metas, outputs, attributes)
        nbytes = max(nbytes, least)
        if aliased and not (self.elementwise or self.writes_part):  # `storing_at_end`
            nbytes += sum(m.nbytes for m in outputs if m is not None)
        return nbytes if nbytes > UNCOUNTED_BYTES else 0

    def serves(self, kind: str) -> bool:
        """Whether the definition has a kernel for devices of that kind."""
        return self.own is None or self.own.serves(kind)

    def bind(
        self,
        xp: ArrayModule,
        count: int,
        attributes: Attributes,
        *,
        aliased: bool = False,
        room: int = MAX_SIZE,
        kind: str = "cpu",
    ) -> BoundKernel:
        """The kernel for one array module, kind of device, number of inputs and set of attributes.

        `room`: as in the module's docstring. `aliased`: an output may share memory with an input although the op is not
        elementwise, so results are computed in other memory and stored at the end.
        """
        if self.ufunc is not None:
            function: BoundKernel = getattr(xp, self.ufunc)
            return function
        kernel = self.kernel if self.own is None else self.own.kernel(kind, self.kernel)
        if kernel is None:
            raise MetadataError(f"{self.name} has no kernel for devices of the kind {kind}", op=self.name)
        if self.dynamic:
            return with_attributes(kernel, xp, count, {**attributes, "room": room})
        run = (with_attributes if self.checks_data else unless_empty)(kernel, xp, count, attributes)
        if not aliased or self.elementwise:
            return run
        return storing_at_end_if_shared(run, xp, count) if self.writes_part else storing_at_end(run, xp, count)

    def is_ufunc(self, metas: Metas) -> bool:  # noqa: ARG002 - corrections.CorrectedUfunc uses them
        """Whether the array module's ufunc alone computes the op for these operands."""
        return self.ufunc is not None

    def lacks(self, xp: ArrayModule) -> str | None:
        """The first function that the kernel needs and the array module lacks, if any."""
        return lacks(xp, self.ufunc, self.needs)


def holds(declared: bool | Property, metas: tuple[OperandMeta | None, ...], attributes: Attributes) -> bool:
    """Whether a property holds for operands of these metas. False for pending operands."""
    known = tuple([meta for meta in metas if meta is not None])
    if isinstance(declared, bool) or len(known) < len(metas):
        return declared is True and len(known) == len(metas)
    return declared(known, attributes)


def cost_of(metas: Iterable[OperandMeta | None]) -> int:
    """The highest cost of an element among these dtypes, relative to float64."""
    return max((_COSTLY.get(m.dtype, 1) for m in metas if isinstance(m, Meta)), default=1)


def lacks(xp: ArrayModule, ufunc: str | None, needs: Iterable[str]) -> str | None:
    """The first missing function of the array module: the ufunc itself, or one in `needs`; None if it has all."""
    wanted = needs if ufunc is None else (ufunc, *needs)
    return next((path for path in wanted if not has(xp, path)), None)


def has(xp: ArrayModule, path: str) -> bool:
    """Whether the array module has a function of that name ("linalg.eigh")."""
    found = xp
    for name in path.split("."):
        found = getattr(found, name, None)
    return found is not None


REGISTRY: dict[str, OpDef] = {}


def lacking(xp: ArrayModule) -> frozenset[str]:
    """Names of the ops whose kernels need functions that the array module lacks, or a library that is missing here."""
    missing = set(lacking_in_numpy(len(REGISTRY)) if xp is np else lacking_functions(xp))
    for library in {op.library for op in REGISTRY.values() if op.library is not None}:
        missing |= library.lacking(xp, ops_of(library))
    return frozenset(missing)


def lacking_functions(xp: ArrayModule) -> frozenset[str]:
    """Names of the ops whose kernels need functions that the array module lacks."""
    wanted = {path for op in REGISTRY.values() for path in (op.ufunc, *op.needs) if path is not None}
    if all(has(xp, path) for path in wanted):  # faster, since many ops need the same functions
        return frozenset()
    return frozenset(op.name for op in REGISTRY.values() if op.lacks(xp) is not None)


@lru_cache(maxsize=1)
def lacking_in_numpy(_ops: int) -> frozenset[str]:
    """`lacking_functions` of NumPy, cached by the number of ops, since each session opens devices that use NumPy."""
    return lacking_functions(np)


def ops_of(library: Library) -> list[str]:
    """The ops whose kernels call the library."""
    return [op.name for op in REGISTRY.values() if op.library is library]


def no_kernel(name: str, device: str, missing: Collection[str], where: str) -> MetadataError:
    """The error for an op that the device lacks, with all ops in `missing`. `where`: the process that has the
    device."""
    library = REGISTRY[name].library if name in REGISTRY else None
    absent = library is not None and all(op in missing for op in ops_of(library))
    advice = f": {library.advice(device, where)}" if library is not None and absent else ""
    return MetadataError(f"{name} has no kernel on {device}{advice}", op=name)


def module_of(op: OpDef) -> str:
    """The module that defines an op."""
    return str(op.infer.__module__ if op.own is None else op.own.module)


def register(op: OpDef) -> OpDef:
    """Add an op to the registry. ValueError if the name is already defined."""
    if op.name in REGISTRY:
        modules = " and in ".join(map(module_of, (REGISTRY[op.name], op)))
        raise ValueError(f"op {op.name!r} is defined twice: in {modules}")
    REGISTRY[op.name] = op
    return op


def defining(kind: Callable[Fields, OpDef]) -> Callable[Fields, OpDef]:
    """A function that makes an op of the class `kind`, and registers it."""

    def define(*args: Fields.args, **fields: Fields.kwargs) -> OpDef:
        return register(kind(*args, **fields))

    return define


define = defining(OpDef)


def find(name: str) -> OpDef:
    """The op of that name. MetadataError with similar names if there is none."""
    op = REGISTRY.get(name) if isinstance(name, str) else None
    if op is None:
        hint = similar(name, REGISTRY) if isinstance(name, str) else ""
        raise MetadataError(f"unknown op {shown(name)}{hint}", op=name if isinstance(name, str) else shown(name))
    return op

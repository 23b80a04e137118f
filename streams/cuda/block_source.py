"""The source of the CUDA C++ kernels of one block (`block`): a fused chain of elementwise ops.

A block consists of lines, one for each ufunc that its ops call. The *loop* of a line is CuPy's device code of one
element for that ufunc and these dtypes (`loops`); it becomes an inline function here. The function `element` calls
these functions, one statement for each line. Two kernels call `element`: a thread of `fused` computes one element; a
thread of `fused_packs` computes several neighbours, a *pack*, which it reads and writes 16 bytes at a time.

**Names** in the source are those of the block: `a0` a tensor that is read, `n0` a number, `v0` the result of a line,
`r0` a result in memory. A kernel's parameters are the pointers, the numbers, the count `n` of elements, sizes, and
`nil`, which is always 0. The size `s1` is the number of elements of all axes but the first, `s2` of all but the first
two, and so on; in `fused_packs` these count packs. They locate an element of a broadcast tensor (`index_in`).

**Bits.** A block has the results of its loops' own kernels, bit for bit.

- The device code is CuPy's, and so is the compiler's option `-ftz=true`. The option `--fmad=false` keeps the compiler
  from joining a product and a sum of two loops. CuPy compiles single loops without that option, which makes no
  difference for the loops that blocks may contain (`traced.CONTRACTED` lists the others): `make cupy` compares the
  machine code.
- A value that one loop passes to another goes through `sealed`: its bits are combined with a zero that the compiler
  cannot know (`nil`). So the compiler cannot simplify across loops: a value that goes through memory is rounded,
  flushed to zero or wrapped. Examples: float64 -> float32 -> float64, a double negation, `x + 1 > x` of integers.
- Numbers and constants are parameters, as they are for CuPy's kernels.
"""

from __future__ import annotations

from typing import Final

from .block import KernelBlock, LoopCall, TensorArgument
from .loops import HEADERS, NAMES, UfuncLoop

SEALED: Final = """// A value as a kernel of its own would read it from memory: `nil` is 0.
static __device__ inline float sealed(float value, unsigned int nil) {
    asm("xor.b32 %0, %0, %1;" : "+f"(value) : "r"(nil));
    return value;
}
static __device__ inline double sealed(double value, unsigned int nil) {
    asm("xor.b64 %0, %0, %1;" : "+d"(value) : "l"((unsigned long long)nil));
    return value;
}
template <typename T> static __device__ inline T sealed(T value, unsigned int nil) {
    return (T)(value ^ (T)nil);
}
"""
PACK: Final = "template <typename T, int N> struct alignas(sizeof(T) * N) Pack { T each[N]; };\n"


def source_of(block: KernelBlock) -> str:
    """The source of both kernels."""
    loops = dict.fromkeys(line.loop for line in block.lines)
    names = function_names(block)
    preambles = dict.fromkeys(loop.preamble for loop in loops if loop.preamble)
    functions = "".join(function_of(loop, name) for loop, name in names.items())
    parts = (HEADERS, *preambles, SEALED, PACK, functions, element_of(block, names), kernels_of(block))
    return "".join(part if part.endswith("\n") else f"{part}\n" for part in parts)


def function_names(block: KernelBlock) -> dict[UfuncLoop, str]:
    """The name of each loop's function, such as `add_float32_float32`."""
    names: dict[UfuncLoop, str] = {}
    for line in block.lines:
        name = "_".join((line.name, *(dtype.name for dtype in line.loop.taken)))
        if line.loop not in names:
            taken = name in names.values()
            names[line.loop] = f"{name}_{len(names)}" if taken else name
    return names


def function_of(loop: UfuncLoop, name: str) -> str:
    """A function with the code of a loop, which uses the types `in0_type`, ..., `out0_type`."""
    types = [NAMES[dtype.name] for dtype in loop.taken]
    parameters = ", ".join(f"const {in_type} in{n}" for n, in_type in enumerate(types))
    declared = "".join(f"    typedef {in_type} in{n}_type;\n" for n, in_type in enumerate(types))
    out_type = NAMES[loop.given.name]
    return f"""static __device__ inline {out_type} {name}({parameters}) {{
{declared}    typedef {out_type} out0_type;
    out0_type out0;
    {loop.code};
    return out0;
}}
"""


def element_of(block: KernelBlock, names: dict[UfuncLoop, str]) -> str:
    """The function that computes an element. Values that no later line reads are not sealed."""
    inputs = [f"const {c_type(tensor)} {tensor.name}" for tensor in block.inputs]
    numbers = [f"const {NAMES[number.dtype.name]} {number.name}" for number in block.numbers]
    results = [f"{c_type(tensor)}& {tensor.name}" for tensor, _ in block.outputs]
    read = {operand for line in block.lines for operand in line.operands}
    lines = [f"{statement_of(line, names[line.loop], line.result in read)}  // {line.op}" for line in block.lines]
    lines += [f"{tensor.name} = {value};" for tensor, value in block.outputs]
    parameters = ", ".join([*inputs, *numbers, *results, "const unsigned int nil"])
    body = "".join(f"    {line}\n" for line in lines)
    return f"static __device__ inline void element({parameters}) {{\n{body}}}\n"


def statement_of(line: LoopCall, function: str, sealed: bool) -> str:
    """The statement of a line, such as `const float v0 = sealed(add_float32_float32(a0, n0), nil);`."""
    call = f"{function}({', '.join(line.operands)})"
    return f"const {NAMES[line.loop.given.name]} {line.result} = {f'sealed({call}, nil)' if sealed else call};"


def kernels_of(block: KernelBlock) -> str:
    """Both kernels.

    They take the same parameters: `n` counts elements for both, but the sizes s1, s2, ... count packs on the last
    axis for the second one.
    """
    index = NAMES["uint64" if block.wide else "uint32"]
    pointers = [f"const {c_type(tensor)}* {tensor.name}" for tensor in block.inputs]
    numbers = [f"const {NAMES[number.dtype.name]} {number.name}" for number in block.numbers]
    results = [f"{c_type(tensor)}* {tensor.name}" for tensor, _ in block.outputs]
    sizes = [f"const {index} n", *(f"const {index} s{k}" for k in range(1, len(block.axes)))]
    parameters = ", ".join([*pointers, *numbers, *results, *sizes, "const unsigned int nil"])
    thread = f"const {index} i = blockIdx.x * ({index})blockDim.x + threadIdx.x;"
    return f"""extern "C" __global__ void fused({parameters}) {{
    {thread}
    if (i < n) {call_of(block, "i")}
}}
extern "C" __global__ void fused_packs({parameters}) {{
    {thread}
    const {index} packs = n / {block.pack};
    if (i < packs) {{
{packs_of(block)}    }}{rest_of(block, index)}
}}
"""


def call_of(block: KernelBlock, index: str) -> str:
    """The call that computes the element at an index of the results. `index`: an expression in C."""
    inputs = [f"{tensor.name}[{index_in(tensor, index)}]" for tensor in block.inputs]
    results = [f"{tensor.name}[{index}]" for tensor, _ in block.outputs]
    return f"element({', '.join([*inputs, *(number.name for number in block.numbers), *results, 'nil'])});"


def packs_of(block: KernelBlock) -> str:
    """The statements that compute the pack at `i`. A tensor that is broadcast along the last axis gives all elements of
    a pack the same value."""
    reads, inputs = [], []
    for tensor in block.inputs:
        name, index = f"x{tensor.name}", index_in(tensor, "i")
        if block.is_packed(tensor):
            pack = pack_type(block, tensor)
            reads.append(f"const {pack} {name} = ((const {pack}*){tensor.name})[{index}];")
            inputs.append(f"{name}.each[k]")
        else:
            reads.append(f"const {c_type(tensor)} {name} = {tensor.name}[{index}];")
            inputs.append(name)
    writes = [f"(({pack_type(block, tensor)}*){tensor.name})[i] = x{tensor.name};" for tensor, _ in block.outputs]
    declared = [f"{pack_type(block, tensor)} x{tensor.name};" for tensor, _ in block.outputs]
    results = [f"x{tensor.name}.each[k]" for tensor, _ in block.outputs]
    arguments = ", ".join([*inputs, *(number.name for number in block.numbers), *results, "nil"])
    loop = f"#pragma unroll\n        for (int k = 0; k < {block.pack}; k++) element({arguments});"
    return (
        "".join(f"        {line}\n" for line in (*reads, *declared))
        + f"{loop}\n"
        + "".join(f"        {line}\n" for line in writes)
    )


def rest_of(block: KernelBlock, index: str) -> str:
    """The branch for the elements after the last pack; empty if there are several axes, since then packs fill the
    last axis."""
    if len(block.axes) > 1:
        return ""
    return f""" else if (i == packs) {{
        for ({index} k = packs * {block.pack}; k < n; k++) {call_of(block, "k")}
    }}"""


def index_in(tensor: TensorArgument, index: str) -> str:
    """The index in a tensor that belongs to an index of the results, as an expression in C.

    The tensor extends along some axes, and is broadcast along the others. Along each run of axes where it extends, it
    has as many elements as the results.
    """
    along, count = tensor.along, len(tensor.along)
    if all(along):
        return index
    expression, start = "", 0
    while start < count:
        stop = next((n for n in range(start, count) if along[n] is not along[start]), count)
        if along[start]:
            in_run = index if stop == count else f"{index} / s{stop}"
            size = f"s{start}" if stop == count else f"(s{start} / s{stop})"
            part = f"{in_run} % {size}" if start else in_run
            expression = f"({expression}) * {size} + {part}" if expression else part
        start = stop
    return expression or "0"


def c_type(tensor: TensorArgument) -> str:
    """The type of the tensor's elements."""
    return NAMES[tensor.meta.dtype.name]


def pack_type(block: KernelBlock, tensor: TensorArgument) -> str:
    """The type of a pack of the tensor's elements."""
    return f"Pack<{c_type(tensor)}, {block.pack}>"

"""Every name of CuPy in use exists, accepts its arguments, and has loops for the dtypes.

The list of CuPy's names decides; it is compared with CuPy itself where CuPy is installed. The fake has no other
names, and accepts no other arguments.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator
from inspect import signature
from pathlib import Path

import numpy as np
import pytest

from tensord.interpreter import ops as _ops  # noqa: F401 - fills the registry
from tensord.interpreter.ops.corrections import CorrectedUfunc
from tensord.interpreter.ops.special.kernels import LIBRARY
from tensord.interpreter.schema.opdef import REGISTRY, ops_of

from ...each_case import each_case
from ..fake_cuda.gpu import Gpu
from ..fake_cuda.module import Runtime, make_modules
from ..fake_cuda.names import FILE, Parameters, has_loop, is_known, known, loops, parameters, resolve, text_of_wheel

ROOT = Path(__file__).parents[3]
ROOTS = {"cupy": "cupy", "_cupy": "cupy", "cupyx": "cupyx", "cuda": "cupy.cuda", "runtime": "cupy.cuda.runtime"}
ROOTS |= {"nccl": "cupy.cuda.nccl", "comm": "cupy.cuda.nccl.NcclCommunicator"}


def chain_of(node: ast.AST) -> list[str]:
    """The names of an expression such as `self._cupy.cuda.Event`; none for other expressions."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return [node.id, *reversed(names)] if isinstance(node, ast.Name) else []


def paths_in(file: Path, roots: dict[str, str]) -> Iterator[str]:
    """Names of CuPy in a source."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in {"cupy", "cupyx"}:
            yield from (f"{node.module}.{each.name}" for each in node.names)
        names = chain_of(node)
        if names[:1] == ["self"]:
            del names[0]
        if len(names) > 1 and names[0] in roots:
            yield ".".join([roots[names[0]], *names[1:]])


def calls_in(file: Path, roots: dict[str, str]) -> Iterator[tuple[str, int, list[str]]]:
    """Calls of CuPy in a source: the name, how many arguments have no keyword, the keywords."""
    for node in ast.walk(ast.parse(file.read_text())):
        if not isinstance(node, ast.Call):
            continue
        names = chain_of(node.func)
        if names[:1] == ["self"]:
            del names[0]
        spread = any(isinstance(each, ast.Starred) for each in node.args) or any(k.arg is None for k in node.keywords)
        if len(names) > 1 and names[0] in roots and not spread:
            keywords = [k.arg for k in node.keywords if k.arg is not None]
            yield ".".join([roots[names[0]], *names[1:]]), len(node.args), keywords


def used() -> set[str]:
    """The names used by the device and the kernels. An op's declared needs may be missing: it runs elsewhere then."""
    needed = {f"cupy.{path}" for op in REGISTRY.values() for path in (op.ufunc, *op.needs) if path}
    found = {path for file in (ROOT / "streams" / "cuda").glob("*.py") for path in paths_in(file, ROOTS)}
    kernels = {path for file in (ROOT / "interpreter/ops").rglob("*.py") for path in paths_in(file, {"xp": "cupy"})}
    composed = set(paths_in(ROOT / "interpreter/ops/special/composed.py", {"of": "cupyx.scipy.special"}))
    assert composed
    return found | (kernels - needed) | composed


def faked() -> set[str]:
    """The fake's names besides NumPy's functions."""
    modules = make_modules(Gpu(0))
    own = {f"cupy.cuda.{name}" for name in vars(modules["cupy"].cuda)}
    own |= {f"cupy.cuda.runtime.{name}" for name in vars(Runtime)}
    own |= {f"cupyx.{name}" for name in vars(modules["cupyx"])}
    return {path for path in own if not path.rpartition(".")[2].startswith("_")}


def test_names_are_found_in_sources(tmp_path):
    source = tmp_path / "a.py"
    source.write_text("from cupyx import errstate\nself._cupy.cuda.Device(0)\nruntime.free(0)\nother.cupy.x\ncupy\n")
    assert set(paths_in(source, ROOTS)) == {
        "cupyx.errstate", "cupy.cuda", "cupy.cuda.Device", "cupy.cuda.runtime.free"
    }  # fmt: skip


def test_all_that_is_used_is_in_the_list():
    assert len(used()) > 60
    assert [path for path in sorted(used() | faked()) if not is_known(path)] == []


def test_the_fake_lacks_what_cupy_lacks():
    cupy = make_modules(Gpu(0))["cupy"]
    assert cupy.sort
    for name in ("block", "longdouble", "nonsense"):
        assert f"cupy.{name}" not in known()
        with pytest.raises(AttributeError):
            getattr(cupy, name)
    with pytest.raises(AttributeError):
        assert cupy.linalg.multi_dot
    array = cupy.asarray([1.0])
    assert array.sum().item() == 1
    with pytest.raises(AttributeError):
        array.setfield()


def test_the_fakes_functions_return_what_cupys_do():
    cupy = make_modules(Gpu(0))["cupy"]
    array = cupy.asarray([1.0, 2.0])
    assert cupy.negative(array, array) is array
    assert cupy.fft.fftfreq(2).get().tolist() == [0, -0.5]


@pytest.mark.cupy
def test_the_list_is_that_of_the_installed_cupy():
    if importlib.util.find_spec("cupy") is None:
        pytest.skip("CuPy is not installed; `make cupy` has it for this test alone")
    assert [path for path in sorted(used() | faked()) if not has(path)] == []
    listed, wheel = FILE.read_text().splitlines(), text_of_wheel().splitlines()
    if listed[0] == wheel[0]:
        assert listed == wheel


def test_a_line_of_the_list_says_what_a_function_takes():
    assert parameters("cupy.take") == Parameters(("a", "indices", "axis", "out"), 2, frozenset())
    assert parameters("cupy.unique") == Parameters(
        ("ar", "return_index", "return_inverse", "return_counts", "axis"), 1, frozenset({"equal_nan"})
    )
    assert parameters("cupy.cuda.runtime.memcpyAsync") == Parameters(
        ("dst", "src", "size", "kind", "stream"), 5, frozenset()
    )
    assert parameters("cupy.pi") is None
    assert parameters("cupy.add") is None
    assert loops("cupy.exp") == ("e->e", "f->f", "d->d", "F->F", "D->D")


@pytest.mark.parametrize(
    ("path", "count", "keywords", "problem"),
    [
        ("cupy.take", 2, ["axis"], ""),
        ("cupy.take", 1, ["indices"], ""),
        ("cupy.take", 4, [], ""),
        ("cupy.take", 5, [], "5 positional arguments"),
        ("cupy.take", 2, ["mode"], "unexpected arguments: mode"),
        ("cupy.take", 3, ["axis"], "unexpected arguments: axis"),
        ("cupy.take", 1, [], "missing arguments: indices"),
        ("cupy.unique", 1, ["equal_nan"], ""),
        ("cupy.unique", 6, [], "6 positional arguments"),
    ],
)
def test_a_call_fits_what_a_function_takes_or_the_problem_is_named(path, count, keywords, problem):
    taken = parameters(path)
    assert taken is not None
    assert taken.problem(count, keywords).startswith(problem)
    assert bool(taken.problem(count, keywords)) == bool(problem)


def test_every_call_in_the_sources_fits_what_cupy_takes():
    made = [call for file in (ROOT / "streams" / "cuda").glob("*.py") for call in calls_in(file, ROOTS)]
    made += [call for file in (ROOT / "interpreter/ops").rglob("*.py") for call in calls_in(file, {"xp": "cupy"})]
    checked = [(path, taken.problem(n, words)) for path, n, words in made if (taken := parameters(path)) is not None]
    assert len(checked) > 150
    assert [each for each in checked if each[1]] == []


def test_the_fake_takes_what_cupy_takes_and_no_more():
    """The fake's own functions: as many arguments as CuPy's, and the same names for keyword arguments."""
    modules = make_modules(Gpu(0))
    cuda = modules["cupy"].cuda
    own = {f"cupy.cuda.runtime.{name}": getattr(cuda.runtime, name) for name in vars(Runtime) if name[0] != "_"}
    own |= {f"cupy.cuda.{name}": function for name, function in vars(cuda).items() if name != "runtime"}
    own |= {f"cupyx.{name}": f for name, f in vars(modules["cupyx"]).items() if callable(f) and name[0] != "_"}
    wrong = []
    for path, function in own.items():
        theirs = parameters(path)
        if not callable(function) or theirs is None or path.endswith("Error"):
            continue
        ours = [p for p in signature(function).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
        required = sum(p.default is p.empty for p in ours)
        if required > len(theirs.positional) or len(ours) > len(theirs.positional):
            wrong.append(f"{path}: {[p.name for p in ours]} instead of {theirs.positional}")
    assert wrong == []


def test_the_fake_refuses_arguments_that_cupy_lacks():
    cupy = make_modules(Gpu(0))["cupy"]
    x = cupy.asarray([1.0, 2.0])
    with pytest.raises(TypeError, match=r"cupy.take\(\): unexpected arguments: mode"):
        cupy.take(x, x.astype("int64"), mode="clip")
    with pytest.raises(TypeError, match=r"cupy.ndarray.sum\(\): unexpected arguments: where"):
        x.sum(where=x > 1)


@pytest.mark.parametrize(
    ("path", "operands", "has"),
    [
        ("cupy.logical_and", (np.complex64, np.complex64), False),
        ("cupy.add", (np.complex64, np.complex64), True),
        ("cupy.left_shift", (np.float32, np.int8), False),
        ("cupy.left_shift", (np.uint64, np.int8), False),
        ("cupy.power", (np.float32, 2), True),
        ("cupy.bitwise_and", (np.int8, 2.5), False),
        ("cupy.take", (np.complex64,), True),
    ],
)
def test_a_loop_takes_what_casts_to_it(path, operands, has):
    assert has_loop(path, [np.dtype(x) if isinstance(x, type) else x for x in operands]) is has


def test_the_fake_has_the_loops_of_cupy():
    cupy = make_modules(Gpu(0))["cupy"]
    x = cupy.asarray([1j])
    with pytest.raises(TypeError, match=r"Wrong type .* of arguments for cupy_logical_and"):
        cupy.logical_and(x, x)


UFUNCS = [op for op in REGISTRY.values() if op.ufunc and not isinstance(op, CorrectedUfunc) and op.library is None]


@each_case("op", UFUNCS, ids=lambda op: op.name)
def test_cupy_has_a_loop_for_each_dtype_of_an_op_that_is_a_ufunc(op):
    assert loops(f"cupy.{op.ufunc}")
    for name in op.dtypes[0]:
        operands = [np.zeros(1, name)] * op.inputs
        assert has_loop(f"cupy.{op.ufunc}", operands), name


def has(path: str) -> bool:
    """Whether the wheel has the name."""
    try:
        resolve(path)
    except AttributeError:
        return False
    return True


def test_of_the_special_functions_cupy_lacks_two_and_one_is_unfit(monkeypatch):
    modules = make_modules(Gpu(0))
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    assert LIBRARY.lacking(modules["cupy"], ops_of(LIBRARY)) == {"hyp1f1", "lpmv", "spence"}

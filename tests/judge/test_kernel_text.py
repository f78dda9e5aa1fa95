"""Which texts of kernels a judge runs: Triton's language, and no Python beside it."""

from __future__ import annotations

import importlib
import json
import re
from typing import Any

import pytest
import triton
import triton.language as tl
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITFunction

from kernellab._triton.closure import decorated_closure_of
from kernellab._triton.language_names import REFUSED_ATTRIBUTES, VALUE_ATTRIBUTES, language_name
from kernellab._triton.loading import load
from kernellab.judge.kernel_text import (
    MOST_FUNCTIONS,
    clean_closure,
    problem_of_constant,
    problems_of_closure,
)
from kernellab.source import (
    Autotune,
    Binding,
    Call,
    Closure,
    ConfigText,
    Constant,
    Constexpr,
    Dtype,
    Function,
    FunctionRef,
    Helper,
    Import,
    Items,
    JitOptions,
    Members,
    Opaque,
    closure_of_json,
    closure_to_jsonable,
)
from kernellab.source import (
    Heuristics as HeuristicsText,
)
from tests import samples

FILE = "/home/user/candidate.py"
FIRST_LINE = 10
TL = Import("triton.language")
TORCH = Import("torch")

HELPER = "def helper(x):\n    return x + 1\n"
COMBINE = "def combine(a, b):\n    return a + b\n"
PYTHON = "def on_host(x):\n    return open(x).read()\n"


def function(text: str, kind: Any = "jit", first_line: Any = FIRST_LINE, **bindings: Any) -> Function:
    name = re.match(r"def\s+\\?\s*(\w+)", text)
    return Function(
        name.group(1) if name else "kernel", kind, text, FILE, first_line, False, tuple(sorted(bindings.items()))
    )


def closure(text: str, *others: Function, **bindings: Binding) -> Closure:
    """A kernel with ``tl`` and others, as the judge gets it: through JSON."""
    kernel = function(text, **{"tl": TL, **bindings})
    written = Closure((kernel, *others), labels=((FILE, "candidate.py"),))
    read = closure_of_json(json.loads(json.dumps(closure_to_jsonable(written))))
    return Closure(read.functions, labels=written.labels)


def body(*lines: str, parameters: str = "x_ptr, n, BLOCK: tl.constexpr") -> str:
    return "\n    ".join((f"def kernel({parameters}):", *lines)) + "\n"


# Each row: the text, the rule, the line in the text from 1, and a word of the sentence.
HOSTILE: dict[str, tuple[str, str, int, str]] = {
    "class of a tuple": (body("y = 1", "x = ().__class__"), "host_code", 3, "__class__"),
    "subclasses": (body("x = ().__class__.__base__.__subclasses__()"), "host_code", 2, "__class__"),
    "class of a number": (body("x = (1).__class__"), "host_code", 2, "__class__"),
    "globals of a builtin": (body("x = tl.load.__globals__"), "host_code", 2, "__globals__"),
    "globals of a jit function": (body("x = tl.sum.fn"), "host_code", 2, "tl.sum.fn"),
    "wrapped function": (body("x = tl.load.__wrapped__"), "host_code", 2, "__wrapped__"),
    "builtins of tl.core": (body("tl.core.builtins.open('a')"), "host_code", 2, "builtins"),
    "builtins as a value": (body("x = tl.core.builtins"), "host_code", 2, "builtins"),
    "inspect": (body("tl.core.inspect.os.system('a')"), "host_code", 2, "inspect"),
    "os through a module": (body("tl.core.os.system('a')"), "outside_library", 2, "tl.core.os"),
    "sys through math": (body("tl.math.sys.exit()"), "outside_library", 2, "tl.math.sys"),
    "typing": (body("x = tl.core.typing.sys"), "host_code", 2, "typing"),
    "the compiler's bindings": (body("x = tl.core.ir.builder"), "host_code", 2, "ir"),
    "the knobs": (body("x = tl.core.knobs"), "host_code", 2, "knobs"),
    "a decorator of functools": (body("x = tl.math.wraps(tl.load)"), "host_code", 2, "wraps"),
    "a decorator of the language": (body("x = tl.core.builtin(n)"), "host_code", 2, "builtin"),
    "the driver": (body("x = tl.target_info.driver"), "host_code", 2, "driver"),
    "the semantic": (body("x = tl.semantic.TritonSemantic"), "host_code", 2, "semantic"),
    "the loader of a package": (body("tl.extra.module_finder.find_spec('os')"), "host_code", 2, "module_finder"),
    "package tools": (body("tl.extra.pkgutil.os.system('a')"), "host_code", 2, "pkgutil"),
    "private names": (body("x = tl.core._unwrap_if_constexpr(n)"), "host_code", 2, "private"),
    "a module as a value": (body("x = tl.core"), "unsupported", 2, "tl.core"),
    "a builtin as a value": (body("x = tl.load"), "unsupported", 2, "tl.load"),
    "a tensor made by hand": (body("x = tl.tensor('handle', tl.float32)"), "host_code", 2, "tl.tensor"),
    "a descriptor made by hand": (body("x = tl.core.tensor_descriptor(n, [], [], n)"), "host_code", 2, "descriptor"),
    "the handle": (body("x = tl.load(x_ptr)", "y = x.handle.data"), "host_code", 3, "handle"),
    "the array": (body("x = tl.load(x_ptr)", "y = x.data"), "host_code", 3, "data"),
    "the method of an array": (body("x = tl.load(x_ptr).tofile('a')"), "host_code", 2, "tofile"),
    "the compiler of a dtype": (body("x = tl.float32.to_ir(n)"), "host_code", 2, "to_ir"),
    "format of a string": (body("x = '{0.__class__}'.format(n)"), "host_code", 2, "format"),
    "an f-string with attributes": (body("tl.static_print(f'{n.__class__}')"), "host_code", 2, "__class__"),
    "an f-string with a call": (body("tl.static_print(f'{open(1)}')"), "unknown_name", 2, "open"),
    "an f-string with a width": (body("tl.static_print(f'{n:>999999999}')"), "unsupported", 2, "formats"),
    "an f-string with a computed width": (body("tl.static_print(f'{n:{n}}')"), "unsupported", 2, "formats"),
    "an f-string outside a message": (body("x = f'{n}'"), "unsupported", 2, "f-string"),
    "a nested f-string": (body("assert n, f'{open(n)}'"), "unknown_name", 2, "open"),
    "open in print": (body("print(open('/etc/passwd'))"), "unknown_name", 2, "open"),
    "print into a file": (body("print(n, file=x_ptr)"), "host_code", 2, "file"),
    "eval": (body("eval('1')"), "unknown_name", 2, "eval"),
    "exec": (body("exec('1')"), "unknown_name", 2, "exec"),
    "getattr": (body("x = getattr(tl, 'core')"), "unknown_name", 2, "getattr"),
    "getattr as a local": (body("if n:", "    getattr = n", "getattr(n, 'a')"), "host_code", 3, "getattr"),
    "type": (body("x = type(n)"), "unknown_name", 2, "type"),
    "vars": (body("x = vars()"), "unknown_name", 2, "vars"),
    "globals": (body("x = globals()"), "unknown_name", 2, "globals"),
    "import by function": (body("__import__('os').system('a')"), "host_code", 2, "__import__"),
    "builtins by name": (body("__builtins__['open']"), "host_code", 2, "__builtins__"),
    "an import": (body("import os"), "unsupported", 2, "Import"),
    "an import from": (body("from os import system"), "unsupported", 2, "ImportFrom"),
    "a lambda": (body("f = lambda: open(1)"), "unsupported", 2, "Lambda"),
    "a walrus": (body("x = (y := n) + 1"), "unsupported", 2, "NamedExpr"),
    "a walrus in a comprehension": (body("x = [(open := i) for i in (1, 2)]"), "unsupported", 2, "NamedExpr"),
    "a nested function": (body("def f():", "    return 1"), "unsupported", 2, "FunctionDef"),
    "a nested decorated function": (body("@print", "def f():", "    return 1"), "unsupported", 3, "FunctionDef"),
    "a class": (body("class A:", "    pass"), "unsupported", 2, "ClassDef"),
    "try": (body("try:", "    x = 1", "except ValueError:", "    pass"), "unsupported", 2, "Try"),
    "raise": (body("raise n"), "unsupported", 2, "Raise"),
    "global": (body("global x", "x = 1"), "unsupported", 2, "Global"),
    "delete": (body("x = 1", "del x"), "unsupported", 3, "Delete"),
    "yield": (body("yield n"), "unsupported", 2, "Yield"),
    "match": (body("match n:", "    case 1:", "        pass"), "unsupported", 2, "Match"),
    "a dict comprehension": (body("x = {i: open for i in (1,)}"), "unsupported", 2, "DictComp"),
    "a comprehension's variable outside": (
        body("x = [open for open in (1, 2)]", "open('a')"),
        "unknown_name",
        3,
        "open",
    ),
    "a comprehension over files": (body("x = [i for i in open('a')]"), "unknown_name", 2, "open"),
    "a local read before it is set": (body("x = open", "open = 1"), "host_code", 2, "open"),
    "attributes set": (body("tl.load = n"), "host_code", 2, "tl.load"),
    "items set": (body("x_ptr[0] = n"), "host_code", 2, "x_ptr[0]"),
    "attributes set by a loop": (body("for tl.load in range(2):", "    pass"), "host_code", 2, "tl.load"),
    "a local called": (body("x = n", "x(1)"), "host_code", 3, "called"),
    "a result called": (body("x = tl.load(x_ptr)(1)"), "host_code", 2, "called"),
    "a launch inside": (body("helper[(1,)](n)"), "host_code", 2, "helper"),
    "attributes of a helper": (body("x = helper.fn"), "host_code", 2, "helper.fn"),
    "the run of a helper": (body("helper.run(n, grid=(1,))"), "host_code", 2, "helper.run"),
    "an argument of the compiler": (body("tl.load(x_ptr, _semantic=n)"), "host_code", 2, "_semantic"),
    "arguments by **": (body("tl.load(x_ptr, **n)"), "unsupported", 2, "**"),
    "with open": (body("with open('a') as f:", "    pass"), "unknown_name", 2, "open"),
    "inline assembly": (
        body("y = 1", "tl.inline_asm_elementwise('', '', [n], tl.int32, True, 1)"),
        "inline_assembly",
        3,
        "assembly",
    ),
    "inline assembly of tl.core": (body("tl.core.inline_asm_elementwise('')"), "inline_assembly", 2, "assembly"),
    "a library": (body("tl.core.extern_elementwise('a', '/tmp/a.bc', [], {}, True)"), "host_code", 2, "library"),
    "torch": (body("x = torch.ones(1)"), "outside_library", 2, "torch"),
    "os": (body("os.system('a')"), "outside_library", 2, "os.system"),
    "a function of torch": (body("x = matmul(n, n)"), "outside_library", 2, "matmul"),
    "functions of math": (body("x = math.factorial(n)"), "outside_library", 2, "math.factorial"),
    "the loader of math": (body("x = math.__loader__"), "outside_library", 2, "math"),
    "a Python function": (body("x = on_host(n)"), "host_code", 2, "Python function"),
    "a constexpr of a Python function": (body("x = wrapped(n)"), "host_code", 2, "Python function"),
    "a Python function in a tuple": (body("x = several[0](n)"), "host_code", 2, "called"),
    "a Python function of a module": (body("x = own.on_host(n)"), "host_code", 2, "Python function"),
    "a missing name of a module": (body("x = own.missing(n)"), "outside_library", 2, "missing"),
    "an object": (body("x = made.value"), "host_code", 2, "made"),
    "an opaque value": (body("x = opaque + 1"), "host_code", 2, "opaque"),
    "a default with a call": (body("pass", parameters="x, y=open('a')"), "host_code", 1, "default"),
    "a default with an attribute": (body("pass", parameters="x, y=tl.core.builtins"), "host_code", 1, "builtins"),
    "a default with a list": (
        body("pass", parameters="x, y=[open(i) for i in 'a']"),
        "host_code",
        1,
        "default",
    ),
    "an annotation with a call": (body("pass", parameters="x: open('a')"), "host_code", 1, "annotation"),
    "an annotation with an operator": (body("pass", parameters="x: 'a' * 10**10"), "host_code", 1, "annotation"),
    "an annotation with a chain": (body("pass", parameters="x: ().__class__"), "host_code", 1, "annotation"),
    "a private annotation": (body("pass", parameters="x: tl.core.__builtins__"), "host_code", 1, "private"),
    "an annotated local": (body("x: open('a') = 1"), "host_code", 2, "annotation"),
    "a result's annotation": ("def kernel(x) -> open('a'):\n    pass\n", "host_code", 1, "annotation"),
    "keywords of the caller": (body("pass", parameters="x, **rest"), "unsupported", 1, "**rest"),
    "a number too large": (body("x = 2 ** 10 ** 10"), "too_large", 2, "64 bits"),
    "a shift too large": (body("x = 1 << 10000000000"), "too_large", 2, "64 bits"),
    "a product too large": (body(f"x = {10**15} * {10**15}"), "too_large", 2, "64 bits"),
    "a number of a binding too large": (body("x = 2 ** SIZE"), "too_large", 2, "64 bits"),
    "a string too long": (body("x = 'a' * 10000000000"), "too_large", 2, "long sequence"),
    "a list too long": (body("x = [0] * 10000000000"), "too_large", 2, "long sequence"),
    "a literal too large": (body(f"x = {2**70}"), "too_large", 2, "64 bits"),
    "bytes": (body("x = b'a'"), "unsupported", 2, "b'a'"),
    "names of the interpreter": (body("interpreter_builder = n"), "host_code", 2, "interpreter_builder"),
    "names of the rewritten text": (body("_kernellab_plain = n"), "host_code", 2, "_kernellab_plain"),
    "names that Python reserves": (body("__builtins__ = n"), "host_code", 2, "__builtins__"),
    "a text behind a line break": (body("x = 1 # \u2028    open('a')"), "unsupported", 2, "character"),
    "a form feed": (body("x = 1\x0c"), "unsupported", 2, "character"),
    "a def that Triton does not find": (
        "def \\\nkernel(x):\n    '''\ndef kernel(x):\n    open(x)\n'''\n",
        "unsupported",
        1,
        "begin",
    ),
}
BINDINGS: dict[str, Binding] = {
    "torch": TORCH,
    "os": Import("os"),
    "math": Import("math"),
    "matmul": Import("torch", "matmul"),
    "helper": FunctionRef(1),
    "on_host": FunctionRef(2),
    "wrapped": Constexpr(FunctionRef(2)),
    "several": Items("tuple", (FunctionRef(2),)),
    "own": Members("own", (("on_host", FunctionRef(2)),)),
    "made": Call(FunctionRef(2), (Constant("a"),)),
    "opaque": Opaque("socket.socket"),
    "SIZE": Constexpr(Constant(10**9)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_text_is_refused_by_rule_and_line(name: str) -> None:
    text, rule, line, word = HOSTILE[name]
    candidate = closure(text, function(HELPER), function(PYTHON, "python"), **BINDINGS)
    problems = problems_of_closure(candidate)
    found = [problem for problem in problems if problem.rule == rule and problem.line == FIRST_LINE + line - 1]
    assert found, problems
    assert found[0].file == "candidate.py"
    assert any(word in problem.detail and problem.detail.endswith(".") for problem in found), found


def test_the_hostile_texts_are_many() -> None:
    assert len(HOSTILE) >= 100


@pytest.mark.parametrize("name", ["eval", "the handle", "a walrus", "inline assembly", "a default with a call"])
def test_a_helper_is_checked_as_its_kernel_is(name: str) -> None:
    text, rule, line, _ = HOSTILE[name]
    helper = function(text.replace("def kernel(", "def helper("), first_line=50, tl=TL, **BINDINGS)
    candidate = closure(body("helper(n)"), helper, function(PYTHON, "python"), helper=FunctionRef(1))
    assert [(p.rule, p.line) for p in problems_of_closure(candidate)][:1] == [(rule, 50 + line - 1)]


def test_a_helper_of_a_package_is_checked_by_its_text() -> None:
    helper = function("def helper(x):\n    return open(x)\n", first_line=50)
    bound = Helper(Import("triton.language", "sum"), FunctionRef(1))
    (problem,) = problems_of_closure(closure(body("helper(n)"), helper, helper=bound))
    assert (problem.rule, problem.line) == ("unknown_name", 51)


def test_a_function_of_the_compiler_computes_on_numbers_and_reads_no_file() -> None:
    good = "def blocks(n):\n    sizes = [i for i in range(n) if n % (i + 1) == 0]\n    return max(sizes).bit_length()\n"
    bad = "def blocks(n):\n    return len(open('/etc/passwd').read())\n"
    kernel = body("x = tl.arange(0, blocks(BLOCK))")
    assert problems_of_closure(closure(kernel, function(good, "constexpr_function"), blocks=FunctionRef(1))) == ()
    problems = problems_of_closure(closure(kernel, function(bad, "constexpr_function"), blocks=FunctionRef(1)))
    assert {(problem.rule, problem.line) for problem in problems} >= {("unknown_name", FIRST_LINE + 1)}


@pytest.mark.parametrize(
    "text",
    [
        body("x = tl.load(x_ptr + tl.arange(0, BLOCK), mask=n > 0, other=0.0).to(tl.float32)"),
        body("x = tl.reduce(n, 0, combine)"),
        body("x, y = tl.associative_scan((n, n), 0, combine)"),
        body("tl.static_assert(BLOCK % 2 == 0, f'BLOCK is {BLOCK:4d}')", "tl.static_print('a', BLOCK)"),
        body("tl.device_print('x', n)", "print('x', n)", "assert n > 0, 'positive'"),
        body("if x_ptr.dtype.element_ty == tl.float16:", "    y = n.to(x_ptr.dtype.element_ty)"),
        body("y = isinstance(n, tl.tensor)", "z = isinstance(n, (tl.constexpr, int))"),
        body("for i in tl.range(0, n, num_stages=3):", "    x = i", "while n > 0:", "    break"),
        body("for i in tl.static_range(4):", "    continue"),
        body("x = [i + 1 for i in (1, 2)]", "y = x[0]", "z = n[None, :]", "w = n[:, None]"),
        body("x = math.pi + math.inf"),
        body("x = n.to(tl.core.get_int_dtype(bitwidth=32, signed=True), bitcast=True)"),
        body("x = tl.math.exp(n) + tl.extra.cuda.libdevice.tanh(n)"),
        body("x = triton.cdiv(BLOCK, 2) + triton.language.cdiv(n, 2) + triton.next_power_of_2(BLOCK)"),
        body("x = tl.max(n, axis=0, propagate_nan=tl.PropagateNan.ALL)"),
        body("x = float('-inf')", "y = -float('inf')", "z = min(n, 3) if BLOCK is not None else max(n, 1)"),
        body("_, y = tl.split(n)", "_x = _helper(n)", "x = y.T"),
        body("x: tl.constexpr = BLOCK // 2", "x += 1", "(a, b), c = (n, n), n"),
        body("return FUNCTION(n, *x_ptr)", parameters="x_ptr, n, FUNCTION: tl.constexpr = combine"),
        body("pass", parameters="x: torch.Tensor, y: 'Tensor | None' = None, z: int | None = -1, e=1e-6, *rest"),
        body("pass", parameters="x: Optional[torch.Tensor], y: Config = SIZE, t: tl.dtype = tl.int1, /, *, z: own.A"),
        body("x = tl.zeros((BLOCK, 1 << 10), dtype=DTYPE) * SIZE + TABLE[1]"),
        body("input = tl.load(x_ptr)", "id = input + 1", "tl.store(x_ptr, id)"),
    ],
)
def test_the_language_is_accepted(text: str) -> None:
    others = function(COMBINE), function(PYTHON, "python"), function(HELPER)
    candidate = closure(
        text,
        *others,
        combine=FunctionRef(1),
        _helper=FunctionRef(3),
        math=Import("math"),
        triton=Import("triton"),
        torch=TORCH,
        Optional=Opaque("typing._SpecialForm"),
        Config=FunctionRef(2),
        own=Members("own", ()),
        SIZE=Constexpr(Constant(3)),
        TABLE=Constexpr(Constant((1, 2))),
        DTYPE=Constexpr(Dtype("fp16")),
    )
    assert problems_of_closure(candidate) == ()
    loaded = load(clean_closure(candidate))
    assert isinstance(loaded.kernel, JITFunction)
    assert loaded.kernel.fn.__code__.co_firstlineno == FIRST_LINE


def test_python_functions_that_only_hooks_name_are_dropped() -> None:
    wrappers = (
        Autotune((ConfigText((("BLOCK", Constant(8)),), (), FunctionRef(1)),), ("n",), ()),
        HeuristicsText((("BLOCK", FunctionRef(2)),)),
        JitOptions((("debug", True),)),
    )
    others = function(PYTHON, "python"), Function("<lambda>", "lambda", "lambda a: open(a)", FILE, 3, False, ())
    kernel = closure(body("x = n"), *others, unread=FunctionRef(1))
    cleaned = clean_closure(Closure(kernel.functions, "@on_host\n", kernel.labels, wrappers))
    assert problems_of_closure(kernel) == ()
    assert cleaned.wrappers == ()
    assert cleaned.decorators == ""
    assert [name for name, _ in cleaned.functions[0].bindings] == ["tl"]
    assert "open" not in "".join(part.text for part in cleaned.functions)
    assert len(cleaned.functions) == 3


def test_functions_of_one_line_keep_their_own_text() -> None:
    """Triton finds a text by file and line; a second one there would be run with the names of the first."""
    first, second = function("def one(x):\n    return x + 1\n"), function("def two(x):\n    return x + 2\n")
    cleaned = clean_closure(closure(body("x = one(n)"), first, second, one=FunctionRef(1)))
    loaded = load(cleaned)
    sources = [loaded.functions[index].src for index in range(3)]
    assert [source.split("(")[0] for source in sources] == ["def kernel", "def one", "def two"]
    assert {cleaned.label(part.file) for part in cleaned.functions} == {"candidate.py"}
    assert len({part.file for part in cleaned.functions}) == 3


def test_a_file_of_triton_names_no_text_of_a_candidate() -> None:
    own = Function("kernel", "jit", body("x = n"), tl.core.__file__, 1, False, (("tl", TL),))
    cleaned = clean_closure(Closure((own,)))
    assert cleaned.functions[0].file.startswith("cell:")


def test_bindings_of_names_that_python_reserves_are_refused() -> None:
    (problem,) = problems_of_closure(closure(body("x = n"), __builtins__=Items("dict", ())))
    assert problem.rule == "host_code"
    assert "__builtins__" in problem.detail


def test_a_text_of_another_name_is_refused() -> None:
    kernel = Function("kernel", "jit", "def other(x):\n    pass\n", FILE, 1, False, (("kernel", TL),))
    (problem,) = problems_of_closure(Closure((kernel,)))
    assert problem.rule == "unsupported"
    assert "def kernel" in problem.detail


def test_texts_have_limits() -> None:
    many = closure(body("x = n"), *(function(HELPER) for _ in range(MOST_FUNCTIONS)))
    assert [problem.rule for problem in problems_of_closure(many)] == ["too_large"]
    long = closure(body(*("x = 1" for _ in range(150_000))))
    assert [problem.rule for problem in problems_of_closure(long)] == ["too_large"]
    deep = closure(body(f"x = {'-' * 190}n"))
    assert [problem.rule for problem in problems_of_closure(deep)] == ["too_large"]


def test_constants_of_a_launch_are_values_of_the_language() -> None:
    candidate = closure(body("x = n"), function(HELPER), function(PYTHON, "python"))
    good = (Constant(3), Constant("tf32"), Dtype("fp32"), FunctionRef(1), Constexpr(Constant((1, 2))))
    assert [problem_of_constant("BLOCK", binding, candidate) for binding in good] == [None] * len(good)
    bad = (FunctionRef(2), Call(FunctionRef(1), ()), Opaque("file"), Import("os", "system"), Import("triton.language"))
    problems = [problem_of_constant("BLOCK", binding, candidate) for binding in bad]
    assert all(problem is not None and "BLOCK of kernel" in problem.detail for problem in problems), problems


REFUSED_WITH_CAUSE = {
    "inline_assembly": "kernels of the tests that insert assembly",
    "outside_library": "names that this Triton does not have",
}
FILES = (
    *("tests.samples", "tests.interpreter.workloads", "tests.interpreter.features", "tests.explain.traffic.kernels"),
    *("tests._triton.test_gluon", "benchmarks.traffic_kernels", "benchmarks.tune_kernels", "benchmarks.truth_kernels"),
)


def kernels_of(module: str) -> dict[str, Any]:
    kinds = (JITFunction, Autotuner, Heuristics)
    return {name: value for name, value in vars(importlib.import_module(module)).items() if isinstance(value, kinds)}


@pytest.mark.parametrize("module", FILES)
def test_honest_kernels_are_accepted(module: str) -> None:
    kernels = kernels_of(module)
    assert kernels
    refused = {}
    for name, kernel in kernels.items():
        candidate = closure_of_json(json.loads(json.dumps(closure_to_jsonable(decorated_closure_of(kernel)))))
        problems = problems_of_closure(candidate)
        if not problems:
            assert len(clean_closure(candidate).functions) == len(candidate.functions)
        elif not {problem.rule for problem in problems} <= REFUSED_WITH_CAUSE.keys():
            refused[name] = problems
    print(f"{module}: {len(kernels) - len(refused)} of {len(kernels)} kernels")
    assert set(refused) <= {"strided_by_tuple", "misspelt"}  # fields of a NamedTuple; an error of that test


def test_a_clean_closure_computes_what_the_kernel_does() -> None:
    loaded = load(clean_closure(decorated_closure_of(samples.scale_kernel)))
    written = samples.scale_kernel.src.replace("x_ptr: torch.Tensor", "x_ptr: None")
    assert loaded.kernel.src.strip() == written.strip()
    assert loaded.kernel.fn.__globals__["scaled"].src == samples.scaled.src
    assert loaded.kernel.fn.__globals__["SCALE"].value == 3


def test_annotations_of_other_libraries_are_dropped_without_moving_a_line() -> None:
    signature = "x: Annotated[\n        'a', open\n    ] = 1, é: Optional[tl.constexpr] = 2, y: tl.constexpr = 3"
    names = {"Annotated": Opaque("typing"), "Optional": Opaque("typing"), "open": Opaque("function")}
    candidate = closure(f"def kernel({signature}):\n    z = y\n", **names)
    assert problems_of_closure(candidate) == ()
    cleaned = clean_closure(candidate).functions[0]
    assert cleaned.text.splitlines() == [
        *("def kernel(x: None", "", " = 1, é: 'constexpr' = 2, y: tl.constexpr = 3):", "    z = y")
    ]
    assert [name for name, _ in cleaned.bindings] == ["tl"]
    assert load(clean_closure(candidate)).kernel.constexprs == [1, 2]


def test_every_public_attribute_of_tritons_values_is_judged() -> None:
    classes = (tl.tensor, tl.dtype, tl.block_type, tl.pointer_type, tl.constexpr, tl.tuple, tl.tensor_descriptor)
    public = {name for cls in classes for name in dir(cls) if not name.startswith("_")}
    assert public <= VALUE_ATTRIBUTES | REFUSED_ATTRIBUTES
    assert not VALUE_ATTRIBUTES & REFUSED_ATTRIBUTES


def test_no_public_name_of_the_language_leads_to_python() -> None:
    """Every name that is accepted is a function, class or number of Triton's own modules."""
    for module in (tl, tl.core, tl.math, tl.standard, tl.random, tl.extra, tl.target_info):
        for name, value in vars(module).items():
            found = language_name(module.__name__, (name,))
            home = getattr(getattr(value, "fn", value), "__module__", None) or type(value).__module__
            if getattr(found, "kind", "module") not in {"module", "value"}:
                assert home.startswith("triton"), name
    assert triton.__version__

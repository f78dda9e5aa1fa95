"""Kernels that a cell defines or launches in unusual places are treated as one at its top.

The cells are drawn from places x ways to define x ways to launch x options. `CELLS_PER_PLACE` of each place run here.
"""

from __future__ import annotations

import random
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kernellab.errors import CheckFailed
from tests.notebook.conftest import Notebook, Ran
from tests.tables import every

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CELLS_PER_PLACE = 10
PLAIN = """
def {name}(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, 2 * tl.load(x_ptr + offsets, mask=mask), mask=mask)
"""
CONFIGS = "triton.autotune(configs=[triton.Config({'BLOCK': 64}), triton.Config({'BLOCK': 64}, num_warps=2)], key=[])"
DEFINITIONS = {
    "jit": "@triton.jit" + PLAIN,
    "jit with options": "@triton.jit(do_not_specialize=['n'])" + PLAIN,
    "jit of a function": PLAIN.format(name="plain") + "{name} = triton.jit(plain)",
    "jit by its name": "from triton import jit\n@jit" + PLAIN,
    "autotune": f"@{CONFIGS.replace('{', '{{').replace('}', '}}')}\n@triton.jit" + PLAIN,
    "heuristics": "@triton.heuristics({{'BLOCK': lambda args: 64}})\n@triton.jit" + PLAIN,
    "own decorator": "def own(function):\n    return triton.jit(function)\n@own" + PLAIN,
    "twice": "@triton.jit" + PLAIN + "@triton.jit" + PLAIN,
}
PLACES = {
    "top": "<define>\n<launch k>",
    "function": "def define():\n    <define>\n    <launch k>\ndefine()",
    "factory": "def make():\n    <define>\n    return k\nmade = make()\n<launch made>",
    "factory not kept": "def make():\n    <define>\n    return k\n<launch make()>",
    "enclosed": "def f():\n    def make():\n        <define>\n        return k\n    return make\n<launch f()()>",
    "class": "class Kernels:\n    <define>\n<launch Kernels.k>",
    "class in a class": "class Outer:\n    class Inner:\n        <define>\n<launch Outer.Inner.k>",
    "method": "class Op:\n    def __init__(self):\n        <define>\n        self.kernel = k\n<launch Op().kernel>",
    "list": "<define>\nkernels = [k]\ndel k\n<launch kernels[0]>",
    "dict": "<define>\nkernels = {'k': {'inner': k}}\ndel k\n<launch kernels['k']['inner']>",
    "with": "import contextlib\nwith contextlib.nullcontext():\n    <define>\n    <launch k>",
    "for": "for _ in range(2):\n    <define>\n    <launch k>",
    "while": "count = 0\nwhile count < 1:\n    count += 1\n    <define>\n    <launch k>",
    "if": "if True:\n    <define>\n<launch k>",
    "try": "try:\n    <define>\n    raise KeyError\nexcept KeyError:\n    <launch k>",
    "match": "match 1:\n    case 1:\n        <define>\n        <launch k>",
    "generator": "def kernels():\n    <define>\n    yield k\nfor kernel in kernels():\n    <launch kernel>",
    "coroutine": "async def make():\n    <define>\n    return k\nmade = await make()\n<launch made>",
    "copy": "import copy\n<define>\ntwin = copy.copy(k)\n<launch twin>",
    "import from": "from kernels_of_a_module import k\n<launch k>",
    "import": "import kernels_of_a_module as module\n<launch module.k>",
    "function of a module": "import kernels_of_a_module as module\nmodule.launch(x, out)",
    "factory of a module": "import kernels_of_a_module as module\n<launch module.make()>",
    "another cell": "<launch elsewhere>",
}
LAUNCHES = {
    "call": "<k>[(2,)](<arguments>)",
    "grid function": "<k>[lambda meta: (triton.cdiv(100, meta['BLOCK']),)](<arguments>)",
    "run": "<k>.run(<arguments>, grid=(2,), warmup=False)",
    "kept grid": "on_grid = <k>[(2,)]\non_grid(<arguments>)",
    "function": "def go(kernel):\n    kernel[(2,)](<arguments>)\ngo(<k>)",
    "lambda": "(lambda kernel: kernel[(2,)](<arguments>))(<k>)",
    "comprehension": "_ = [kernel[(2,)](<arguments>) for kernel in [<k>]]",
    "partial": "import functools\nfunctools.partial(<k>[(2,)], <arguments>)()",
    "object": "class Launching:\n    def __call__(self, kernel):\n        kernel[(2,)](<arguments>)\nLaunching()(<k>)",
    "thread": (
        "import threading\nkernel = <k>\nthread = threading.Thread(target=lambda: kernel[(2,)](<arguments>))\n"
        "thread.start()\nthread.join()"
    ),
    "pool": (
        "from concurrent.futures import ThreadPoolExecutor\nkernel = <k>\nwith ThreadPoolExecutor(2) as pool:\n"
        "    list(pool.map(lambda _: kernel[(2,)](<arguments>), range(2)))"
    ),
    "backward": (
        "class Backward(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, value, kernel):\n"
        "        ctx.kernel = kernel\n        return value.clone()\n    @staticmethod\n    def backward(ctx, grad):\n"
        "        ctx.kernel[(2,)](<arguments>)\n        return grad, None\n"
        "Backward.apply(torch.ones(1, requires_grad=True), <k>).sum().backward()"
    ),
}
OPTIONS = (
    "",
    "--no-run",
    '--check "2 * x"',
    '--check "k: x + x"',
    '--check "3 * x"',
    "--name other",
    "--why",
    "--target cuda:80",
    "--interpret",
)
MODULE = f"""
import triton, triton.language as tl
@triton.jit{PLAIN.format(name="k")}
def make():
    @triton.jit{textwrap.indent(PLAIN.format(name="k"), "    ")}
    return k
def launch(x, out):
    k[(2,)](x, out, 100, BLOCK=64)
"""


@pytest.fixture
def places(notebook: Notebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    (tmp_path / "kernels_of_a_module.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield notebook
    sys.modules.pop("kernels_of_a_module", None)


def _filled(template: str, mark: str, text: str) -> str:
    """Return a template with the lines of a text in place of a mark, as far indented."""
    indented = re.sub(rf"^( *){mark}", lambda m: textwrap.indent(text, m[1]).lstrip("\n"), template, flags=re.MULTILINE)
    return re.sub(mark, lambda m: text, indented)


def cell_of(place: str, definition: str, launch: str) -> str:
    gives_block = definition in {"autotune", "heuristics"} and "<define>" in PLACES[place]
    arguments = "x, out, 100" if gives_block else "x, out, 100, BLOCK=64"
    text = _filled(PLACES[place], "<define>", DEFINITIONS[definition].format(name="k").strip())
    kernel = re.search(r"<launch (.*)>", text)
    if kernel is None:
        return text
    made = LAUNCHES[launch].replace("<k>", kernel[1]).replace("<arguments>", arguments)
    if definition == "autotune":  # Triton's keeps the arguments of one launch at a time
        made = made.replace("ThreadPoolExecutor(2)", "ThreadPoolExecutor(1)")
    return _filled(text, re.escape(kernel[0]), made)


def drawn(place: str, count: int) -> Iterator[tuple[str, str, str]]:
    """Yield ways to define, ways to launch and options, each of them before one comes again."""
    chance = random.Random(place)
    ways = [chance.sample(sorted(each), len(each)) for each in (DEFINITIONS, LAUNCHES, OPTIONS)]
    for i in range(count):
        yield ways[0][i % len(ways[0])], ways[1][i % len(ways[1])], ways[2][i % len(ways[2])]


def problem_of(notebook: Notebook, ran: Ran, options: str) -> str:
    """Return what is wrong with what a cell did, or ""."""
    is_wrong = "3 * x" in options
    if is_wrong != isinstance(ran.error, CheckFailed) or (ran.error is not None and not is_wrong):
        return f"raised {ran.error!r}"
    cards = [shown["text/plain"] for shown in ran.shown]
    if not any(re.match(r"(k|plain|other)@\d+", card) for card in cards):
        return f"showed {cards}"
    is_launched = torch.equal(notebook.names["out"].cpu(), 2 * torch.arange(100.0))
    if is_launched == ("--no-run" in options):
        return "was not launched" if not is_launched else "was launched"
    if "check" in options and not is_wrong and "out_ptr matches" not in cards[-1]:
        return "was not checked"
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("place", every(4, PLACES))
def test_a_kernel_in_an_unusual_place_is_treated_as_one_at_the_top(places: Notebook, place: str) -> None:
    found = []
    places.run("import triton, triton.language as tl\n" + DEFINITIONS["jit"].format(name="k") + "elsewhere = k")
    for definition, launch, drawn_options in drawn(place, CELLS_PER_PLACE):
        is_plain = definition == "jit of a function" and "<define>" in PLACES[place]
        options = drawn_options.replace("k:", "plain:") if is_plain else drawn_options
        places.names.update(x=torch.arange(100.0, device=DEVICE), out=torch.zeros(100, device=DEVICE))
        ran = places.triton(cell_of(place, definition, launch), options)
        if problem := problem_of(places, ran, options):
            found.append(f"{definition}, {launch}, {options}: {problem}")
    print(f"{place}: {CELLS_PER_PLACE} cells, {len(found)} wrong")
    assert not found, "\n".join(found)

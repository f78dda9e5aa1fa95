"""Random wrong calls of the public verbs and magics: a valid call, one or two parts of which are replaced by junk."""

from __future__ import annotations

import datetime
import math
import random
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import triton
import triton.language as tl
from IPython.core.error import UsageError as ShellError
from IPython.utils.capture import capture_output

import kernellab
from kernellab.errors import KernellabError, value_text
from kernellab.tune import Space
from tests import samples
from tests.tune.dispatch.test_exporting import of_rows

N = 64


class Opaque:
    """An object of no use to anybody."""


def hollow() -> torch.Tensor:
    """Return a tensor whose storage was freed."""
    x = torch.ones(64)
    x.untyped_storage().resize_(0)
    return x


def _many(count: int) -> str:
    return "x" * count


JUNK: tuple[Callable[[], Any], ...] = (
    lambda: None,
    lambda: 0,
    lambda: -1,
    lambda: 5,
    lambda: 2**70,
    lambda: 1.5,
    lambda: math.nan,
    lambda: math.inf,
    lambda: True,
    lambda: "",
    lambda: "x",
    lambda: "a@b",
    lambda: "../../x",
    lambda: "add_kernel@99999999999999999999999",
    lambda: "\0",
    lambda: b"x",
    list,
    lambda: [1, "a", None],
    dict,
    lambda: {"a": 1},
    lambda: {1: 2},
    lambda: {"n": 5},
    lambda: {"n": [torch.ones(2)]},
    lambda: (),
    lambda: (1, 2, 3, 4),
    lambda: ("x",),
    Opaque,
    lambda: lambda: 0,
    lambda: lambda x: x,
    lambda: torch.ones(4),
    lambda: torch.ones(2, dtype=torch.complex64),
    lambda: torch.eye(8).to_sparse(),
    lambda: torch.eye(8).to_sparse_csr(),
    lambda: torch.eye(8).to_mkldnn(),
    lambda: torch.empty(64, device="meta"),
    lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
    lambda: torch.quantize_per_tensor(torch.ones(8), 0.1, 0, torch.qint8),
    hollow,
    lambda: torch.ones(0),
    lambda: torch.ones(3, 0, 5)[:, :, 2:],
    lambda: torch.ones(1).expand(64),
    lambda: torch.tensor(3),
    lambda: torch.ones(64, dtype=torch.float64, requires_grad=True),
    lambda: torch.ones(64, dtype=torch.uint16),
    lambda: np.ones(64),
    lambda: np.float32(1.5),
    lambda: np.int64(3),
    lambda: (torch.ones(4), (torch.ones(4), None)),
    lambda: [torch.ones(4)],
    lambda: Ellipsis,
    lambda: int,
    lambda: slice(3),
    lambda: {1, 2},
    lambda: 1j,
    lambda: ValueError("x"),
    lambda: pd.DataFrame({"a": [1]}),
    lambda: Path("/proc/none/such"),
    lambda: triton.Config({"BLOCK": 32}),
    lambda: [triton.Config({"NOPE": 32})],
    lambda: samples.add_kernel,
    lambda: samples.add_kernel.fn,
    lambda: lambda **named: 1 / 0,
    lambda: _many(10_000),
    lambda: range(3),
    lambda: iter([1, 2]),
    lambda: float("-inf"),
    lambda: -0.0,
    lambda: 2**63,
    lambda: tl.float32,
    lambda: tl.constexpr(3),
    lambda: torch.float16,
    lambda: Space(BLOCK=["a"], where="BLOCK > 1"),
    lambda: Space(BLOCK=[32]),
    lambda: datetime.datetime(2026, 1, 1),
    lambda: sys,
)
NAMES = (
    *("target", "timeout_s", "check", "grid", "kernel", "self", "warmup", "configs", "search", "budget_s", "fresh"),
    *("interpret", "uninitialised", "devices", "executor", "over", "inputs", "versus", "where", "flops", "bytes"),
    *("rounds", "num_warps", "num_stages", "num_ctas", "maxnreg", "BLOCK", "n", "x_ptr", "nonsense", "kind", "to"),
)


@dataclass(frozen=True, slots=True)
class Call:
    """A verb by name with arguments that it takes."""

    name: str
    verb: Callable[..., Any]
    args: tuple[Any, ...]
    named: Mapping[str, Any]

    def __str__(self) -> str:
        shown = [value_text(a)[:40] for a in self.args] + [f"{k}={value_text(v):.40}" for k, v in self.named.items()]
        return f"{self.name}({', '.join(shown)})"


def valid_calls(lab: kernellab.Lab, folder: Path) -> list[Call]:
    """Return one call of every public verb that works."""
    x, y, out = torch.rand(N), torch.rand(N), torch.zeros(N)
    launch = (samples.add_kernel, (1,), x, y, out, N)
    of = (samples.add_kernel, x, y, out, N)
    block = {"BLOCK": 64}
    configs = [triton.Config({"BLOCK": 64})]
    own = f"{folder}/add.py"
    frame = lab.frame("kernels")
    bound = lab.bind(samples.add_kernel)
    lab.run(*launch, **block)
    tuned = lab.bind(triton.autotune(configs=configs, key=["n"])(samples.add_kernel))
    return [
        Call("compile", lab.compile, of, {**block, "target": "cuda:90"}),
        Call("effects", lab.effects, of, {**block, "target": "cuda:90"}),
        Call("graph", lab.graph, of, {**block, "target": "cuda:90"}),
        Call("run", lab.run, launch, {**block, "timeout_s": 20, "interpret": False, "uninitialised": ("out_ptr",)}),
        Call("bind", lab.bind, (samples.add_kernel,), {}),
        Call("launch", lambda grid, *a, **k: lab.bind(samples.add_kernel)[grid](*a, **k), launch[1:], block),
        Call("tune", lab.tune, launch, {"configs": configs, "timeout_s": 10, "search": "exhaustive", "budget_s": 5,
             "budget_configs": 2, "fresh": False, "check": None, "executor": None, "devices": None}),
        Call("bench", lab.bench, (samples.add_kernel, (1,), x, y, out), {**block, "over": {"n": [32, 64]},
             "versus": None, "where": None, "flops": None, "bytes": None, "check": False, "rounds": 3, "timeout_s": 5}),
        Call("explore", lab.explore, launch, {"BLOCK": [32, 64], "check": None, "target": None}),
        Call("compare", lab.compare, ("add_kernel", "add_kernel"), {}),
        Call("frame", lab.frame, ("kernels",), {}),
        Call("export", lab.export, ("add_kernel", own), {"kind": "module"}),
        Call("export", lab.export, (of_rows(), f"{folder}/rows.json"), {"kind": "table", "others": []}),
        Call("export_measurements", lab.export_measurements, ("add_kernel", f"{folder}/m.jsonl"), {}),
        Call("merge", lab.merge, (f"{folder}/m.jsonl",), {}),
        Call("regressions", lab.regressions, ("add_kernel",), {"since": "7d", "margin": 0.03}),
        Call("upgrade", lab.upgrade, (), {"from_version": None, "python": None, "times": False}),
        Call("load", lab.load, ("add_kernel", {}), {"name": "again"}),
        Call("use_target", lab.use_target, ("cuda:90",), {}),
        Call("compiling_for", _entered(lab.compiling_for), ("cuda:90",), {}),
        Call("recording", _entered(lab.launches.recording), (), {"timeout_s": 5, "run": True, "isolate": True}),
        Call("ceilings", lab.ceilings, (), {"fresh": False}),
        Call("start", lab.start, (), {"wait": False}),
        Call("Lab", _closed_lab, (), {"target": "cuda:90", "store": ":memory:"}),
        Call("layouts", lab.layouts, of, {**block, "target": "cuda:90"}),
        Call("traffic", lab.traffic, launch, {**block, "target": "cuda:90"}),
        Call("explain", lab.explain, launch, {**block, "target": "cuda:90", "samples": False, "timeout_s": 5}),
        Call("explain", lab.explain, ("add_kernel",), {"target": "cuda:90"}),
        Call("profile", lab.profile, launch, {**block, "counters": False, "timeout_s": 5}),
        Call("tune_over", lab.tune_over, launch, {"over": {"n": [32, 64]}, "configs": configs, "max_configs": 2,
             "inputs": None, "executor": None, "timeout_s": 10, "fresh": False, "check": None, "outputs": None}),
        Call("run", lab.run, launch, {**block, "check": lambda x_ptr, y_ptr: x_ptr + y_ptr}),
        Call("compare", lab.compare, ("add_kernel", lambda x_ptr, y_ptr: x_ptr + y_ptr), {}),
        Call("bench", lab.bench, ("add_kernel",), {"over": {"n": [32, 64]}}),
        Call("checking", _entered(lab.checking), (), {"nan": True, "bounds": False, "kernels": ["add_kernel"]}),
        Call("marking", _entered(lab.marking), (), {}),
        Call("capture", lab.capture, (lambda: 0,), {"dynamic": False, "max_programs": 2}),
        Call("targets", lab.targets, (), {}),
        Call("tidy", lab.tidy, (), {}),
        Call("Space", lambda *a, **k: list(Space(*a, **k)), (), {"BLOCK": [32, 64], "where": "BLOCK > 1"}),
        Call("kernel.run", bound.run, launch[2:], {**block, "grid": (1,), "warmup": False}),
        Call("kernel.warmup", bound.warmup, launch[2:], {**block, "grid": (1,)}),
        Call("tuned launch", lambda grid, *a, **k: tuned[grid](*a, **k), launch[1:], {"num_warps": 4}),
        Call("tuned.run", tuned.run, launch[2:], {"grid": (1,), "warmup": False}),
        Call("kernels.constants", lab.kernels.constants, (lab.kernels.add_constants({"n": 3}),), {}),
        Call("kernels.add_constants", lab.kernels.add_constants, ({"n": 3},), {}),
        Call("kernels.current_version", lab.kernels.current_version, (bound,), {}),
        Call("kernels.version_of", lab.kernels.version_of, (bound,), {}),
        Call("kernels.known_version", lab.kernels.known_version, (bound,), {}),
        Call("kernels.label_of", lab.kernels.label_of, (bound,), {}),
        Call("kernels.owner_of", lab.kernels.owner_of, (bound,), {}),
        Call("kernels.is_new", lab.kernels.is_new, (bound,), {}),
        Call("kernels.version_of_launch", lab.kernels.version_of_launch, (bound, None), {}),
        Call("kernels.of_session", lab.kernels.of_session, (lab.kernels.version("add_kernel"),), {}),
        Call("kernels.mark_launched", lab.kernels.mark_launched, (lab.kernels.version("add_kernel"),), {}),
        Call("kernels.__getitem__", lab.kernels.__getitem__, ("add_kernel",), {}),
        Call("kernels.version", lab.kernels.version, ("add_kernel",), {}),
        Call("kernels.add", lab.kernels.add, (samples.add_kernel,), {"name": "add_kernel"}),
        Call("kernels.remove", lab.kernels.remove, ("none",), {}),
        Call("kernels.__contains__", lab.kernels.__contains__, ("add_kernel",), {}),
        Call("read_frame", kernellab.read_frame, (f"{folder}/k.csv",), {}),
        Call("save_frame", kernellab.save_frame, (frame, f"{folder}/k.csv"), {}),
        Call("explorer", kernellab.explorer, (lab.compile(*of, **block),), {}),
        Call("graph_view", kernellab.graph_view, (lab.compile(*of, **block),), {}),
    ]  # fmt: skip


PIECES = (
    *("--name", "--target", "--show", "--no-run", "--args", "--check", "--timeout", "--explore", "--tune", "--capture"),
    *("--configs", "--limit", "--search", "--budget", "--devices", "--fresh", "--over", "--versus", "--inputs"),
    *("--where", "--flops", "--bytes", "--rounds", "--to", "--as", "--remove", "--note", "-o", "-q", "--nonsense"),
    *("add_kernel", "add_kernel@1", "add_kernel@99999999999999999999", "@", "1", "-1", "0", "nan", "inf", "1e400"),
    *("../../x", "''", '"', "'a b'", "\\0", "x", "cuda:90", "cuda:999", "hip:", "None", "[]", "{}", "lambda: 0", "1/0"),
    *("add_kernel[(1,)](x, x, x, 64, BLOCK=64)", "add_kernel[(1,)](x)", "add_kernel[None](x, x, x, 64)", "x[0](1)"),
    *("--check", "add_kernel: x_ptr", "nobody: x", "--samples", "--outputs", "out_ptr", "--max-configs", "--verbose"),
    *("add_kernel[(1,)](sparse, x, x, 64, BLOCK=64)", "add_kernel[(1,)](hollow, x, x, 64)", "add_kernel[1](meta, x)"),
    *("add_kernel[add_kernel](x, x, x, 64)", "add_kernel[(1,)][(1,)](x)", "Space(BLOCK=['a'], where='BLOCK > 1')", "x"),
    *("n=[1,2]", "'n=[32, 64]'", "'torch=lambda x_ptr: x_ptr'", "module", "torch-op", "bundle", "report", "ttir"),
)
MAGICS = (
    *("%triton_tune", "%triton_bench", "%triton_ls", "%triton_load", "%triton_rm", "%triton_tag", "%triton_export"),
    *("%triton_diff", "%triton_merge", "%triton_target", "%triton_why", "%%triton", "%%triton"),
)
BODIES = (
    "",
    "y = 1",
    "add_kernel[(1,)](x, x, x, 64, BLOCK=64)",
    "@triton.jit\ndef broken(x):\n    tl.nope(x)",
    "add_kernel[(1,)](sparse, x, x, 64, BLOCK=64)",
    "add_kernel[(1,)](x, hollow, x, 64, BLOCK=64)",
    "add_kernel[(1,)](x, x, meta, 64, BLOCK=x)",
    "add_kernel.run(x, x, x, 64, BLOCK=64)",
    "add_kernel[add_kernel](x, x, x, 64, BLOCK=64)",
    "@triton.jit\ndef none(x):\n    tl.store(None, 1.0)\nnone[(1,)](x)",
    "@triton.autotune(configs=[], key=[])\n@triton.jit\ndef empty(x):\n    tl.store(x, 1.0)\nempty[(1,)](x)",
    "%triton_ls",
)


WORDS = (
    *("compile", "effects", "run", "traffic", "tune", "bench", "explain", "ls", "export", "merge", "regressions"),
    "upgrade",
    *("--json", "--verbose", "--target", "--size", "--meta", "--space", "--over", "--versus", "--check", "--where"),
    *("--timeout", "--rounds", "--search", "--budget", "--fresh", "--store", "--stage", "--as", "-o", "--interpret"),
    *("--since", "--margin", "add.py", "add.py::add_kernel", "add.py::nobody", "add.py::arguments", "nothing.py", "."),
    *("add_kernel", "add_kernel@1", "add_kernel@9999999999999999999999", "@", "", "\0", "x" * 5000, "n=1", "n=-1"),
    *("n=", "n=None", "n=nan", "n=1e400", "n=10**10", "=", "BLOCK=64", "BLOCK=0", "BLOCK=48", "BLOCK=64,a"),
    *("num_warps=3", "num_warps=x", "FOO=1", "x_ptr + y_ptr", "x_ptr", "1/0", "lambda: 0", "None", "cuda:90", "cuda:1"),
    *("hip:gfx942", "gpu", "0", "-1", "1", "nan", "inf", "1e-9", "ttir", "amdgcn", "module", "bundle", "report"),
    *(
        ":memory:",
        "wrong_sum",
        "reference",
        "random",
        "optuna",
        "sideways",
        "2026-11-22",
        "7d",
        "yesterday",
        "store",
        "out.py",
    ),
)
_COMMANDS = WORDS[:11]


def command_call(main: Callable[[list[str]], tuple[int, str]], chance: random.Random) -> Call:
    """Return a call of the command line: a command, mostly with its file, and random words."""
    words = [chance.choice(_COMMANDS), *(["add.py"] if chance.random() < 0.7 else [])]
    words += [chance.choice(WORDS) for _ in range(chance.randrange(5))]
    return Call(f"kernellab {value_text(words)}", lambda: _ended(*main(words)), (), {})


def _ended(status: int, printed: str) -> None:
    """Raise what a command says went wrong: an error of the lab's, or one of Python's where it was none."""
    if "Traceback" in printed or "kernellab itself failed" in printed or status not in {0, 1, 2}:
        raise RuntimeError(printed)
    if status:
        raise KernellabError(printed)


def outcomes_of_commands(main: Callable[[list[str]], tuple[int, str]], count: int, seed: int) -> Iterator[Outcome]:
    """Yield what ``count`` calls of the command line come to; ``main`` returns status and output of one."""
    chance = random.Random(seed)
    for _ in range(count):
        yield outcome(command_call(main, chance))


def magic_call(shell: Any, chance: random.Random) -> Call:
    """Return a magic with random words after it."""
    magic = chance.choice(MAGICS)
    line = " ".join(chance.choice(PIECES) for _ in range(chance.randrange(5)))
    body = chance.choice(BODIES)
    if magic == "%%triton":
        return Call(f"{magic} {line}", lambda: _raised(shell, f"{magic} {line}\n{body}"), (), {})
    return Call(f"{magic} {line}", lambda: _raised(shell, f"{magic} {line}"), (), {})


def _raised(shell: Any, cell: str) -> None:
    """Run a cell, and raise what it raised."""
    with capture_output():
        result = shell.run_cell(cell, store_history=True)
    error = result.error_in_exec or result.error_before_exec
    if error is not None and not isinstance(error, ShellError):
        raise error


def _entered(make: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **named: Any) -> None:
        with make(*args, **named):
            pass

    return call


def _closed_lab(*args: Any, **named: Any) -> None:
    kernellab.Lab(*args, **named).close()


def wrong(call: Call, chance: random.Random) -> Call:
    """Return a call with something wrong: a value replaced, left out or added, by position or by name."""
    args, named = list(call.args), dict(call.named)
    if call.name.endswith("__"):  # of `kernels[key]`, Python itself sees to there being one key
        return Call(call.name, call.verb, (chance.choice(JUNK)(),), {})
    for _ in range(chance.choice((1, 1, 1, 2))):
        what = chance.randrange(10)
        if what < 5 and args:
            args[chance.randrange(len(args))] = chance.choice(JUNK)()
        elif what < 8:
            known = list(named) or list(NAMES)
            named[chance.choice(known)] = chance.choice(JUNK)()
        elif what == 8 and args and chance.random() < 0.5:
            args.pop(chance.randrange(len(args)))
        elif what == 8:
            args.append(chance.choice(JUNK)())
        else:
            named[chance.choice(NAMES)] = chance.choice(JUNK)()
    return Call(call.name, call.verb, tuple(args), named)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a wrong call came to: ``fine``, ``told`` (an error of kernellab's), or ``raw``, with the traceback."""

    call: str
    kind: str
    error: str = ""
    trace: str = ""


def outcomes(lab: kernellab.Lab, folder: Path, count: int, seed: int) -> Iterator[Outcome]:
    """Yield what ``count`` wrong calls come to."""
    chance = random.Random(seed)
    calls = valid_calls(lab, folder)
    for _ in range(count):
        yield outcome(wrong(chance.choice(calls), chance))


def outcomes_of_magics(shell: Any, count: int, seed: int) -> Iterator[Outcome]:
    """Yield what ``count`` magics with random words come to."""
    chance = random.Random(seed)
    for _ in range(count):
        yield outcome(magic_call(shell, chance))


def _is_pythons(exc: Exception) -> bool:
    """Tell whether Python itself refused a call, which never began: too many arguments, or one twice."""
    trace = exc.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return isinstance(exc, TypeError) and trace is not None and trace.tb_frame.f_code.co_filename == __file__


def outcome(call: Call) -> Outcome:
    """Make a call; errors of kernellab's count as told, and so does that of a function of the user's own."""
    shown = str(call)
    try:
        call.verb(*call.args, **call.named)
    except KernellabError as exc:
        return Outcome(shown, "told", f"{type(exc).__name__}: {exc}")
    except Exception as exc:  # noqa: BLE001 - that is what is looked for
        if "<lambda>() takes" in str(exc) or _is_pythons(exc):
            return Outcome(shown, "told", str(exc))
        return Outcome(shown, "raw", f"{type(exc).__name__}: {exc}", "".join(traceback.format_exception(exc)))
    return Outcome(shown, "fine")

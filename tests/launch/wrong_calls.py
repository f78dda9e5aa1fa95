"""Random wrong calls of the public verbs and magics: a valid call, one or two parts of which are replaced by junk."""

from __future__ import annotations

import math
import random
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import triton
from IPython.core.error import UsageError as ShellError
from IPython.utils.capture import capture_output

import kernellab
from kernellab.errors import KernellabError
from tests import samples
from tests.tune.dispatch.test_exporting import of_rows

N = 64


class Opaque:
    """An object of no use to anybody."""


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
        shown = [repr(a)[:40] for a in self.args] + [f"{k}={v!r:.40}" for k, v in self.named.items()]
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
        Call("load", lab.load, ("add_kernel", {}), {"name": "again"}),
        Call("use_target", lab.use_target, ("cuda:90",), {}),
        Call("compiling_for", _entered(lab.compiling_for), ("cuda:90",), {}),
        Call("recording", _entered(lab.launches.recording), (), {"timeout_s": 5, "run": True, "isolate": True}),
        Call("ceilings", lab.ceilings, (), {"fresh": False}),
        Call("start", lab.start, (), {"wait": False}),
        Call("Lab", _closed_lab, (), {"target": "cuda:90", "store": ":memory:"}),
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
    *("n=[1,2]", "'n=[32, 64]'", "'torch=lambda x_ptr: x_ptr'", "module", "torch-op", "bundle", "report", "ttir"),
)
MAGICS = (
    *("%triton_tune", "%triton_bench", "%triton_ls", "%triton_load", "%triton_rm", "%triton_tag", "%triton_export"),
    *("%triton_diff", "%triton_merge", "%triton_target", "%%triton"),
)
BODIES = (
    "",
    "y = 1",
    "add_kernel[(1,)](x, x, x, 64, BLOCK=64)",
    "@triton.jit\ndef broken(x):\n    tl.nope(x)",
    "%triton_ls",
)


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


def outcome(call: Call) -> Outcome:
    """Make a call; errors of kernellab's count as told, and so does that of a function of the user's own."""
    shown = str(call)
    try:
        call.verb(*call.args, **call.named)
    except KernellabError as exc:
        return Outcome(shown, "told", f"{type(exc).__name__}: {exc}")
    except Exception as exc:  # noqa: BLE001 - that is what is looked for
        if "<lambda>() takes" in str(exc):
            return Outcome(shown, "told", str(exc))
        return Outcome(shown, "raw", f"{type(exc).__name__}: {exc}", "".join(traceback.format_exception(exc)))
    return Outcome(shown, "fine")

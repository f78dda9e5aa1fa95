"""A harvest of programs of public packages on a GPU: what it loses, what it counts, and the shares of the time.

Usage: python -m benchmarks.harvest [FILE]. Needs a GPU; liger-kernel, fla-core (with einops) and flag_gems (with
sqlalchemy) are taken if they are installed, and named if not. Each program is harvested for some steps, in which
Triton's own hook counts as well; the shares of its kernels are then compared with those of torch.profiler over other
steps. The loss is that of whole steps at full speed, with and without a harvest in turns, and of a loop that launches
1,000 small kernels a second. A part of one program is replayed from a CUDA graph; another goes through torch.compile.
"""

from __future__ import annotations

import gc
import importlib
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl
from triton import knobs
from triton.runtime.autotuner import Autotuner

import kernellab
from kernellab import Harvest, Lab
from kernellab.target import device_name

Step = Callable[[], Any]
ASKED_LOSS, ASKED_SHARE = 0.02, 0.03
_STEPS, _SECONDS_SEEN = 20, 4.0
_ROUNDS, _ROUND_S = 41, 0.1
_CONFIGS = 2  # of each autotuner of a package: compiling all of them takes minutes


@triton.jit
def small_kernel(x, y, n, scale, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + offsets, scale * tl.load(x + offsets, mask=offsets < n), mask=offsets < n)


def liger_step() -> Step:
    """A training step of a small Llama-like block by the functions of liger-kernel."""
    ops = importlib.import_module("liger_kernel.ops.rms_norm"), importlib.import_module("liger_kernel.ops.swiglu")
    rope = importlib.import_module("liger_kernel.ops.rope").LigerRopeFunction
    loss_function = importlib.import_module("liger_kernel.ops.cross_entropy").LigerCrossEntropyFunction
    norm, swiglu = ops[0].LigerRMSNormFunction, ops[1].LigerSiLUMulFunction
    tokens, width, heads, hidden, words = 4096, 2048, 16, 5632, 16384

    def weight(*shape: int) -> torch.Tensor:
        return (torch.randn(*shape, device="cuda", dtype=torch.bfloat16) * 0.02).requires_grad_()

    x, scale = weight(1, tokens, width), weight(width)
    query, head, down = weight(width, width), weight(width, words), weight(hidden, width)
    gate, up = weight(width, hidden), weight(width, hidden)
    angles = torch.rand(1, tokens, width // heads, device="cuda", dtype=torch.bfloat16)
    cos, sin = angles.cos(), angles.sin()
    target = torch.randint(words, (tokens,), device="cuda")

    def step() -> None:
        normed = norm.apply(x, scale, 1e-6, 0.0, "llama", False)
        q = (normed @ query).view(1, tokens, heads, -1).transpose(1, 2)
        rotated, _ = rope.apply(q, q.clone(), cos, sin)
        attended = normed + rotated.transpose(1, 2).reshape(1, tokens, width)
        out = swiglu.apply(attended @ gate, attended @ up) @ down
        logits = (out @ head).view(tokens, words)
        loss = loss_function.apply(logits, target, None, -100, 0.0, 0.0, "mean", None, False)[0]
        loss.backward()

    return step


def fla_step() -> Step:
    """Gated linear attention and a delta rule of flash-linear-attention, forward and backward."""
    gla = importlib.import_module("fla.ops.gla").chunk_gla
    delta = importlib.import_module("fla.ops.delta_rule").chunk_delta_rule
    shape = 2, 2048, 8, 64
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    gates = torch.nn.functional.logsigmoid(torch.randn(shape, device="cuda", dtype=torch.bfloat16)).requires_grad_()
    beta = torch.rand(shape[:3], device="cuda", dtype=torch.bfloat16).requires_grad_()

    def step() -> None:
        first = gla(q, k, v, gates)[0]
        second = delta(torch.nn.functional.normalize(q, dim=-1), torch.nn.functional.normalize(k, dim=-1), v, beta)[0]
        (first.sum() + second.sum()).backward()

    return step


def gems_step() -> Step:
    """A feed-forward block of torch whose operators FlagGems takes over."""
    gems = importlib.import_module("flag_gems")
    layers = torch.nn.Sequential(
        torch.nn.LayerNorm(2048), torch.nn.Linear(2048, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 2048)
    )
    model, x = layers.cuda().half(), torch.randn(2048, 2048, device="cuda", dtype=torch.float16)

    def step() -> None:
        with torch.no_grad(), gems.use_gems(include=["layer_norm", "gelu", "softmax", "add", "mul", "addmm", "mm"]):
            y = model(x)
            torch.softmax(x * 2 + y, dim=-1)

    return step


def compiled_step() -> Step:
    """A function with a kernel of ours in it, by torch.compile."""

    def layer(x: torch.Tensor) -> torch.Tensor:
        y, out = torch.nn.functional.gelu(x) * 2, torch.empty_like(x)
        small_kernel[(triton.cdiv(x.numel(), 1024),)](y, out, x.numel(), 2.0, BLOCK=1024)
        return torch.softmax(out, dim=-1)

    compiled, x = torch.compile(layer), torch.randn(2048, 4096, device="cuda")
    return lambda: compiled(x)


PROGRAMS = {
    "liger-kernel, a training step": liger_step,
    "flash-linear-attention, two layers": fla_step,
    "FlagGems, a feed-forward block": gems_step,
}


@contextmanager
def hook_counts() -> Iterator[Counter[str]]:
    """The launches by kernel that Triton's own hook counts inside a with statement."""
    counts: Counter[str] = Counter()

    def count(metadata: Any) -> None:
        counts[metadata.get()["name"]] += 1

    chain: Any = knobs.runtime.launch_enter_hook
    chain.add(count)
    try:
        yield counts
    finally:
        chain.remove(count)


def profiler_ms(step: Step, steps: int) -> dict[str, tuple[int, float]]:
    """The launches of each kernel on the device and their milliseconds, by torch.profiler."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
    totals: dict[str, tuple[int, float]] = {}
    for event in profile.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            count, ms = totals.get(event.name, (0, 0.0))
            totals[event.name] = count + 1, ms + event.time_range.elapsed_us() / 1e3
    return totals


def harvested(lab: Lab, step: Step, *, inductor: bool = False) -> Harvest:
    """A harvest of some seconds of a program."""
    end = time.perf_counter() + _SECONDS_SEEN
    with lab.harvest(inductor=inductor) as seen:
        while time.perf_counter() < end:
            step()
        torch.cuda.synchronize()
    return seen


def compared_shares(seen: Harvest, profiled: dict[str, tuple[int, float]]) -> list[str]:
    """Lines with the share of each kernel by the harvest and by the profiler, of the kernels that the harvest has."""
    from kernellab.harvest.result import timed_cases

    ours: Counter[str] = Counter()
    unknown = 0
    record = seen.record
    if not all(case.samples for case in record.cases):
        record = seen.predict()
    for case, case_time in timed_cases(record):
        ours[case.kernel] += case_time.total_ms or 0.0
        unknown += case_time.total_ms is None
    theirs = {name: profiled[name][1] for name in ours if name in profiled}
    absent = sorted(set(ours) - set(theirs))
    whole, whole_theirs = sum(ours[name] for name in theirs), sum(theirs.values())
    lines, worst = [], 0.0
    for name, ms in sorted(theirs.items(), key=lambda item: -item[1]):
        mine, other = ours[name] / whole, ms / whole_theirs
        worst = max(worst, abs(mine - other))
        lines.append(f"    {name[:52]:52} {mine:7.1%} {other:9.1%} {mine - other:+8.1%}")
    head = f"    {'share of the Triton kernels':52} {'harvest':>7} {'profiler':>9} {'differs':>8}"
    verdict = f"    worst difference {worst:.1%} (asked: {ASKED_SHARE:.0%}); cases without a time: {unknown}"
    missing = [f"    not in the profile: {', '.join(absent)}"] if absent else []
    return [head, *lines[:12], verdict, *missing]


def loss(lab: Lab, work: Step) -> str:
    """The time that a harvest adds to some work, in turns; the work repeats for a tenth of a second."""
    work()  # compiles
    calls = 1
    while (seconds := _timed(work, calls)) < _ROUND_S / 2:
        calls *= 2
    calls = max(1, round(calls * _ROUND_S / seconds))
    ratios = []
    with lab.harvest() as _:  # the first samples of a case and its description are no part of the steady loss
        _timed(work, calls)
    for number in range(_ROUNDS):
        times: dict[bool, float] = {}
        for is_harvested in (False, True) if number % 2 else (True, False):
            if is_harvested:
                with lab.harvest():
                    work()
                    times[is_harvested] = _timed(work, calls)
            else:
                times[is_harvested] = _timed(work, calls)
        ratios.append(times[True] / times[False] - 1)
    low, _, high = statistics.quantiles(ratios, n=4)
    return f"{statistics.median(ratios):+.2%} (quartiles {low:+.2%} to {high:+.2%}, {calls} calls in {_ROUND_S} s)"


def _timed(work: Step, calls: int) -> float:
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(calls):
        work()
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def thousand_a_second() -> tuple[Step, Step]:
    """Work of a millisecond with one launch: of the host, and of the GPU."""
    x, y = torch.rand(1024, device="cuda"), torch.empty(1024, device="cuda")
    a = torch.rand(4096, 4096, device="cuda", dtype=torch.bfloat16)
    spins = 1000
    while True:
        begin = time.perf_counter()
        _spin(spins)
        if time.perf_counter() - begin > 0.95e-3:
            break
        spins = round(spins * 1.3)
    chunks = max(1, round(0.95e-3 / (_timed(lambda: a @ a, 50) / 50)))

    def launch() -> None:
        small_kernel[(1,)](x, y, 1024, 2.0, BLOCK=1024)

    def host() -> None:
        _spin(spins)
        launch()

    def device() -> None:
        for _ in range(chunks):
            a @ a
        launch()

    return host, device


def _spin(count: int) -> int:
    total = 0
    for number in range(count):
        total += number
    return total


def cut_autotuners(package: str) -> int:
    """Leave a few configs to each autotuner of a package; return how many there were to cut."""
    tuners = [value for value in gc.get_objects() if isinstance(value, Autotuner)]
    cut = [t for t in tuners if t.base_fn.__module__.partition(".")[0] == package and len(t.configs) > _CONFIGS]
    for tuner in cut:
        tuner.configs = tuner.configs[:_CONFIGS]
    return len(cut)


def program_lines(lab: Lab, name: str, make: Callable[[], Step], *, inductor: bool = False) -> Iterator[str]:
    """The figures of one program."""
    begin = time.perf_counter()
    try:
        step = make()
        cut = cut_autotuners("fla")
        for _ in range(5):
            step()
        torch.cuda.synchronize()
    except ImportError as exc:
        yield f"{name}: not installed ({exc})"
        return
    except Exception as exc:  # noqa: BLE001 - a package that does not fit this torch costs the others nothing
        yield f"{name}: failed: {type(exc).__name__}: {str(exc)[:300]}"
        return
    reduced = f"; {cut} autotuners cut to {_CONFIGS} configs" if cut and "flash" in name else ""
    yield f"{name} (ready after {time.perf_counter() - begin:.0f} s{reduced})"
    with hook_counts() as hooked, lab.harvest(inductor=inductor) as seen:
        for _ in range(_STEPS):
            step()
    record = seen.record
    ours = sum(case.launches for case in record.cases) + sum(record.rest.values())
    hooks = f"{sum(hooked.values()):,} launches by Triton's hook"
    yield f"    {_STEPS} steps: {hooks}, {ours:,} harvested in {len(record.cases)} cases"
    profiled = profiler_ms(step, _STEPS)
    known = {case.kernel for case in record.cases}
    theirs = sum(count for kernel, (count, _) in profiled.items() if kernel in known)
    yield f"    {theirs:,} of these kernels in the profile of {_STEPS} steps"
    yield from compared_shares(harvested(lab, step, inductor=inductor), profiled)
    yield f"    loss at full speed: {loss(lab, step)}"


def graph_lines(lab: Lab) -> Iterator[str]:
    """The figures of a CUDA graph: launches by its replays, and their shares."""
    try:
        norm = importlib.import_module("liger_kernel.ops.rms_norm").LigerRMSNormFunction
        swiglu = importlib.import_module("liger_kernel.ops.swiglu").LigerSiLUMulFunction
    except ImportError as exc:
        yield f"CUDA graph: liger-kernel is not installed ({exc})"
        return
    x, weight = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16), torch.ones(4096, device="cuda").bfloat16()

    def work() -> None:
        y = norm.apply(x, weight, 1e-6, 0.0, "llama", False)
        swiglu.apply(y, x)
        norm.apply(y, weight, 1e-6, 0.0, "llama", False)

    work()
    with lab.harvest() as seen:
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph):
            work()
        for _ in range(500):
            graph.replay()
        torch.cuda.synchronize()
    profiled = profiler_ms(graph.replay, 100)
    counts = {case.kernel: case.replayed for case in seen.record.cases}
    yield f"CUDA graph of liger-kernel, 500 replays: {counts}"
    yield f"    in a profile of 100 replays: { {name: profiled[name][0] for name in counts if name in profiled} }"
    yield from compared_shares(seen, profiled)


def lines(lab: Lab) -> Iterator[str]:
    """All figures."""
    yield f"{device_name()}, triton {triton.__version__}, torch {torch.__version__}, Python {sys.version.split()[0]}"
    host, device = thousand_a_second()
    yield f"loss at 1,000 launches a second (asked: at most {ASKED_LOSS:.0%})"
    yield f"    a millisecond of host work per launch: {loss(lab, host)}"
    yield f"    a millisecond of GPU work per launch:  {loss(lab, device)}"
    for name, make in PROGRAMS.items():
        yield from program_lines(lab, name, make)
    yield from graph_lines(lab)
    yield from program_lines(
        lab, "torch.compile with a kernel of the user, inductor=True", compiled_step, inductor=True
    )


def main() -> None:
    """Print the figures, and write them to a file if one is named."""
    text = []
    with kernellab.Lab(store=":memory:") as lab:
        for line in lines(lab):
            print(line, flush=True)
            text.append(line)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text("\n".join(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

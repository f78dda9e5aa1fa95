"""Programs of public packages from a harvest to a tuning and back: the gain that is predicted, and the one measured.

Usage: python -m benchmarks.tune_harvested. Needs a GPU, liger-kernel, fla-core and flag_gems. Each program of
`benchmarks.harvest` is harvested; the kernels below are tuned over the cases that it launched, with the launches as
weights and what was launched as the baseline; each dispatch is exported as a table; and the program runs again with
what the table chooses. The gain is that of the launches of these kernels, by torch.profiler, in turns.
"""

from __future__ import annotations

import gc
import importlib
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import torch
import triton
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from benchmarks.harvest import PROGRAMS, Step, cut_autotuners, profiler_ms
from kernellab import Harvest, Lab
from kernellab.target import device_name
from kernellab.tune.dispatch import Dispatch, read_table

RESULT = Path(__file__).parent / "results" / "tune_harvested.txt"
_TURNS, _STEPS, _SECONDS = 5, 10, 2.0
_ROWS = 4096  # tokens of the step of liger-kernel, a program each
_HEADS = 16  # of both sequences of the layers of flash-linear-attention
_WARPS = [triton.Config({}, num_warps=warps) for warps in (4, 8, 16, 32)]


@dataclass(frozen=True, slots=True, eq=False)
class Tuned:
    """A kernel of a package, by module and name; its grid; its configs and sizes, or None for all that it has."""

    module: str
    name: str
    grid: Any
    configs: Sequence[triton.Config] | None = None
    sizes: tuple[str, ...] | None = None


def _by_blocks(meta: Mapping[str, int]) -> tuple[int, ...]:
    return (triton.cdiv(meta["K"], meta["BK"]) * triton.cdiv(meta["V"], meta["BV"]) * _HEADS,)


def _by_tiles(meta: Mapping[str, int]) -> tuple[int, ...]:
    return triton.cdiv(meta["M"], meta["BLOCK_SIZE_M"]), triton.cdiv(meta["N"], meta["BLOCK_SIZE_N"])


KERNELS = {
    "liger-kernel, a training step": [
        Tuned("liger_kernel.ops.swiglu", "_swiglu_forward_kernel", (_ROWS,), _WARPS),
        Tuned("liger_kernel.ops.swiglu", "_swiglu_backward_kernel", (_ROWS,), _WARPS),
        Tuned("liger_kernel.ops.cross_entropy", "liger_cross_entropy_kernel", (_ROWS,), _WARPS),
    ],
    "flash-linear-attention, two layers": [Tuned("fla.ops.common.chunk_h", "chunk_fwd_kernel_h", _by_blocks)],
    "FlagGems, a feed-forward block": [Tuned("flag_gems.ops.addmm", "addmm_kernel", _by_tiles, sizes=("M", "N", "K"))],
}


class ChosenLaunches:
    """Stands for a kernel in its module: launches it with the config that a table has for its sizes."""

    def __init__(self, kernel: Any, choose: Callable[..., triton.Config], names: Sequence[str]) -> None:
        self._function, self._choose, self._names = innermost(kernel), choose, names
        self._heuristics: Mapping[str, Any] = getattr(kernel, "values", None) or {}

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        def launch(*args: Any, **meta: Any) -> Any:
            values = {**dict(zip(self._function.arg_names, args, strict=False)), **meta}
            config = self._choose(**{name: values[name] for name in self._names})
            derived = {name: value(values) for name, value in self._heuristics.items()}
            return self._function[grid](*args, **{**meta, **derived, **config.all_kwargs()})

        return launch


def innermost(kernel: Any) -> Any:
    """The jit function in a kernel with decorators, those of packages included."""
    while not isinstance(kernel, JITFunction):
        kernel = kernel.fn
    return kernel


def full_configs() -> dict[str, list[triton.Config]]:
    """The configs of each autotuner of the process by the name of its kernel, before they are cut."""
    tuners = [value for value in gc.get_objects() if isinstance(value, Autotuner)]
    return {tuner.base_fn.__name__: list(tuner.configs) for tuner in tuners}


def tune(lab: Lab, seen: Harvest, tuned: Tuned, configs: Sequence[triton.Config]) -> Dispatch:
    """Tune a kernel over its harvested cases."""
    names = None if tuned.sizes is None else list(tuned.sizes)
    cases = seen.cases(tuned.name, names)
    baseline = cases.baseline
    if baseline is None:  # without an autotuner: the options that it was launched with
        case = next(case for case in seen.record.cases if case.kernel == tuned.name)
        baseline = [triton.Config({}, num_warps=case.launch.options["num_warps"])] * len(cases)
    function = innermost(getattr(importlib.import_module(tuned.module), tuned.name))
    return lab.tune_over(
        function,
        tuned.grid,
        over=list(cases),
        inputs=seen.inputs(tuned.name, names),
        configs=list(configs),
        weights=cases.weights,
        baseline=baseline,
    )


@contextmanager
def replaced(dispatches: Mapping[Tuned, Dispatch], folder: Path) -> Iterator[None]:
    """Launch kernels with what their exported tables choose."""
    with ExitStack() as patches:
        for tuned, dispatch in dispatches.items():
            path = folder / f"{tuned.name}.json"
            dispatch.export(str(path))
            (table,) = read_table(path)
            module = importlib.import_module(tuned.module)
            stand_in = ChosenLaunches(getattr(module, tuned.name), table.choose, list(dispatch.rule.names))
            patches.enter_context(mock.patch.object(module, tuned.name, stand_in))
        yield


def kernel_ms(step: Step, names: Sequence[str]) -> float:
    """The milliseconds of kernels in some steps, by torch.profiler."""
    times = profiler_ms(step, _STEPS)
    return sum(times[name][1] for name in names)


def program_lines(lab: Lab, name: str, make: Callable[[], Step]) -> tuple[list[str], bool]:
    """The figures of a program, and whether the predicted interval meets that of the measured turns."""
    step = make()
    configs = full_configs()
    cut_autotuners("fla")
    with lab.harvest() as seen:  # from the first launch on, in which an autotuner can be seen
        for _ in range(5):
            step()
        end = time.perf_counter() + _SECONDS
        while time.perf_counter() < end:
            step()
        torch.cuda.synchronize()
    begin = time.perf_counter()
    dispatches = {t: tune(lab, seen, t, t.configs or configs[t.name]) for t in KERNELS[name]}
    seconds = time.perf_counter() - begin
    speedups = [dispatch.speedup for dispatch in dispatches.values()]
    names, ratios = [tuned.name for tuned in dispatches], []
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(_TURNS + 1):
            before_ms = kernel_ms(step, names)
            with replaced(dispatches, Path(folder)):
                after_ms = kernel_ms(step, names)
            ratios += [before_ms / after_ms] if turn else []  # the first one compiles
    before, after = (sum(getattr(s, key) for s in speedups) for key in ("before_ms", "after_ms"))
    low, high = sum(s.before_ms / s.high for s in speedups), sum(s.before_ms / s.low for s in speedups)
    low, high = before / high, before / low
    real = median(ratios)
    holds = low <= max(ratios) and min(ratios) <= high  # equal configs have an interval without width
    text = [f"{name}: {len(names)} kernels tuned in {seconds:.1f} s"]
    text += [f"    {tuned.name}: {dispatch.speedup}" for tuned, dispatch in dispatches.items()]
    text += [
        f"  predicted: {before / after:.3f}x ({low:.3f} to {high:.3f})",
        f"  measured:  {real:.3f}x ({min(ratios):.3f} to {max(ratios):.3f} in {_TURNS} turns)",
        f"  {'meets' if holds else 'outside'} the predicted interval",
    ]
    return text, holds


def main() -> None:
    """Print the report and write it to the results."""
    lines = [f"{device_name()}, triton {triton.__version__}, torch {torch.__version__}"]
    held = []
    with Lab(store=":memory:") as lab:
        for name, make in PROGRAMS.items():
            text, holds = program_lines(lab, name, make)
            print("\n".join(text), flush=True)
            lines += text
            held.append(holds)
    lines.append(f"held in {sum(held)} of {len(held)}")
    print(lines[-1])
    RESULT.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

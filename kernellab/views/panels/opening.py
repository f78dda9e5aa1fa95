"""From a kernel, a grid and arguments to a panel over them."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernellab._triton.closure import closure_of
from kernellab._triton.kernel import (
    Kernel,
    autotune_settings,
    constexpr_value,
    heuristic_names,
    jit_function,
    parameter_names,
    supplied_names,
)
from kernellab.checking.reference import Reference, check_of
from kernellab.errors import UsageError
from kernellab.explore.controls import Subject, plan_controls
from kernellab.explore.evaluator import BYTES_AT_MOST, CpuRuns, Evaluator, OnGpu, Verdicts
from kernellab.explore.points import Keeper, PointHistory, Requests
from kernellab.launch.arguments import memory_of
from kernellab.launch.calls import UserCall, checked_grid
from kernellab.launch.memory import copy_arguments, size_bytes, tensors_for_pointers
from kernellab.launch.recording import LaunchRecord
from kernellab.launch.runtime import Runtime
from kernellab.registry import Session
from kernellab.source import INTEGER_OPTIONS
from kernellab.timing.gpu_bench import bench_of
from kernellab.views.graph.dataflow import SourceText
from kernellab.views.panels import Panel
from kernellab.workers.forks_and_interrupts import Interrupted

_TIMEOUT_S = 10.0  # of a point on the GPU
_DTYPES = ("float16", "bfloat16", "float32")


def open_panel(session: Session, call: UserCall, check: Any) -> Panel:
    """Open the panel of a call, with the ranges of its sliders in ``meta``, at its first point.

    Raises:
        UsageError: a range is none, or a name is unknown.
    """
    named, interprets = zip(parameter_names(call.kernel), call.args, strict=False), session.runtime.interprets()
    given = {name: tensors_for_pointers(name, value) if interprets else value for name, value in named}
    verdicts = Verdicts(None if check is None else check_of(check))
    return _panel(session, _Launch(call.kernel, call.grid, given, call.meta), verdicts)


def opened_on_launch(session: Session, record: LaunchRecord, check: Reference | None = None) -> Panel:
    """Return the panel of a launch that was recorded, with the arguments, the options and the grid that it had."""
    kernel = session.kernels.owner_of(record.kernel)
    supplied = supplied_names(kernel)
    options = {name: record.compiled.options.get(name) for name in INTEGER_OPTIONS[:2]}
    given = {name: value for name, value in record.arguments.items() if name not in supplied}
    given |= {name: value for name, value in options.items() if value is not None and name not in supplied}
    grid = record.given_grid if record.given_grid is not None else record.grid or (1,)
    return _panel(session, _Launch(kernel, grid, given, {}), Verdicts(check))


@dataclass(frozen=True, slots=True)
class _Launch:
    """The explored launch: a bound kernel, its grid, arguments, and keywords that may be ranges."""

    kernel: Kernel
    grid: Any
    given: Mapping[str, Any]
    ranges: Mapping[str, Any]


def _panel(session: Session, launch: _Launch, verdicts: Verdicts) -> Panel:
    from kernellab._triton.drivers import gpu_target_of_machine

    runtime, kernel, stated = session.runtime, launch.kernel, autotune_settings(launch.kernel)
    closure, _ = closure_of(kernel)
    subject = _subject(launch, closure.name, [function.text for function in closure.functions])
    plan = plan_controls(subject, launch.ranges)
    here = None if runtime.is_offline() else gpu_target_of_machine()
    inputs = _memory(plan.fixed)
    interpreted = on_gpu = None
    if here is None:
        held = inputs if size_bytes(inputs) > BYTES_AT_MOST else copy_arguments(inputs)  # what is too large is not run
        interpreted = CpuRuns(runtime.interpret, held, verdicts, tuple(stated.reset_to_zero))
    else:
        on_gpu = _on_gpu(runtime, inputs, verdicts, tuple(stated.reset_to_zero))
    requests = Requests(
        kernel,
        launch.grid,
        plan.fixed if on_gpu is None else {**plan.fixed, **on_gpu.inputs},  # timed on what is checked
        frozenset(subject.parameters),
        subject.constexprs,
        has_hooks=stated.pre_hook is not None,
    )
    evaluator = Evaluator(session.compiler, requests, PointHistory(closure.name), here, interpreted, on_gpu)
    entry = closure.functions[0]
    source = SourceText.of(entry.text, entry.first_line, closure.label(entry.file))
    panel = Panel(evaluator, plan, Keeper(session.kernels, kernel, requests), source, str(session.target))
    try:
        panel.wait()
    except KeyboardInterrupt:
        panel.close()
        raise Interrupted(f"Opening the sliders of {closure.name} was interrupted.") from None
    return panel


def _on_gpu(runtime: Runtime, inputs: Mapping[str, Any], verdicts: Verdicts, zeroed: tuple[str, ...]) -> OnGpu:
    import torch  # only where there is a GPU

    try:
        held = inputs if verdicts.check is None else copy_arguments(inputs)
    except torch.OutOfMemoryError as exc:
        raise UsageError(
            f"check works on copies of the arguments, and the GPU has no room for their {size_bytes(inputs) / 1e9:.1f} "
            "GB; leave check out, or explore with smaller tensors."
        ) from exc
    return OnGpu(
        runtime=runtime,
        make_bench=lambda launches: bench_of(launches, runtime.trials, _TIMEOUT_S),
        inputs=held,
        verdicts=verdicts,
        device=torch.cuda.current_device(),
        timeout_s=_TIMEOUT_S,
        zeroed=zeroed,
    )


def _subject(launch: _Launch, kernel_name: str, texts: Sequence[str]) -> Subject:
    """Return the facts of a launch; keywords that are no ranges are arguments."""
    import triton.language as tl

    kernel, grid = launch.kernel, launch.grid
    function = jit_function(kernel)
    configs = tuple(
        {k: v for k, v in c.all_kwargs().items() if v is not None} for c in autotune_settings(kernel).configs
    )
    plain = {name: constexpr_value(value) for name, value in launch.given.items()}
    single = {name: value for name, value in launch.ranges.items() if not isinstance(value, list)}
    memory = memory_of({**plain, **single})
    return Subject(
        parameters=tuple(function.arg_names),
        constexprs=frozenset(parameter.name for parameter in function.params if parameter.is_constexpr),
        defaults={
            **{p.name: constexpr_value(p.default) for p in function.params if p.has_default},
            **dict.fromkeys(heuristic_names(kernel)),
        },
        given=plain,
        configs=configs,
        grid=None if callable(grid) else checked_grid(grid, kernel_name),
        numel=min((tensor.numel() for tensor in memory.values()), default=None),
        dtypes=tuple(getattr(tl, name) for name in _DTYPES),
        has_loop=any(map(_has_loop, texts)),
    )


def _has_loop(text: str) -> bool:
    """Return whether a function has a loop that survives compiling and can be pipelined."""
    loops = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.For | ast.While)]
    return any(isinstance(loop, ast.While) or "static_range" not in ast.unparse(loop.iter) for loop in loops)


def _memory(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that hold memory."""
    return {name: value for name, value in arguments.items() if memory_of({name: value})}

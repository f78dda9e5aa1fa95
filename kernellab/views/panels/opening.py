"""From a kernel, a grid and arguments to a panel over them."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
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
from kernellab.checking.reference import Reference, ReferenceFunction, check_of
from kernellab.errors import KernellabError, UsageError
from kernellab.explain.devices import device_for
from kernellab.explain.prediction import Prediction
from kernellab.explain.prediction_requests import predict_quickly
from kernellab.explore.controls import Subject, plan_controls
from kernellab.explore.evaluator import BYTES_AT_MOST, Evaluator, OnCpu, OnGpu, OutputComparer
from kernellab.explore.points import Keeper, PointHistory, Requests
from kernellab.launch.arguments import memory_of
from kernellab.launch.calls import UserCall, checked_grid
from kernellab.launch.memory import copy_arguments, size_bytes
from kernellab.launch.pointers import tensors_for_pointers
from kernellab.launch.recording import LaunchRecord
from kernellab.launch.runtime import Runtime
from kernellab.registry import Session, latest_launch
from kernellab.source import INTEGER_OPTIONS, Closure
from kernellab.timing.bench import Bench
from kernellab.timing.gpu_bench import bench_of
from kernellab.timing.hooks import sets_blocks_alone
from kernellab.timing.launches import Implementation, Launches
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
    arguments = dict(zip(parameter_names(call.kernel), call.args, strict=False))
    if session.runtime.interprets():
        arguments = {name: tensors_for_pointers(name, value) for name, value in arguments.items()}
    reference, launched = None if check is None else check_of(check), _last_launch(session, call.kernel)
    return _panel(session, call.kernel, call.grid, arguments, call.meta, reference, launched)


def opened_on_launch(session: Session, record: LaunchRecord, check: Reference | None = None) -> Panel:
    """Return the panel of a launch that was recorded, with the arguments, the options and the grid that it had."""
    kernel = session.kernels.owner_of(record.kernel)
    supplied, options = supplied_names(kernel), record.compiled.options
    values = {**record.arguments, **{name: options[name] for name in INTEGER_OPTIONS[:2] if options.get(name)}}
    arguments = {name: value for name, value in values.items() if name not in supplied}
    launched = {name: constexpr_value(value) for name, value in values.items() if name in supplied}
    grid = record.given_grid if record.given_grid is not None else record.grid or (1,)
    return _panel(session, kernel, grid, arguments, {}, check, launched)


def _last_launch(session: Session, kernel: Kernel) -> Mapping[str, Any]:
    """Return the constexprs and options of the latest recorded launch of a kernel; of one never launched, nothing."""
    version = session.kernels.known_version(kernel)
    launch = None if version is None else latest_launch(session.kernels.store, version)
    if launch is None:
        return {}
    plain = {argument.name: argument.value for argument in launch.arguments if argument.constexpr}
    return {**{name: value for name, value in plain.items() if isinstance(value, bool | int)}, **launch.options}


def _panel(
    session: Session,
    kernel: Kernel,
    grid: Any,
    arguments: Mapping[str, Any],
    ranges: Mapping[str, Any],
    check: Reference | ReferenceFunction | None,
    launched: Mapping[str, Any],
) -> Panel:
    from kernellab._triton.drivers import gpu_target_of_machine

    runtime, stated, (closure, _) = session.runtime, autotune_settings(kernel), closure_of(kernel)
    hooks = [*{id(config.pre_hook): config.pre_hook for config in stated.configs}.values()]
    hook = hooks[0] if len(hooks) == 1 else None
    subject = _subject(kernel, grid, arguments, ranges, closure)
    subject = replace(subject, launched=launched, blocks=subject.blocks if hook is None else {})
    plan = plan_controls(subject, ranges)
    here = None if runtime.is_offline() else gpu_target_of_machine()
    inputs = {name: value for name, value in plan.fixed.items() if memory_of({name: value})}
    zeroed = tuple(stated.reset_to_zero)
    fixed, runner = plan.fixed, _runner(runtime, inputs, OutputComparer(check), zeroed, has_gpu=here is not None)
    if here is not None:
        fixed = {**fixed, **runner.inputs}  # timed on what is checked
    parameters, is_called = frozenset(subject.parameters), hook is not None and not sets_blocks_alone(hook)
    hooked = is_called or stated.pre_hook is not None
    requests = Requests(kernel, grid, fixed, parameters, subject.constexprs, has_hooks=hooked, hook=hook)
    predict = partial(_predict, session)
    evaluator = Evaluator(session.compiler, requests, PointHistory(closure.name), here, runner, predict)
    entry = closure.functions[0]
    source = SourceText.of(entry.text, entry.first_line, closure.label(entry.file))
    panel = Panel(evaluator, plan, Keeper(session.kernels, kernel, requests), source, str(session.target))
    try:
        panel.wait()
    except KeyboardInterrupt:
        panel.close()
        raise Interrupted(f"Opening the sliders of {closure.name} was interrupted.") from None
    return panel


def _predict(session: Session, implementation: Implementation) -> Prediction | None:
    """Return the predicted time of a point, for the session's device if that is of the point's target."""
    if not session.predicts:
        return None
    target = implementation.kernel.target
    device = device_for(target, session.model if target == session.target else "")
    compiler = session.compiler
    with suppress(KernellabError):  # a worker that died or was too slow costs the prediction alone
        return predict_quickly(compiler.pool, implementation, device, compiler.timeout_s)
    return None


def _runner(
    runtime: Runtime, inputs: Mapping[str, Any], comparer: OutputComparer, zeroed: tuple[str, ...], *, has_gpu: bool
) -> OnCpu | OnGpu:
    if not has_gpu:
        copies = inputs if size_bytes(inputs) > BYTES_AT_MOST else copy_arguments(inputs)  # too large ones are not run
        return OnCpu(runtime.interpret, copies, comparer, zeroed)
    import torch  # only where there is a GPU

    try:
        copies = inputs if comparer.check is None else copy_arguments(inputs)
    except torch.OutOfMemoryError as exc:
        raise UsageError(
            f"check works on copies of the arguments, and the GPU has no room for their {size_bytes(inputs) / 1e9:.1f} "
            "GB; leave check out, or explore with smaller tensors."
        ) from exc

    def bench(launches: Launches) -> Bench:
        return bench_of(launches, runtime.trials, _TIMEOUT_S)

    return OnGpu(runtime, bench, copies, comparer, torch.cuda.current_device(), _TIMEOUT_S, zeroed)


def _subject(
    kernel: Kernel, grid: Any, arguments: Mapping[str, Any], ranges: Mapping[str, Any], closure: Closure
) -> Subject:
    """Return the facts of a launch; keywords that are not ranges are arguments."""
    import triton.language as tl

    function, configs = jit_function(kernel), autotune_settings(kernel).configs
    plain = {name: constexpr_value(value) for name, value in arguments.items()}
    single = {name: value for name, value in ranges.items() if not isinstance(value, list)}
    memory = memory_of({**plain, **single})
    return Subject(
        parameters=tuple(function.arg_names),
        constexprs=frozenset(parameter.name for parameter in function.params if parameter.is_constexpr),
        defaults={
            **{p.name: constexpr_value(p.default) for p in function.params if p.has_default},
            **dict.fromkeys(heuristic_names(kernel)),
        },
        given=plain,
        configs=tuple({k: v for k, v in c.all_kwargs().items() if v is not None} for c in configs),
        grid=None if callable(grid) else checked_grid(grid, closure.name),
        numel=min((tensor.numel() for tensor in memory.values()), default=None),
        dtypes=tuple(getattr(tl, name) for name in _DTYPES),
        has_loop=any(_has_loop(function.text) for function in closure.functions),
        blocks={name: tuple(value.block_shape) for name, value in plain.items() if hasattr(value, "block_shape")},
    )


def _has_loop(text: str) -> bool:
    """True for a function with a loop that survives compiling and can be pipelined."""
    loops = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.For | ast.While)]
    return any(isinstance(loop, ast.While) or "static_range" not in ast.unparse(loop.iter) for loop in loops)

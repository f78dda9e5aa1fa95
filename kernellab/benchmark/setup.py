"""Set up a benchmark with a lab's kernels, compiler, store and GPU.

The arguments are the given ones, or those of a recorded launch, scaled to other sizes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from kernellab._triton.kernel import Kernel, jit_function, parameter_names, supplied_names
from kernellab.benchmark.result import Benchmark
from kernellab.benchmark.runner import BenchmarkContext, run_benchmark
from kernellab.benchmark.spec import VARIANTS, BenchmarkSpec, cast_floats, peers_by_name, swept_values
from kernellab.errors import UsageError, plural
from kernellab.launch.calls import grid_for_launch
from kernellab.registry import Registry, Session, grid_text, recorded_version, regenerated_inputs, values_of
from kernellab.store import Argument, RecordedLaunch
from kernellab.timing.launches import Launches
from kernellab.timing.outcome import NO_GPU
from kernellab.timing.provenance import can_time, ceilings_here, device_here
from kernellab.timing.timer import differences_on_cpu, gpu_timers
from kernellab.workers.forks_and_interrupts import Interrupted

Best = Callable[[Launches], Any]

_OPTIONS = frozenset({"over", "inputs", "versus", "where", "flops", "bytes", "check", "rounds", "timeout_s"})


def benchmark(session: Session, best: Best, spec: BenchmarkSpec) -> Benchmark:
    """Run a benchmark; ``best`` gives the config of an autotuned kernel for some launches.

    Raises:
        UsageError, LaunchError: the spec does not fit the kernel.
    """
    runtime = session.runtime
    device, has_gpu = device_here(runtime), can_time(runtime)
    kernel_of = partial(_kernel_of, session.kernels)
    kernel = kernel_of(spec.kernel)[1]
    version = session.kernels.current_version(kernel)
    environment = BenchmarkContext(
        compiler=session.compiler,
        target=device.target,
        kernel_of=kernel_of,
        best=best,
        make_timer=gpu_timers(runtime, spec.timeout_s) if has_gpu else None,
        provenance=device.facts,
        ceilings=ceilings_here(runtime) if has_gpu else None,
        why_not=NO_GPU if runtime.is_offline() else f"not measured: {runtime.target} is not the target of the GPU",
        check=partial(differences_on_cpu, runtime, spec.timeout_s) if runtime.is_offline() else None,
        history=session.kernels.store.history,
        version_id=version.id,
        progress=runtime.benchmark_reporter,
    )
    try:
        with runtime.observers.own_launches():
            return run_benchmark(environment, spec, parameter_names(kernel))
    except KeyboardInterrupt:
        raise Interrupted("The benchmark was interrupted before anything was measured.") from None


def _kernel_of(kernels: Registry, key_or_kernel: Any) -> tuple[str, Any]:
    """Return name and bound kernel of a kernel, a label or an id; a label names the version."""
    if isinstance(key_or_kernel, str | int):
        kernel = kernels[key_or_kernel]
        is_bare = isinstance(key_or_kernel, str) and "@" not in key_or_kernel
        return (str(key_or_kernel) if is_bare else kernels.version(key_or_kernel).label), kernel
    bound = kernels.bind(key_or_kernel)
    return str(jit_function(bound).__name__), bound


def spec_of(
    session: Session, kernel: Kernel | str | int, grid: Any, args: tuple[Any, ...], keywords: Mapping[str, Any]
) -> BenchmarkSpec:
    """Return the spec of ``lab.bench``: its own keywords, and the rest as arguments of the kernel.

    Where there is neither a grid nor an argument, those of the latest recorded launch are scaled.

    Raises:
        UsageError: an option has a wrong value, or a name is unknown.
    """
    options = {name: value for name, value in keywords.items() if name in _OPTIONS}
    meta = {name: value for name, value in keywords.items() if name not in _OPTIONS}
    launched = session.kernels[kernel] if isinstance(kernel, str | int) else kernel
    names = parameter_names(launched)
    if len(args) > len(names):
        raise UsageError(f"The kernel takes {plural(len(names), 'argument')} ({', '.join(names)}) and got {len(args)}.")
    inputs = options.pop("inputs", None)
    over = swept_values(options.pop("over"), names, inputs)
    peers_of = peers_by_name(options.pop("versus", None))
    if grid is None:
        if args or inputs is not None:
            raise UsageError("The grid is missing; pass it after the kernel: lab.bench(kernel, grid, ..., over=...).")
        swept = tuple(name for name in over if name not in VARIANTS)
        grid, inputs = recorded_launch_inputs(session.kernels, kernel, swept, session.runtime.device)
    grid = grid_for_launch("lab.bench", launched, grid, args, meta)
    named = {**dict(zip(names, args, strict=False)), **meta}
    return BenchmarkSpec(kernel, grid, named, over, inputs=inputs, versus=peers_of, **options)


def recorded_launch_inputs(
    kernels: Registry, kernel: Kernel | str | int, names: tuple[str, ...], device: str
) -> tuple[Any, Callable[..., dict[str, Any]]]:
    """Return the grid of a kernel's latest recorded launch, and the function that makes its arguments for a sweep.

    Tensor extents that equal a swept number follow it; other parameters stay as they were.

    Raises:
        UsageError: no launch is stored, its grid is unknown, or a swept name is not a scalar of it.
    """
    version = kernels.version(kernel) if isinstance(kernel, str | int) else kernels.version_of(kernel)
    kept = recorded_version(kernels.store, version)
    launch = kept.launch
    if launch is None or launch.grid is None:
        raise UsageError(
            f"No launch of {version.label} is kept; launch it in a %%triton cell, or pass a grid and arguments."
        )
    known = {argument.name for argument in launch.arguments}
    unknown = [name for name in names if name not in known | {"dtype"}]
    if unknown:
        raise UsageError(f"over sweeps {unknown[0]!r}, and {version.label} takes {', '.join(sorted(known))}.")
    formula = grid_text(kept.launches)
    if formula is None and names:
        raise UsageError(
            f"The launches of {version.label} do not determine its grid {launch.grid} from its arguments; "
            "pass the grid as a function: lambda meta: (triton.cdiv(...),)."
        )
    left_out = supplied_names(kernels[version.id])

    def inputs(**values: Any) -> dict[str, Any]:
        sizes = {name: value for name, value in values.items() if name != "dtype"}
        wanted = scale_launch(launch, sizes)
        arguments = {**regenerated_inputs(wanted, device), **values_of(wanted)}
        arguments = {name: value for name, value in arguments.items() if name not in left_out}
        return cast_floats(arguments, values["dtype"]) if "dtype" in values else arguments

    return (launch.grid if formula is None else formula.grid_for, inputs)


def scale_launch(launch: RecordedLaunch, values: Mapping[str, Any]) -> RecordedLaunch:
    """Return a launch with other values of some scalars, and with tensors and strides that fit them.

    An extent is scaled with a scalar that equals it; the extent of a vector also with a scalar that divides it, or is a
    factor of it with another scalar. Strides are those of the new shapes, also in parameters named stride.

    Raises:
        UsageError: it is ambiguous which extents a scalar sets.
    """
    advice = f"pass inputs=lambda {', '.join(values)}: dict(...), which makes the arguments."
    numbers = {a.name: a.value for a in launch.arguments if a.kind == "scalar" and type(a.value) is int}
    changes: dict[int, int] = {}
    for name, new in values.items():
        old = numbers.get(name)
        if old is None or type(new) is not int or old == new or launch.argument(name).constexpr:
            continue
        if old < 2 or changes.get(old, new) != new:
            raise UsageError(f"{name} was {old}, which does not determine the extents that follow it; {advice}")
        changes[old] = new
    tensors = {a.name: _scaled_tensor(a, numbers, changes, advice) for a in launch.arguments if a.kind == "tensor"}
    strides = _new_strides([(a, tensors[a.name]) for a in launch.arguments if a.name in tensors])
    arguments = []
    for argument in launch.arguments:
        if argument.name in values:
            arguments.append(dataclasses.replace(argument, value=values[argument.name]))
        elif argument.name in tensors:
            arguments.append(tensors[argument.name])
        elif changes and argument.kind in {"tuple", "descriptor"}:
            raise UsageError(f"{argument.name} is a {argument.kind}, which is not scaled; {advice}")
        else:
            arguments.append(_scaled_scalar(argument, changes, strides, advice))
    if changes and all(tensors[a.name].shape == a.shape for a in launch.arguments if a.name in tensors):
        names = ", ".join(f"{name}={numbers[name]}" for name in values if name in numbers)
        raise UsageError(f"No tensor of the recorded launch has an extent of {names}; {advice}")
    return dataclasses.replace(launch, arguments=tuple(arguments))


def _scaled_tensor(argument: Argument, numbers: Mapping[str, int], changes: Mapping[int, int], advice: str) -> Argument:
    extents = [_scaled_extent(extent, len(argument.shape), numbers, changes) for extent in argument.shape]
    if None in extents:
        raise UsageError(
            f"{argument.name} has the shape {argument.shape}; which extents to scale is not clear; {advice}"
        )
    shape = tuple(extent for extent in extents if extent is not None)
    if shape == argument.shape:
        return argument
    order = sorted(range(len(shape)), key=lambda axis: (argument.stride[axis], -axis))
    if argument.stride != _dense_strides(argument.shape, order):
        raise UsageError(f"{argument.name} has gaps (strides {argument.stride}) and is not scaled; {advice}")
    return dataclasses.replace(argument, shape=shape, stride=_dense_strides(shape, order), values=None)


def _scaled_extent(extent: int, rank: int, numbers: Mapping[str, int], changes: Mapping[int, int]) -> int | None:
    """Return the scaled extent; None where two scalings of it differ."""
    if extent in changes:
        return changes[extent]
    if rank > 1:
        return extent
    factors = set(numbers.values())
    products = {
        changes.get(first, first) * changes.get(second, second)
        for first in changes
        for second in factors
        if first * second == extent
    }
    multiples = {extent // old * new for old, new in changes.items() if extent > old and extent % old == 0}
    candidates = products or multiples or {extent}
    return candidates.pop() if len(candidates) == 1 else None


def _dense_strides(shape: tuple[int, ...], order: list[int]) -> tuple[int, ...]:
    """Return the strides of a dense tensor with its dimensions in this order, the fastest first."""
    strides, step = [0] * len(shape), 1
    for axis in order:
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


def _new_strides(pairs: list[tuple[Argument, Argument]]) -> dict[int, set[int]]:
    """Return the new strides for each recorded stride, over all tensors."""
    new_strides: dict[int, set[int]] = {}
    for before, after in pairs:
        for old, new in zip(before.stride, after.stride, strict=True):
            new_strides.setdefault(old, set()).add(new)
    return new_strides


def _scaled_scalar(
    argument: Argument, changes: Mapping[int, int], strides: Mapping[int, set[int]], advice: str
) -> Argument:
    if argument.kind != "scalar" or type(argument.value) is not int or argument.constexpr:
        return argument
    old = argument.value
    if "stride" in argument.name.lower():
        new = strides.get(old, {old})
        if len(new) > 1:
            raise UsageError(f"{argument.name} was {old}, a stride of several tensors; {advice}")
        return dataclasses.replace(argument, value=next(iter(new)))
    if changes.get(old, old) != old:
        raise UsageError(
            f"{argument.name} was {old} too, so it is not clear which extents follow what is swept; {advice}"
        )
    return argument

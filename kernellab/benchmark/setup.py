"""Benchmarks with what a lab has: its kernels, its compiler, its store, its GPU if there is one.

What is asked becomes a spec, with the arguments given or those of a recorded launch, scaled to other sizes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from kernellab._triton.kernel import Kernel
from kernellab.benchmark.result import Benchmark
from kernellab.benchmark.runner import BenchmarkEnvironment, benchmarked
from kernellab.benchmark.spec import VARIANTS, BenchmarkSpec, cast, peers, swept
from kernellab.benchmark.timer import differences_on_cpu, gpu_timers
from kernellab.errors import UsageError, plural
from kernellab.launch.calls import require_launch
from kernellab.launch.runtime import Runtime
from kernellab.measure.config import NO_GPU
from kernellab.measure.launches import Launches
from kernellab.measure.provenance import can_time, ceilings_here, device_here
from kernellab.registry import Registry, grid_text, made_inputs, recorded_version, values_of
from kernellab.store import Argument, RecordedLaunch
from kernellab.workers.forks_and_interrupts import Interrupted

Bind = Callable[[Any], Any]
Best = Callable[[Launches], Any]

_OPTIONS = frozenset({"over", "inputs", "versus", "where", "flops", "bytes", "check", "rounds", "timeout_s"})
_ASK = "pass inputs=lambda {names}: dict(...), which makes the arguments."


def benchmark(runtime: Runtime, kernels: Registry, bind: Bind, best: Best, spec: BenchmarkSpec) -> Benchmark:
    """Measure what is asked for; ``best`` gives the config of an autotuned kernel for some launches.

    Raises:
        UsageError, LaunchError: the spec does not fit the kernel.
    """
    from kernellab._triton.kernel import parameter_names

    device, has_gpu = device_here(runtime), can_time(runtime)
    kernel_of = partial(_kernel_of, kernels, bind)
    kernel = kernel_of(spec.kernel)[1]
    version = kernels.current(kernel)
    environment = BenchmarkEnvironment(
        compiler=runtime.compiler,
        target=device.target,
        kernel_of=kernel_of,
        best=best,
        make_timer=gpu_timers(runtime, spec.timeout_s) if has_gpu else None,
        provenance=device.facts,
        ceilings=ceilings_here(runtime) if has_gpu else None,
        why_not=NO_GPU if runtime.is_offline() else f"not measured: {runtime.target} is not the target of the GPU",
        check=partial(differences_on_cpu, runtime, spec.timeout_s) if runtime.is_offline() else None,
        history=kernels.store.history,
        version_id=version.id,
        progress=runtime.benchmark_reporter,
    )
    try:
        with runtime.observers.withheld():
            return benchmarked(environment, spec, parameter_names(kernel))
    except KeyboardInterrupt:
        raise Interrupted("The benchmark was interrupted before anything was measured.") from None


def _kernel_of(kernels: Registry, bind: Bind, given: Any) -> tuple[str, Any]:
    """Return name and bound kernel of a kernel, a label or an id; a label names the version."""
    from kernellab._triton.kernel import jit_function

    if isinstance(given, str | int):
        kernel = bind(kernels[given])
        is_bare = isinstance(given, str) and "@" not in given
        return (str(given) if is_bare else kernels.version(given).label), kernel
    bound = bind(given)
    return str(jit_function(bound).__name__), bound


def spec_of(
    kernels: Registry,
    device: str,
    kernel: Kernel | str | int,
    grid: Any,
    args: tuple[Any, ...],
    given: Mapping[str, Any],
) -> BenchmarkSpec:
    """Return the spec of ``lab.bench``: its own keywords, and the rest as arguments of the kernel.

    Where there is neither a grid nor an argument, those of the latest recorded launch are scaled.

    Raises:
        UsageError: an option has a wrong value, or a name is unknown.
    """
    from kernellab._triton.kernel import parameter_names

    options = {name: value for name, value in given.items() if name in _OPTIONS}
    meta = {name: value for name, value in given.items() if name not in _OPTIONS}
    names = parameter_names(kernels[kernel] if isinstance(kernel, str | int) else kernel)
    if len(args) > len(names):
        raise UsageError(f"The kernel takes {plural(len(names), 'argument')} ({', '.join(names)}) and got {len(args)}.")
    inputs = options.pop("inputs", None)
    over = swept(options.pop("over"), names, inputs)
    peers_of = peers(options.pop("versus", None))
    if grid is None:
        if args or inputs is not None:
            raise UsageError("The grid is missing; pass it after the kernel: lab.bench(kernel, grid, ..., over=...).")
        grid, inputs = recorded(kernels, kernel, tuple(name for name in over if name not in VARIANTS), device)
    require_launch("lab.bench", kernels[kernel] if isinstance(kernel, str | int) else kernel, grid, args, meta)
    named = {**dict(zip(names, args, strict=False)), **meta}
    return BenchmarkSpec(kernel, grid, named, over, inputs=inputs, versus=peers_of, **options)


def recorded(
    kernels: Registry, kernel: Kernel | str | int, names: tuple[str, ...], device: str
) -> tuple[Any, Callable[..., dict[str, Any]]]:
    """Return the grid of the latest recorded launch of a kernel, and what makes its arguments for a sweep over names.

    Tensors whose extents are a swept number have other extents then; other parameters stay as they were.

    Raises:
        UsageError: no launch is kept, it does not tell the grid, or what is swept is no scalar of it.
    """
    from kernellab._triton.kernel import supplied_names

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
            f"The launches of {version.label} do not tell how its grid {launch.grid} follows from its arguments; "
            "pass the grid as a function: lambda meta: (triton.cdiv(...),)."
        )
    left_out = supplied_names(kernels[version.id])

    def inputs(**values: Any) -> dict[str, Any]:
        sizes = {name: value for name, value in values.items() if name != "dtype"}
        wanted = scaled(launch, sizes)
        made = {**made_inputs(wanted, device), **values_of(wanted)}
        made = {name: value for name, value in made.items() if name not in left_out}
        return cast(made, values["dtype"]) if "dtype" in values else made

    return (launch.grid if formula is None else formula.grid_for, inputs)


def scaled(launch: RecordedLaunch, values: Mapping[str, Any]) -> RecordedLaunch:
    """Return a launch with other values of some scalars, and tensors and strides that fit them.

    An extent follows a number where it equals it; that of a vector also where it is a multiple of it, or its product
    with another number. Strides are those of the new shapes, also where a parameter called stride has them.

    Raises:
        UsageError: it is not clear what follows a number.
    """
    numbers = {a.name: a.value for a in launch.arguments if a.kind == "scalar" and type(a.value) is int}
    changes: dict[int, int] = {}
    for name, new in values.items():
        old = numbers.get(name)
        if old is None or type(new) is not int or old == new or launch.argument(name).constexpr:
            continue
        if old < 2 or changes.get(old, new) != new:
            raise UsageError(f"{name} was {old}, which does not tell the extents that follow it; {_ask(values)}")
        changes[old] = new
    tensors = {a.name: _tensor(a, numbers, changes, values) for a in launch.arguments if a.kind == "tensor"}
    strides = _strides([(a, tensors[a.name]) for a in launch.arguments if a.name in tensors])
    arguments = []
    for argument in launch.arguments:
        if argument.name in values:
            arguments.append(dataclasses.replace(argument, value=values[argument.name]))
        elif argument.name in tensors:
            arguments.append(tensors[argument.name])
        elif changes and argument.kind in {"tuple", "descriptor"}:
            raise UsageError(f"{argument.name} is a {argument.kind}, which is not scaled; {_ask(values)}")
        else:
            arguments.append(_scalar(argument, changes, strides, values))
    if changes and all(tensors[a.name].shape == a.shape for a in launch.arguments if a.name in tensors):
        names = ", ".join(f"{name}={numbers[name]}" for name in values if name in numbers)
        raise UsageError(f"No tensor of the recorded launch has an extent of {names}; {_ask(values)}")
    return dataclasses.replace(launch, arguments=tuple(arguments))


def _tensor(
    argument: Argument, numbers: Mapping[str, int], changes: Mapping[int, int], values: Mapping[str, Any]
) -> Argument:
    extents = [_extent(extent, len(argument.shape), numbers, changes) for extent in argument.shape]
    if None in extents:
        raise UsageError(
            f"{argument.name} has the shape {argument.shape}, of which it is not clear what follows; {_ask(values)}"
        )
    shape = tuple(extent for extent in extents if extent is not None)
    if shape == argument.shape:
        return argument
    order = sorted(range(len(shape)), key=lambda axis: (argument.stride[axis], -axis))
    if argument.stride != _dense(argument.shape, order):
        raise UsageError(f"{argument.name} has gaps (strides {argument.stride}) and is not scaled; {_ask(values)}")
    return dataclasses.replace(argument, shape=shape, stride=_dense(shape, order), values=None)


def _extent(extent: int, rank: int, numbers: Mapping[str, int], changes: Mapping[int, int]) -> int | None:
    """Return what an extent becomes; None where two readings of it differ."""
    if extent in changes:
        return changes[extent]
    if rank > 1:
        return extent
    factors = set(numbers.values())
    products = {
        changes.get(one, one) * changes.get(other, other)
        for one in changes
        for other in factors
        if one * other == extent
    }
    multiples = {extent // old * new for old, new in changes.items() if extent > old and extent % old == 0}
    found = products or multiples or {extent}
    return found.pop() if len(found) == 1 else None


def _dense(shape: tuple[int, ...], order: list[int]) -> tuple[int, ...]:
    """Return the strides of a tensor without gaps whose dimensions run in this order, the fastest first."""
    strides, step = [0] * len(shape), 1
    for axis in order:
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


def _strides(pairs: list[tuple[Argument, Argument]]) -> dict[int, set[int]]:
    """Return what each recorded stride becomes, in all tensors."""
    found: dict[int, set[int]] = {}
    for before, after in pairs:
        for old, new in zip(before.stride, after.stride, strict=True):
            found.setdefault(old, set()).add(new)
    return found


def _scalar(
    argument: Argument, changes: Mapping[int, int], strides: Mapping[int, set[int]], values: Mapping[str, Any]
) -> Argument:
    if argument.kind != "scalar" or type(argument.value) is not int or argument.constexpr:
        return argument
    old = argument.value
    if "stride" in argument.name.lower():
        new = strides.get(old, {old})
        if len(new) > 1:
            raise UsageError(f"{argument.name} was {old}, a stride of several tensors; {_ask(values)}")
        return dataclasses.replace(argument, value=next(iter(new)))
    if changes.get(old, old) != old:
        raise UsageError(
            f"{argument.name} was {old} too, so it is not clear which extents follow what is swept; {_ask(values)}"
        )
    return argument


def _ask(values: Mapping[str, Any]) -> str:
    return _ASK.format(names=", ".join(values))

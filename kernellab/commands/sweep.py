"""The benchmark of a kernel file: sizes are swept by asking the file for each, all else by the lab."""

from __future__ import annotations

import inspect
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from kernellab.benchmark.result import Benchmark, joined
from kernellab.benchmark.spec import VARIANTS
from kernellab.commands.kernel_file import KernelFile, by_name, device_of, file_launch, sizes_of, with_meta
from kernellab.commands.parser import assigned, listed
from kernellab.errors import UsageError

if TYPE_CHECKING:
    from kernellab.lab import Lab


def swept_benchmark(lab: Lab, file: KernelFile, given: Namespace) -> Benchmark:
    """Return the benchmark that the options ask for.

    A file's grid and arguments belong to its sizes, so there is one benchmark for each combination of these; together
    they are one table.

    Raises:
        UsageError: what is swept is neither a size of the file nor of the kernel, or a peer is not in the file.
    """
    over = listed(given.over, "--over")
    fixed, meta = assigned(given.size, "--size"), assigned(given.meta, "--meta")
    sizes = {name: over[name] for name in over if name in sizes_of(file)}
    others = {name: over[name] for name in over if name not in sizes}
    _require_known(file, others)
    for option, assigned_ones in (("--size", fixed), ("--meta", meta)):
        if twice := [name for name in assigned_ones if name in over]:
            raise UsageError(f"{twice[0]} is given by --over and by {option}; give it once.")
    if not over:
        sizes, others = _default_sizes(file, fixed)
    options = {"rounds": given.rounds, "timeout_s": given.timeout, "check": given.check}
    options["versus"] = _peers(file, given.versus) or None
    found = []
    for values in product(*sizes.values()):
        case = dict(zip(sizes, values, strict=True))
        launch = with_meta(lab, file, file_launch(file, {**fixed, **case}, device_of(lab)), meta)
        arguments = by_name(launch, file.kernel)
        left = {name: value for name, value in arguments.items() if name not in others}
        over = {**{name: (value,) for name, value in case.items()}, **others}
        found.append(lab.bench(file.kernel, launch.grid, over=over, inputs=_these(left), **options))
    return joined(found)


def _these(arguments: Mapping[str, Any]) -> Callable[..., Mapping[str, Any]]:
    return lambda **point: arguments


def _require_known(file: KernelFile, others: Iterable[str]) -> None:
    from kernellab._triton.objects import parameter_names

    known = (*sizes_of(file), *parameter_names(file.kernel), *VARIANTS)
    for name in others:
        if name not in known:
            raise UsageError(
                f"--over {name}: neither a size of {file.path} nor of {file.name}; known: {', '.join(known)}."
            )


def _default_sizes(
    file: KernelFile, fixed: Mapping[str, Any]
) -> tuple[dict[str, tuple[Any, ...]], dict[str, tuple[Any, ...]]]:
    """Return the one point of a benchmark that sweeps nothing: its sizes, else the options that it has anyway."""
    made = getattr(file.module, "arguments", None)
    parameters = inspect.signature(made).parameters if callable(made) and sizes_of(file) else {}
    defaults = {name: parameters[name].default for name in sizes_of(file)}
    found = {**{name: value for name, value in defaults.items() if value is not inspect.Parameter.empty}, **fixed}
    if found:
        return {name: (value,) for name, value in found.items()}, {}
    return {}, {"num_warps": (None,)}


def _peers(file: KernelFile, names: Sequence[str]) -> dict[str, Any]:
    """Return functions and kernels of the file by name.

    Raises:
        UsageError: one is not there.
    """
    found = {name: getattr(file.module, name, None) for name in names}
    for name, peer in found.items():
        if not callable(peer) and not hasattr(peer, "run"):
            raise UsageError(f"--versus {name!r}: {file.path} has no such function or kernel.")
    return found

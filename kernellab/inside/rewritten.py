"""Launches of rewritten kernels: the copy of a compiled launch, on copies of its arguments.

The text of the kernel is changed; its helpers, constants, config, options and hooks stay. The copy has one more
argument, a tensor into which it stores.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kernellab._triton.closure import closure_of
from kernellab._triton.loading import load
from kernellab._triton.specialize import specialize
from kernellab.compile.types import job_of
from kernellab.launch.run import Run
from kernellab.registry.kernels import Session
from kernellab.source import Closure, JitOptions
from kernellab.timing.launches import Implementation, copies_to_launch

_SLEEP_CYCLES = 2_000_000  # about a millisecond, in which the host queues what follows


def closure_to_rewrite(function: Any) -> Closure:
    """The closure of a jit function, with the arguments of its decorator."""
    closure, _ = closure_of(function)
    names = ("debug", "do_not_specialize", "do_not_specialize_on_alignment")
    options = {name: getattr(function, name) for name in names if getattr(function, name, None)}
    for name in names[1:]:
        if name in options:
            options[name] = [function.arg_names[n] if isinstance(n, int) else n for n in options[name]]
    return replace(closure, wrappers=(JitOptions(tuple(options.items())),))


def rewritten_implementation(
    session: Session, plain: Implementation, closure: Closure, added: Mapping[str, Any]
) -> Implementation:
    """The launch of a rewritten kernel, compiled; ``added`` are its arguments that the plain kernel lacks.

    Raises:
        CompileError: the rewritten kernel does not compile.
    """
    launch = plain.kernel_launch
    function = session.bind(load(closure).kernel)
    arguments = {**added, **launch.arguments}
    special = specialize(function, session.target, (), {**arguments, **launch.options})
    job = job_of(function, session.target, special)
    with session.runtime.compiling(function.__name__):
        compiled = session.compiler.compile(job)
    rewritten = replace(launch, job=job, function=function, arguments={**special.bound})
    return Implementation(plain.name, rewritten, compiled, None, plain.config, plain.index)


@dataclass(frozen=True, slots=True)
class LaunchOnCopies:
    """A launch on copies: its run, and the copied arguments as it left them."""

    run: Run
    arguments: Mapping[str, Any]


def run_on_copies(
    session: Session, implementation: Implementation, timeout_s: float, zeroed: Collection[str] = ()
) -> LaunchOnCopies:
    """Launch a kernel once on copies of its arguments: on a GPU after a trial launch, else in the interpreter.

    The arguments of ``zeroed`` are set to zero first.

    Raises:
        KernellabError: the kernel fails, or does not end in time.
    """
    launch, runtime = implementation.kernel_launch, session.runtime
    copies, _ = copies_to_launch(launch, implementation.kernel.effects, runtime.device, zeroed=zeroed)
    with runtime.recording(timeout_s=timeout_s) as recorder:
        if runtime.device == "cuda":
            import torch

            # The GPU is busy for a moment, so that the time of the launch has none of the host's.
            torch.cuda._sleep(_SLEEP_CYCLES)  # type: ignore[no-untyped-call]
        launch.function[launch.grid](**copies.arguments, **launch.options)
    return LaunchOnCopies(recorder.last_run(launch.function), copies.everything)

"""Tuning over sizes with what a lab has: its store, its GPU or those of an executor, its display."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from kernellab._triton.kernel import Kernel
from kernellab.benchmark.spec import Inputs
from kernellab.errors import WorkerError
from kernellab.launch.calls import UserCall
from kernellab.launch.runtime import Runtime
from kernellab.measure.config import Space
from kernellab.measure.launches import Launches
from kernellab.measure.reference import taken_by, takes_all
from kernellab.registry import Registry
from kernellab.target import multiprocessors
from kernellab.tune.autotune import environment_of
from kernellab.tune.dispatch.cases import CaseMeasurer
from kernellab.tune.dispatch.measuring import CaseSpec, LocalCases
from kernellab.tune.dispatch.over import OverSizes, cases_of, policy_of
from kernellab.tune.dispatch.plan import Plan
from kernellab.tune.dispatch.result import Dispatch, unwatched
from kernellab.tune.dispatch.table import Table
from kernellab.tune.tuning import Environment, candidates_of
from kernellab.workers.forks_and_interrupts import Interrupted

WITHOUT_GPU = (
    "There is no GPU, so nothing was timed: the table has what each config needs, and the rule knows no time. On a GPU "
    "it would pick a config for each size."
)


@dataclass(frozen=True, slots=True)
class OverOptions:
    """What is asked: sizes, what makes the arguments, configs, who measures, how many configs the rule may have.

    ``opened`` is what a process of the executor measures with, ``exporter`` is `Lab.export`.
    """

    over: Any
    inputs: Inputs | None
    configs: Space | Sequence[Any] | None = None
    executor: Any = None
    max_configs: int = 8
    timeout_s: float = 10.0
    fresh: bool = False
    check: Any = None
    outputs: Sequence[str] | None = None
    opened: Callable[[], Environment | None] | None = None
    exporter: Callable[..., Any] | None = None


def tuned_over(runtime: Runtime, kernels: Registry, call: UserCall, options: OverOptions) -> Dispatch:
    """Tune a bound kernel over sizes.

    Raises:
        UsageError, LaunchError: the sizes, configs or arguments do not fit the kernel.
        WorkerError: the executor has no GPU, or broke.
    """
    from kernellab._triton.kernel import parameter_names

    environment = replace(environment_of(runtime, kernels), progress=None)  # one display for all cases
    kernel, grid = call.kernel, call.grid
    names = parameter_names(kernel)
    given = {**dict(zip(names, call.args, strict=False)), **call.meta}
    known = () if takes_all(options.inputs) else (*names, *taken_by(options.inputs))
    cases = cases_of(options.over, known)
    launches = Launches(kernel, grid, (), given, environment.device.target)
    originals = candidates_of(launches, options.configs)
    more = {"timeout_s": options.timeout_s, "fresh": options.fresh, "check": options.check, "outputs": options.outputs}
    spec = CaseSpec(grid, given, options.inputs, list(originals.values()), **more)
    measurer, remarks = measurer_of(environment, kernel, spec, options)
    table = Table(cases, list(originals), getattr(measurer, "multiprocessors", None) or multiprocessors())
    reporter = runtime.dispatch_reporter
    try:
        with (
            runtime.observers.withheld(),
            nullcontext(unwatched) if reporter is None else reporter(launches.name) as watch,
        ):
            plan = Plan(table, policy_of(options.max_configs))
            found = OverSizes(launches.name, table, plan, measurer, environment.clock, watch).run()
    except KeyboardInterrupt:
        raise Interrupted("The tuning over sizes was interrupted before anything was known.") from None
    notes = (*found.notes, *remarks, *(() if table.has_times else (WITHOUT_GPU,)))
    return replace(
        found,
        originals=tuple(originals[config] for config in found.rule.configs),
        notes=notes,
        function=kernel,
        grid=grid,
        arguments=partial(spec.arguments, kernel),
        check=options.check,
        exporter=options.exporter,
    )


def measurer_of(
    environment: Environment, kernel: Kernel, spec: CaseSpec, options: OverOptions
) -> tuple[CaseMeasurer, tuple[str, ...]]:
    """Return who measures, with what is to be said of it: processes of the executor that own a GPU, else this one."""
    if options.executor is None or options.opened is None:
        return LocalCases(environment, kernel, spec), ()
    from kernellab.tune.dispatch.cluster_cases import cluster_cases  # most need none of it

    make = partial(LocalCases, spec=spec)
    try:
        return cluster_cases(environment, options.executor, options.opened, kernel, make), ()
    except WorkerError as exc:
        if environment.make_bench is None:
            raise
        return LocalCases(environment, kernel, spec), (f"measured in this process: {exc.message}",)

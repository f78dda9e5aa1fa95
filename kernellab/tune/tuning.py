"""One tuning, from a kernel with its arguments to the result: a reference, devices, measurements."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from kernellab._triton.kernel import Kernel
from kernellab.compile.cache import Compiler
from kernellab.compile.types import Compiled
from kernellab.errors import UsageError, choice_message
from kernellab.launch.memory import memory_of
from kernellab.measure.config import Config, Space
from kernellab.measure.implementations import implementation_of, touched
from kernellab.measure.launches import Launches, arithmetic, moved_bytes
from kernellab.target import DeviceLimits, limits_of
from kernellab.tune.agreement import remark_of
from kernellab.tune.device_pool import DevicePool
from kernellab.tune.finals import Policy
from kernellab.tune.prepared import (
    Environment,
    Options,
    PlannedConfigs,
    PreparedTuning,
    joined_names,
    prepared,
    reference_identity,
)
from kernellab.tune.progress import unwatched
from kernellab.tune.result import Records, Row, Tuning
from kernellab.tune.search import (
    MOST_SPILLED_BYTES,
    SEARCHES,
    CoordinateDescent,
    Exhaustive,
    Fits,
    Random,
    Search,
    best_known,
    best_nearby,
    halved_for_registers,
    optuna_search,
    relieved,
)
from kernellab.tune.tuner import STOPPED, Outcome, Tuner
from kernellab.workers.worker import Pool

if TYPE_CHECKING:
    from kernellab.tune.tuner import Outcome


def take_reference(launches: Launches, config: Config, options: Options, *, times: bool) -> None:
    """Compute what the outputs are compared with; note what an autotuner asks for and does not get."""
    from kernellab._triton.decorators import declared

    if options.check is not None:
        tuned = {name for name, _ in config.parameters}
        given = {n: v for n, v in launches.of(config).arguments.items() if n not in tuned}
        options.check.require(given)
    if options.check is not None and not times:
        launches.notes.append("The configs were not checked: without a GPU, a tuning launches none of them.")
    elif options.check is not None:
        from kernellab.measure.reference import reference_of  # most tunings need none of it

        launches.reference = reference_of(options.check, given)
    tuner = declared(launches.kernel)
    if times and tuner.by_graph:
        hooks = ", and hooks are called before each replay" if launches.has_hooks else ""
        launches.notes.append(
            f"timed by replaying CUDA graphs, as use_cuda_graph asks; a graph holds one launch{hooks}"
        )
    if tuner.has_own_bench:
        launches.notes.append("do_bench of the autotuner was not called: the lab times configs against each other")


def require_outputs(launches: Launches, config: Config, compiled: Compiled) -> None:
    """Raise where an argument is named that the kernel does not write.

    Raises:
        UsageError: one is.
    """
    effects = compiled.effects
    if launches.outputs is None or effects.through:  # what lies behind addresses has names once it is reached
        return
    mutated = touched(effects)[0]
    written = [name for name in memory_of(launches.of(config).arguments) if name in mutated]
    unknown = sorted(launches.outputs - set(written))
    if unknown:
        names = ", ".join(written) or "nothing"
        raise UsageError(f"outputs names {unknown[0]}, and {launches.name} writes {names}.")


def compiler_of(environment: Environment, options: Options) -> Compiler:
    """Return what compiles: the workers of the lab, or those of an executor."""
    if options.executor is None:
        return environment.compiler
    from kernellab.tune.cluster import executor_of  # most tunings need none of it
    from kernellab.tune.remote import ExecutorPool

    pool = ExecutorPool(executor_of(options.executor))
    return Compiler(cast(Pool, pool), environment.compiler.folder, environment.compiler.timeout_s)


def complaints(compiler: Compiler, outcome: Outcome) -> list[str]:
    """Return what made an executor useless on the way; raise it if the tuning came to nothing for that."""
    failure = getattr(compiler.pool, "failure", None)
    if failure is not None and outcome.winner is None:
        raise failure
    return [] if failure is None else [failure.message]


def pool_of(environment: Environment, launches: Launches, options: Options) -> DevicePool | None:
    """Return the devices that measure; None where there is no GPU."""
    make = environment.make_bench
    if make is None:
        return None
    wanted: Sequence[int | None] = (None,) if options.devices is None else options.devices
    makers = [partial(make, launches, options.timeout_s, device) for device in wanted]
    devices = (environment.device.index,) if options.devices is None else options.devices
    return DevicePool(makers, devices, options.policy.at_once, options.policy.loser_factor)


WITHOUT_GPU = (
    "There is no GPU, so nothing was timed: the table has what each config needs. On a GPU it would also have times "
    "and a winner."
)


def tuned(
    environment: Environment, kernel: Kernel, grid: Any, args: tuple[Any, ...], meta: dict[str, Any], options: Options
) -> Tuning:
    """Tune a kernel for these arguments, which hold afterwards what they held before.

    Raises:
        UsageError: there are no configs, or the options are wrong.
        LaunchError: the arguments do not fit the kernel.
    """
    start_s = environment.clock()
    launches = Launches(kernel, grid, args, meta, environment.device.target)
    return carried_out(environment, prepared(environment, launches, options), options, start_s)


def carried_out(environment: Environment, tuning: PreparedTuning, options: Options, start_s: float) -> Tuning:
    """Measure what was prepared at ``start_s``; see `tuned`."""
    launches, plan, records = tuning.launches, tuning.planned, tuning.records
    take_reference(launches, tuning.first, options, times=environment.make_bench is not None)
    known = {} if environment.make_bench is None else tuning.known(options)
    search = _search(options, plan, partial(_start, records, known))
    compiler = compiler_of(environment, options)
    pool = pool_of(environment, launches, options)
    policy = _policy(options, launches)
    tuner = Tuner(
        search=search,
        prepare=lambda config: launches.of(config).job,
        stream=compiler.stream,
        pool=pool,
        policy=policy,
        clock=environment.clock,
        name=uuid.uuid4().hex[:12],
        bytes_of=partial(_moved, launches),
        flops_of=lambda config, compiled: arithmetic(launches.of(config), compiled).dot_flops,
        known=known,
        record=(lambda rows: None) if pool is None else records.add,
        kernel=launches.name,
        implementation=partial(implementation_of, launches),
        require=partial(require_outputs, launches),
        suggested=partial(_suggested, options.configs if plan.is_generated else None, limits_of(launches.target)),
        listed=() if plan.is_generated else plan.originals.keys(),
    )
    watched = nullcontext(unwatched) if environment.progress is None else environment.progress(launches.name)
    try:
        with watched as tuner.watch:
            outcome = tuner.run()
    finally:
        if pool is not None:
            pool.close()
    notes = [
        *environment.remarks,
        *launches.notes,
        *complaints(compiler, outcome),
        *(pool.notes if pool is not None else () if outcome.winner is None else (WITHOUT_GPU,)),
        *_remarks(outcome, is_timed=pool is not None),
        *filter(None, [remark_of(outcome.agreement) if outcome.agreement else ""]),
    ]
    version = environment.kernels.known(launches.kernel)
    facts = {**_facts(launches, options), "version": None if version is None else version.label}
    return _tuning(environment, launches, plan, outcome, records.key, environment.clock() - start_s, notes, facts)


def _moved(launches: Launches, config: Config, compiled: Compiled) -> int | None:
    """Return the bytes that a launch moves; note a declaration that contradicts what the kernel does."""
    from kernellab._triton.decorators import declared

    effects, stated = compiled.effects, declared(launches.kernel).restore_value
    if not effects.unknown:
        needless = [name for name in stated if name not in effects.mutated]
        launches.notes += [f"restore_value names {name}, which the kernel does not write" for name in needless]
    return moved_bytes(launches.of(config).arguments, compiled)


def _search(options: Options, plan: PlannedConfigs, start: Callable[[Fits], Config | None]) -> Search:
    """Return the search that is asked for. ``start`` gives the best known config of those that fit, for a descent."""
    if isinstance(options.search, Search) and not isinstance(options.search, type):
        return options.search
    if options.search not in SEARCHES:
        raise UsageError(choice_message("search", options.search, (*SEARCHES, "an object with ask() and tell()")))
    if options.search == "descent":
        space, first = options.configs if isinstance(options.configs, Space) else None, next(iter(plan.originals))
        names = first.values.keys()

        def allows(config: Config) -> bool:
            return config.values.keys() == names and (space is None or space.allows(config.values))

        return CoordinateDescent(start(allows) or first, allows)
    if options.search == "exhaustive":
        return Exhaustive(plan.originals)
    if not isinstance(options.configs, Space):
        raise UsageError(f"search={options.search!r} draws from a Space; pass configs=Space(...).")
    if options.search == "random":
        return Random(options.configs, options.count, random.Random(options.seed))
    return optuna_search(options.configs, options.count, options.seed)


def _start(records: Records, known: Mapping[Config, Row], fits: Fits) -> Config | None:
    """Return the best config that the store knows for such launches of a kernel, else for launches like these."""
    found = best_known(known or records.known(), fits)
    return found or best_nearby(records.history.measurements(records.version_id), records.key, fits)


def _suggested(given: Any, limits: DeviceLimits | None, config: Config, row: Row) -> Config | None:
    """Return what the registers of a config that was compiled suggest to try; None for a list of the user's own."""
    if given is None or limits is None or not row.registers:
        return None
    if isinstance(given, Space):
        return relieved(given, config, row.registers, limits)
    return halved_for_registers(config, row.registers, limits)


def _policy(options: Options, launches: Launches) -> Policy:
    return replace(
        options.policy,
        budget_s=options.budget_s,
        budget_configs=options.budget_configs,
        max_spill_bytes=MOST_SPILLED_BYTES,
        seed=options.seed,
        reference=reference_identity(launches),
        outputs=joined_names(launches.outputs),
        longest_first=options.budget_s is None and options.budget_configs is None,  # else the first of the list count
    )


def _tuning(
    environment: Environment,
    launches: Launches,
    plan: PlannedConfigs,
    outcome: Outcome,
    key: str,
    seconds: float,
    notes: list[str],
    facts: Mapping[str, Any],
) -> Tuning:
    rows = {**outcome.rows, **plan.left_out}
    order = list(dict.fromkeys([*(config for config in plan.listed if config in rows), *rows]))
    places = {config: place for place, config in enumerate(order)}
    return Tuning(
        kernel=launches.name,
        rows=tuple(rows[config] for config in order),
        configs=tuple(launches.original(config) for config in order),
        winner=None if outcome.winner is None else places[outcome.winner],
        ties=tuple(places[config] for config in outcome.ties),
        seconds=seconds,
        from_cache=outcome.from_cache,
        provenance={**environment.device.facts, **facts, "key": key, "created": time.time()},
        notes=tuple(dict.fromkeys(notes)),
        agreement=outcome.agreement,
        is_interrupted=outcome.interrupted,
    )


def _facts(launches: Launches, options: Options) -> dict[str, Any]:
    """Return how it was tuned, for who reads the numbers later."""
    return {
        "search": options.search,
        "seed": options.seed,
        "timing": "CUDA graph, flushed L2" if launches.manner.by_graph else "launches, flushed L2",
        "check": None if options.check is None else options.check.text,
        "outputs": None if launches.outputs is None else sorted(launches.outputs),
        "closure": launches.closure_digest,
    }


def _remarks(outcome: Outcome, *, is_timed: bool) -> list[str]:
    if not outcome.interrupted:
        return []
    if is_timed:
        return ["The tuning was interrupted; this is the best so far."]
    left = sum(row.reason == STOPPED for row in outcome.rows.values())
    return [f"The tuning was interrupted; {left} of {len(outcome.rows)} configs were not compiled."]

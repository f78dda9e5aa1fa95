"""One tuning: its environment, its configs and stored rows, the run, and the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from kernellab._triton.kernel import autotune_settings, prune_configs
from kernellab.compile.cache import Compiler
from kernellab.errors import UsageError, value_text
from kernellab.launch.runtime import Interpret
from kernellab.registry import Registry
from kernellab.store import Version
from kernellab.store.columns import Status
from kernellab.target import limits_of
from kernellab.timing.bench import Bench
from kernellab.timing.config import Config, Space, configs_of
from kernellab.timing.hooks import sets_blocks_alone
from kernellab.timing.launches import Launches, with_zeros
from kernellab.timing.provenance import Device, key_fields, key_of
from kernellab.tune.config_runs import SECONDS_AT_MOST, BitCheck, CpuCheck, ExactCheck, OutputsOf, outputs_on_cpu
from kernellab.tune.device_pool import DevicePool
from kernellab.tune.options import Options
from kernellab.tune.predicted_search import PredictedSearch
from kernellab.tune.progress import Watch, ignore_progress
from kernellab.tune.result import WITHOUT_GPU, Records, Row, Tuning
from kernellab.tune.rows import PredictAll, Predictor, joined_names, reference_identity, row_predictor, with_left_rows
from kernellab.tune.search import best_start, search_of, suggest_for_registers
from kernellab.tune.tuner import Tuner
from kernellab.workers.worker import Pool

MakeBench = Callable[[Launches, float, int | None], Bench]
"""Makes the bench of a device: launches, timeout of each config in seconds, GPU number (None for the current one)."""

Progress = Callable[[str], AbstractContextManager[Watch]]


@dataclass(frozen=True, slots=True)
class Environment:
    """The compiler, registry, device and benches of a tuning; without ``make_bench`` nothing is timed.

    Then ``interpret``, if given, runs configs on the CPU to compare them with a reference, and ``predict`` predicts
    their times. ``outputs_on_gpu``, if given, launches configs there on copies, to compare the bits of their outputs.
    ``progress`` returns a context that displays a tuning; ``remarks`` are added to the notes of every
    tuning.
    """

    compiler: Compiler
    kernels: Registry
    device: Device
    make_bench: MakeBench | None
    clock: Callable[[], float] = time.perf_counter
    progress: Progress | None = None
    interpret: Interpret | None = None
    predict: PredictAll | None = None
    remarks: tuple[str, ...] = ()
    outputs_on_gpu: OutputsOf | None = None


def prepare_launches(
    environment: Environment,
    launches: Launches,
    options: Options,
    version: Version | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Records:
    """Set the configs and outputs of launches that are to be tuned; return the stored rows under their key.

    ``version`` is the kernel's, if the caller knows it. ``sizes`` are those of a case of a tuning over sizes; they are
    part of its key, whatever the autotuner's ``key`` is.

    Raises:
        UsageError: there are no configs, or the options are wrong.
        LaunchError: the arguments do not fit the kernel.
    """
    _set_configs(launches, _requested_configs(launches, options.configs))
    names = options.outputs
    if names is not None and (isinstance(names, str) or not names or not all(isinstance(n, str) for n in names)):
        raise UsageError(f'outputs is {value_text(names)}; expected names of arguments, such as ("out_ptr",).')
    launches.outputs = None if names is None else frozenset(names)
    known = version or environment.kernels.current_version(launches.kernel)
    first = next(iter(launches.originals))
    key = key_of(key_fields(launches, first, environment.device, sizes))
    return Records(environment.kernels.store.history, known.id, key, environment.device.name)


def known_rows(launches: Launches, options: Options, records: Records) -> dict[Config, Row]:
    """Return the stored rows that hold for a tuning; none for a ``fresh`` one.

    Their outputs were compared with the same reference values, or with each other. Rows of configs that were pruned
    since they spill hold for generated lists only.
    """
    if options.fresh:
        return {}
    wanted, outputs = reference_identity(launches), joined_names(launches.outputs)

    def holds(row: Row) -> bool:
        if row.status is Status.PRUNED:
            return options.is_generated
        if row.status not in {Status.OK, Status.WRONG, Status.DIFFERS}:
            return True
        if wanted or row.status is Status.WRONG:  # without a reference, nothing is wrong
            return bool(wanted) and row.checked == wanted
        return bool(row.checked) or row.outputs == outputs

    return {config: row for config, row in records.latest_rows().items() if holds(row)}


def candidates_of(launches: Launches, configs: Space | Sequence[Any] | None) -> dict[Config, Any]:
    """Return the `triton.Config`s to try by their values, including those that pruning drops for some arguments.

    Raises:
        UsageError: there are no configs.
    """
    originals: dict[Config, Any] = {}
    for config in _requested_configs(launches, configs):
        originals.setdefault(launches.effective(config), config)
    return originals


def _requested_configs(launches: Launches, configs: Space | Sequence[Any] | None) -> list[Any]:
    """Return the `triton.Config`s of a call, or of the kernel's autotuner; `UsageError` where neither has any."""
    requested = configs if configs is not None else autotune_settings(launches.kernel).configs
    if configs is None and not requested:
        raise UsageError(
            f"{launches.name} has no configs; pass configs=[triton.Config(...), ...], or a Space of values."
        )
    return configs_of(requested)


def _set_configs(launches: Launches, configs: Sequence[Any]) -> None:
    """Set the configs and hooks of launches, and the reasons for those that pruning functions drop."""
    kept, reasons = prune_configs(launches.kernel, configs, launches.args, launches.meta)
    values = {id(config): launches.effective(config) for config in configs}
    originals: dict[Config, Any] = {}
    for config in kept:
        originals.setdefault(values[id(config)], config)
    tuner = autotune_settings(launches.kernel)
    hooks = list({id(config.pre_hook): config.pre_hook for config in originals.values()}.values())
    is_called = any(hook is not None and not sets_blocks_alone(hook) for hook in hooks)
    launches.originals = originals
    launches.common_hook = hooks[0] if len(hooks) == 1 else None
    launches.has_hooks = is_called or tuner.pre_hook is not None or tuner.post_hook is not None
    launches.listed = tuple(dict.fromkeys(values.values()))
    launches.pruned = {values[number]: reason for number, reason in reasons.items()}
    if (equal := len(configs) - len(launches.listed)) > 0:
        launches.notes.append(f"{equal} of the {len(configs)} configs are equal to another of them")


def tune_launches(environment: Environment, launches: Launches, options: Options) -> Tuning:
    """Tune a kernel for the arguments of its launches; they have the same values afterwards.

    Raises:
        UsageError: there are no configs, or the options are wrong.
        LaunchError: the arguments do not fit the kernel.
    """
    start_s = environment.clock()
    records = prepare_launches(environment, launches, options)
    return run_tuning(environment, launches, options, records, start_s)


def run_tuning(
    environment: Environment, launches: Launches, options: Options, records: Records, start_s: float
) -> Tuning:
    """Run a tuning of prepared launches that started at ``start_s``; see `tune_launches`."""
    _set_reference(launches, options, environment)
    check = _cpu_check(environment, launches, options)
    known = {} if environment.make_bench is None else known_rows(launches, options, records)
    start, most = partial(best_start, records, known), options.budget_configs or 64
    compiler = _compiler(environment, options)
    pool = _pool(environment, launches, options)
    predictor = None if pool is not None or environment.predict is None else Predictor(environment.predict)
    wanted = _predicted_search(environment, launches, options, compiler, known, predictor)
    generated = options.configs if options.is_generated else None
    tuner = Tuner(
        launches,
        options,
        wanted or search_of(options.search, options.configs, launches.originals, most, options.seed, start),
        compiler,
        pool,
        records,
        environment.clock,
        known,
        partial(suggest_for_registers, None if wanted else generated, limits_of(launches.target)),
        check,
        predictor,
        exact=_exact_check(environment, launches, options),
        bits=_bit_check(environment, launches, options),
    )
    watched = nullcontext(ignore_progress) if environment.progress is None else environment.progress(launches.name)
    try:
        with watched as tuner.watch:
            tuning = tuner.run()
            if wanted is not None:
                tuning = with_left_rows(tuning, wanted.left, launches)
    finally:
        if pool is not None:
            pool.close()
    if wanted is not None and wanted.note:
        launches.notes.append(wanted.note)
    predicted_for = {} if predictor is None or not predictor.device else {"predicted_for": predictor.device}
    notes = [
        *environment.remarks,
        *launches.notes,
        *(runs.note for runs in (check, tuner.exact, tuner.bits) if runs is not None),
        *_executor_notes(compiler, tuning),
        *(pool.notes if pool is not None else () if tuning.winner is None else (WITHOUT_GPU,)),
        *(() if predictor is None else predictor.notes),
        *tuning.notes,
    ]
    return replace(
        tuning,
        seconds=environment.clock() - start_s,
        provenance={**_provenance(environment, launches, options, records), **predicted_for},
        notes=tuple(dict.fromkeys(notes)),
    )


def _predicted_search(
    environment: Environment,
    launches: Launches,
    options: Options,
    compiler: Compiler,
    known: Mapping[Config, Row],
    predictor: Predictor | None,
) -> PredictedSearch | None:
    """Return the search by predicted times if the options ask for it; `UsageError` if nothing predicts times."""
    if options.search != "predicted":
        return None
    if environment.predict is None:
        raise UsageError("search='predicted' is for lab.tune; use another search here.")
    predictor = predictor or Predictor(environment.predict)
    may_spill = not options.is_generated
    return PredictedSearch(
        launches.originals,
        row_predictor(launches, compiler, predictor, may_spill=may_spill),
        options.budget_configs,
        options.seed,
        known=[config for config in launches.originals if config in known],
        measures=environment.make_bench is not None,
    )


def _provenance(environment: Environment, launches: Launches, options: Options, records: Records) -> dict[str, Any]:
    version = environment.kernels.known_version(launches.kernel)
    return {
        **environment.device.facts,
        "search": options.search,
        "seed": options.seed,
        "timing": "CUDA graph, flushed L2" if launches.manner.by_graph else "launches, flushed L2",
        "check": None if options.check is None else options.check.text,
        "outputs": None if launches.outputs is None else sorted(launches.outputs),
        "closure": launches.closure_digest,
        "version": None if version is None else version.label,
        "key": records.key,
        "created": time.time(),
    }


def _cpu_check(environment: Environment, launches: Launches, options: Options) -> CpuCheck | None:
    """Return the comparison with the reference on the CPU; None without a reference, or where a GPU measures."""
    if environment.make_bench is not None or environment.interpret is None or launches.reference is None:
        return None
    left_s = SECONDS_AT_MOST if options.budget_s is None else min(options.budget_s, SECONDS_AT_MOST)
    effects, clock = environment.compiler.effects, environment.clock
    return CpuCheck(launches, effects, options.timeout_s, clock, left_s, interpret=environment.interpret)


def _exact_check(environment: Environment, launches: Launches, options: Options) -> ExactCheck | None:
    """Return the comparison in the algebra if the options ask for it; `UsageError` if nothing launches on the CPU."""
    if not options.exact:
        return None
    if environment.interpret is None:
        raise UsageError("exact=True compares configs on the CPU, and nothing launches them there; use lab.tune.")
    effects, clock = environment.compiler.effects, environment.clock
    return ExactCheck(launches, effects, options.timeout_s, clock, interpret=environment.interpret)


def _bit_check(environment: Environment, launches: Launches, options: Options) -> BitCheck | None:
    """Return the grouping by bits of outputs if the options ask for it; `UsageError` if nothing launches configs."""
    if not options.bitwise:
        return None
    is_on_gpu, outputs_of = environment.make_bench is not None, environment.outputs_on_gpu
    if not is_on_gpu:
        outputs_of = None if environment.interpret is None else partial(outputs_on_cpu, environment.interpret)
    if outputs_of is None:
        raise UsageError("bitwise=True compares the bits of outputs, and nothing launches configs here; use lab.tune.")
    effects, clock = environment.compiler.effects, environment.clock
    return BitCheck(launches, effects, options.timeout_s, clock, is_on_gpu=is_on_gpu, outputs_of=outputs_of)


def _set_reference(launches: Launches, options: Options, environment: Environment) -> None:
    """Compute the reference values; note options of the autotuner that are not followed."""
    tuner = autotune_settings(launches.kernel)
    if options.check is not None:
        config = next(iter(launches.originals))
        constexprs = {name for name, _ in config.parameters}
        arguments = {n: v for n, v in launches.of(config).arguments.items() if n not in constexprs}
        options.check.require(arguments)
    times = environment.make_bench is not None
    if options.check is not None and not times and environment.interpret is None:
        launches.notes.append("The configs were not checked: nothing launches them here.")
    elif options.check is not None:
        from kernellab.checking.reference import reference_of  # most tunings need none of it

        launches.reference = reference_of(options.check, with_zeros(arguments, tuner.reset_to_zero))
    if times and tuner.by_graph:
        hooks = ", and hooks are called before each replay" if launches.has_hooks else ""
        launches.notes.append(
            f"timed by replaying CUDA graphs, as use_cuda_graph asks; a graph holds one launch{hooks}"
        )
    if tuner.has_own_bench:
        launches.notes.append("do_bench of the autotuner was not called: the lab times configs against each other")


def _compiler(environment: Environment, options: Options) -> Compiler:
    """Return the compiler of the lab, or one that compiles on the executor."""
    if options.executor is None:
        return environment.compiler
    from kernellab.tune.executors import ExecutorPool, executor_of  # most tunings need none of it

    pool = ExecutorPool(executor_of(options.executor))
    return Compiler(cast(Pool, pool), environment.compiler.folder, environment.compiler.timeout_s)


def _executor_notes(compiler: Compiler, tuning: Tuning) -> list[str]:
    """Return a note about an executor that failed; raise its error if the tuning has no winner."""
    failure = getattr(compiler.pool, "failure", None)
    if failure is not None and tuning.winner is None:
        raise failure
    return [] if failure is None else [failure.message]


def _pool(environment: Environment, launches: Launches, options: Options) -> DevicePool | None:
    """Return the devices that measure; None without a GPU."""
    if environment.make_bench is None:
        return None
    make = partial(environment.make_bench, launches, options.timeout_s)
    makers = [partial(make, device) for device in options.devices or (None,)]
    return DevicePool(makers, options.devices or (environment.device.index,), options.at_once, options.loser_factor)

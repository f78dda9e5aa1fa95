"""One tuning: its options and environment, its configs and stored rows, the run, and the result."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from kernellab._triton.kernel import Kernel, autotune_settings, prune_configs
from kernellab.compile.cache import Compiler
from kernellab.compile.types import Compiled
from kernellab.errors import UsageError, value_text
from kernellab.launch.arguments import memory_of
from kernellab.launch.runtime import Interpret
from kernellab.registry import Registry
from kernellab.store import Version
from kernellab.store.columns import Status
from kernellab.target import limits_of
from kernellab.timing.config import Config, Space, configs_of
from kernellab.timing.hooks import sets_blocks_alone
from kernellab.timing.launches import (
    Bench,
    Launches,
    accessed_arguments,
    arithmetic,
    implementation_of,
    moved_bytes,
    with_zeros,
)
from kernellab.timing.provenance import Device, key_fields, key_of
from kernellab.tune.agreement import disagreement_note
from kernellab.tune.cpu_check import SECONDS_AT_MOST, CpuCheck
from kernellab.tune.device_pool import DevicePool
from kernellab.tune.finals import Policy
from kernellab.tune.result import Records, Row, Tuning, Watch, ignore_progress
from kernellab.tune.search import MOST_SPILLED_BYTES, Search, SearchName, best_start, search_of, suggest_for_registers
from kernellab.tune.tuner import STOPPED, Outcome, Tuner
from kernellab.workers.worker import Pool

if TYPE_CHECKING:
    from kernellab.checking.reference import ReferenceFunction

WITHOUT_GPU = (
    "There is no GPU, so nothing was timed: the table has what each config needs. On a GPU it would also have times "
    "and a winner."
)


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a tuning.

    ``configs`` is a list of `triton.Config`, or a `Space`; None takes those of the kernel's autotuner. ``timeout_s``
    limits each config on the GPU, ``budget_s`` and ``budget_configs`` the whole. ``search`` may also be a `Search` of
    one's own; ``count`` is how many configs a random or Optuna search tries. ``fresh`` measures again what the store
    knows. With a ``check``, outputs are compared with its values; ``outputs`` names the arguments that are compared,
    with these or with each other. ``executor`` compiles in place of the lab's own workers. ``devices`` are the GPUs
    that measure, the first of which holds the final; None is the current one.

    Of a generated list, a `Space` or one of `workloads`, what spills much is not measured while something else is left,
    and where registers keep the device from being full, half of the block is tried too, but not beyond what a search
    asks for within ``budget_configs``. A list of `triton.Config` is
    measured as it is. ``policy`` says how much is measured of a config and in the final; its bounds on the search, and
    what outputs are compared with, are those of these options.
    """

    configs: Space | Sequence[Any] | None = None
    timeout_s: float = 10.0
    search: SearchName | Search = "exhaustive"
    count: int = 64
    budget_s: float | None = None
    budget_configs: int | None = None
    fresh: bool = False
    seed: int = 0
    check: ReferenceFunction | None = None
    outputs: Sequence[str] | None = None
    executor: Executor | None = None
    devices: Sequence[int] | None = None
    policy: Policy = field(default_factory=Policy)


MakeBench = Callable[[Launches, float, int | None], Bench]
"""Makes the bench of a device: launches, timeout of each config in seconds, GPU number (None for the current one)."""

Progress = Callable[[str], AbstractContextManager[Watch]]


@dataclass(frozen=True, slots=True)
class Environment:
    """The compiler, registry, device and benches of a tuning; without ``make_bench`` nothing is timed.

    Then ``interpret``, if given, runs configs on the CPU to compare them with a reference. ``progress`` returns a
    context that displays a tuning; ``remarks`` are added to the notes of every tuning.
    """

    compiler: Compiler
    kernels: Registry
    device: Device
    make_bench: MakeBench | None
    clock: Callable[[], float] = time.perf_counter
    progress: Progress | None = None
    interpret: Interpret | None = None
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PreparedTuning:
    """A tuning that is ready to run: launches, configs, and the stored rows under its key.

    ``launches.originals`` are the configs to try, ``listed`` all configs, ``left_out`` the rows of pruned ones.
    ``is_generated`` for configs of a `Space` or of `workloads`: some may be skipped, and variants added.
    """

    launches: Launches
    listed: tuple[Config, ...]
    left_out: Mapping[Config, Row]
    is_generated: bool
    records: Records

    def known_rows(self, options: Options) -> dict[Config, Row]:
        """Return the stored rows that hold for this tuning; none for a ``fresh`` one.

        Their outputs were compared with the same reference values, or with each other. Rows of configs that were pruned
        since they spill hold for generated lists only.
        """
        if options.fresh:
            return {}
        wanted, outputs = reference_identity(self.launches), joined_names(self.launches.outputs)

        def holds(row: Row) -> bool:
            if row.status is Status.PRUNED:
                return self.is_generated
            if row.status not in {Status.OK, Status.WRONG, Status.DIFFERS}:
                return True
            if wanted or row.status is Status.WRONG:  # without a reference, nothing is wrong
                return bool(wanted) and row.checked == wanted
            return bool(row.checked) or row.outputs == outputs

        return {config: row for config, row in self.records.latest_rows().items() if holds(row)}


def prepare_tuning(
    environment: Environment,
    launches: Launches,
    options: Options,
    version: Version | None = None,
    sizes: Mapping[str, int] | None = None,
) -> PreparedTuning:
    """Prepare a tuning of launches; ``version`` is the kernel's, if the caller knows it.

    ``sizes`` are those of a case of a tuning over sizes; they are part of its key, whatever the autotuner's ``key`` is.

    Raises:
        UsageError: there are no configs, or the options are wrong.
        LaunchError: the arguments do not fit the kernel.
    """
    given = _requested_configs(launches, options.configs)
    listed, left_out = _set_configs(launches, configs_of(given))
    launches.outputs = _output_names(options.outputs)
    known = version or environment.kernels.current(launches.kernel)
    first = next(iter(launches.originals))
    key = key_of(key_fields(launches, first, environment.device, sizes))
    records = Records(environment.kernels.store.history, known.id, key, environment.device.name)
    own = isinstance(given, Space) or (isinstance(given, Sequence) and all(isinstance(each, Config) for each in given))
    return PreparedTuning(launches, listed, left_out, own, records)


def candidates_of(launches: Launches, configs: Space | Sequence[Any] | None) -> dict[Config, Any]:
    """Return the `triton.Config`s to try by their values, including those that pruning drops for some arguments.

    Raises:
        UsageError: there are no configs.
    """
    originals: dict[Config, Any] = {}
    for config in configs_of(_requested_configs(launches, configs)):
        originals.setdefault(launches.effective(config), config)
    return originals


def _requested_configs(launches: Launches, configs: Space | Sequence[Any] | None) -> Any:
    """Return the configs of a call, or of the kernel's autotuner.

    Raises:
        UsageError: neither does.
    """
    given = configs if configs is not None else autotune_settings(launches.kernel).configs
    if configs is None and not given:
        raise UsageError(
            f"{launches.name} has no configs; pass configs=[triton.Config(...), ...], or a Space of values."
        )
    return given


def _set_configs(launches: Launches, configs: Sequence[Any]) -> tuple[tuple[Config, ...], dict[Config, Row]]:
    """Set the configs and hooks of launches; return all configs by their values, and the rows of pruned ones."""
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
    listed = tuple(dict.fromkeys(values.values()))
    if len(listed) < len(configs):
        launches.notes.append(
            f"{len(configs) - len(listed)} of the {len(configs)} configs are equal to another of them"
        )
    return listed, {values[i]: Row(values[i], Status.PRUNED, reason) for i, reason in reasons.items()}


def _output_names(given: Sequence[str] | None) -> frozenset[str] | None:
    """Return the names of the arguments to compare; None for all.

    Raises:
        UsageError: they are no names.
    """
    if given is None:
        return None
    if isinstance(given, str) or not given or not all(isinstance(name, str) for name in given):
        raise UsageError(f'outputs is {value_text(given)}; expected names of arguments, such as ("out_ptr",).')
    return frozenset(given)


def reference_identity(launches: Launches) -> str:
    """Return the identity of the reference and the compared outputs; "" without a reference."""
    if launches.reference is None:
        return ""
    return " ".join(filter(None, (launches.reference.identity, joined_names(launches.outputs))))


def joined_names(outputs: frozenset[str] | None) -> str:
    """Return names of outputs as rows store them: sorted, with commas; "" for none."""
    return ",".join(sorted(outputs or ()))


def tune_kernel(
    environment: Environment, kernel: Kernel, grid: Any, args: tuple[Any, ...], meta: dict[str, Any], options: Options
) -> Tuning:
    """Tune a kernel for these arguments; they have the same values afterwards.

    Raises:
        UsageError: there are no configs, or the options are wrong.
        LaunchError: the arguments do not fit the kernel.
    """
    start_s = environment.clock()
    launches = Launches(kernel, grid, args, meta, environment.device.target)
    return run_tuning(environment, prepare_tuning(environment, launches, options), options, start_s)


def run_tuning(environment: Environment, tuning: PreparedTuning, options: Options, start_s: float) -> Tuning:
    """Run a prepared tuning that started at ``start_s``; see `tune_kernel`."""
    launches, records, originals = tuning.launches, tuning.records, tuning.launches.originals
    _set_reference(launches, next(iter(originals)), options, environment)
    check = _cpu_check(environment, launches, options)
    known = {} if environment.make_bench is None else tuning.known_rows(options)
    start = partial(best_start, records, known)
    search = search_of(options.search, options.configs, originals, options.count, options.seed, start)
    compiler = _compiler(environment, options)
    pool = _pool(environment, launches, options)
    tuner = Tuner(
        search=search,
        prepare=lambda config: launches.of(config).job,
        stream=compiler.stream,
        pool=pool,
        policy=_policy(options, launches),
        clock=environment.clock,
        name=uuid.uuid4().hex[:12],
        bytes_of=partial(_moved_bytes, launches),
        flops_of=lambda config, compiled: arithmetic(launches.of(config), compiled).dot_flops,
        known=known,
        record=(lambda rows: None) if pool is None else records.add,
        kernel=launches.name,
        implementation=partial(implementation_of, launches),
        require=partial(_require_outputs, launches),
        suggest=partial(
            suggest_for_registers, options.configs if tuning.is_generated else None, limits_of(launches.target)
        ),
        listed=() if tuning.is_generated else originals.keys(),
        check=None if check is None else check.verdict,
    )
    watched = nullcontext(ignore_progress) if environment.progress is None else environment.progress(launches.name)
    try:
        with watched as tuner.watch:
            outcome = tuner.run()
    finally:
        if pool is not None:
            pool.close()
    notes = [
        *environment.remarks,
        *launches.notes,
        *(() if check is None else (check.note,)),
        *_executor_notes(compiler, outcome),
        *(pool.notes if pool is not None else () if outcome.winner is None else (WITHOUT_GPU,)),
        *_outcome_notes(outcome, is_timed=pool is not None),
    ]
    return _result(environment, tuning, options, outcome, environment.clock() - start_s, notes)


def _cpu_check(environment: Environment, launches: Launches, options: Options) -> CpuCheck | None:
    """Return the comparison with the reference on the CPU; None without a reference, or where a GPU measures."""
    if environment.make_bench is not None or environment.interpret is None or launches.reference is None:
        return None
    left_s = SECONDS_AT_MOST if options.budget_s is None else min(options.budget_s, SECONDS_AT_MOST)
    given = (environment.interpret, launches, launches.reference, options.timeout_s)
    return CpuCheck(*given, left_s, environment.clock)


def _set_reference(launches: Launches, config: Config, options: Options, environment: Environment) -> None:
    """Compute the reference values; note options of the autotuner that are not followed."""
    tuner = autotune_settings(launches.kernel)
    if options.check is not None:
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


def _executor_notes(compiler: Compiler, outcome: Outcome) -> list[str]:
    """Return a note about an executor that failed; raise its error if the tuning has no winner."""
    failure = getattr(compiler.pool, "failure", None)
    if failure is not None and outcome.winner is None:
        raise failure
    return [] if failure is None else [failure.message]


def _pool(environment: Environment, launches: Launches, options: Options) -> DevicePool | None:
    """Return the devices that measure; None without a GPU."""
    make = environment.make_bench
    if make is None:
        return None
    wanted: Sequence[int | None] = (None,) if options.devices is None else options.devices
    makers = [partial(make, launches, options.timeout_s, device) for device in wanted]
    devices = (environment.device.index,) if options.devices is None else options.devices
    return DevicePool(makers, devices, options.policy.at_once, options.policy.loser_factor)


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


def _moved_bytes(launches: Launches, config: Config, compiled: Compiled) -> int | None:
    """Return the bytes that a launch moves; note a `restore_value` of an argument that is not written."""
    effects, stated = compiled.effects, autotune_settings(launches.kernel).restore_value
    if not effects.unknown:
        needless = [name for name in stated if name not in effects.mutated]
        launches.notes += [f"restore_value names {name}, which the kernel does not write" for name in needless]
    return moved_bytes(launches.of(config).arguments, compiled)


def _require_outputs(launches: Launches, config: Config, compiled: Compiled) -> None:
    """Raise if ``outputs`` names an argument that the kernel does not write.

    Raises:
        UsageError: one is.
    """
    effects = compiled.effects
    if launches.outputs is None or effects.through:  # what lies behind addresses has names once it is reached
        return
    mutated = accessed_arguments(effects)[0]
    written = [name for name in memory_of(launches.of(config).arguments) if name in mutated]
    unknown = sorted(launches.outputs - set(written))
    if unknown:
        names = ", ".join(written) or "nothing"
        raise UsageError(f"outputs names {unknown[0]}, and {launches.name} writes {names}.")


def _outcome_notes(outcome: Outcome, *, is_timed: bool) -> list[str]:
    notes = []
    if outcome.interrupted and is_timed:
        notes.append("The tuning was interrupted; this is the best so far.")
    elif outcome.interrupted:
        left = sum(row.reason == STOPPED for row in outcome.rows.values())
        notes.append(f"The tuning was interrupted; {left} of {len(outcome.rows)} configs were not compiled.")
    if outcome.agreement is not None and (remark := disagreement_note(outcome.agreement)):
        notes.append(remark)
    return notes


def _result(
    environment: Environment,
    tuning: PreparedTuning,
    options: Options,
    outcome: Outcome,
    seconds: float,
    notes: Sequence[str],
) -> Tuning:
    launches = tuning.launches
    rows = {**outcome.rows, **tuning.left_out}
    order = list(dict.fromkeys([*(config for config in tuning.listed if config in rows), *rows]))
    places = {config: place for place, config in enumerate(order)}
    version = environment.kernels.known(launches.kernel)
    return Tuning(
        kernel=launches.name,
        rows=tuple(rows[config] for config in order),
        configs=tuple(launches.original(config) for config in order),
        winner=None if outcome.winner is None else places[outcome.winner],
        ties=tuple(places[config] for config in outcome.ties),
        seconds=seconds,
        from_cache=outcome.from_cache,
        provenance={
            **environment.device.facts,
            "search": options.search,
            "seed": options.seed,
            "timing": "CUDA graph, flushed L2" if launches.manner.by_graph else "launches, flushed L2",
            "check": None if options.check is None else options.check.text,
            "outputs": None if launches.outputs is None else sorted(launches.outputs),
            "closure": launches.closure_digest,
            "version": None if version is None else version.label,
            "key": tuning.records.key,
            "created": time.time(),
        },
        notes=tuple(dict.fromkeys(notes)),
        agreement=outcome.agreement,
        is_interrupted=outcome.interrupted,
    )

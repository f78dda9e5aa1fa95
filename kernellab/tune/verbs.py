"""The tunings that a lab starts: of a call, of an autotuned launch, of recorded launches; then the winner's launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from kernellab._triton import VERSION
from kernellab._triton.kernel import Kernel, autotune_settings, supplied_names, variant_with
from kernellab.errors import KernellabError
from kernellab.launch.arguments import memory_of
from kernellab.launch.bound_launch import samples_before
from kernellab.launch.calls import UserCall
from kernellab.launch.recording import LaunchRecord, Recorder
from kernellab.launch.run import Run
from kernellab.launch.runtime import Runtime
from kernellab.registry import Session, recorded_grid, recorded_launch_of, remember
from kernellab.store import LaunchedBy, RecordedLaunch, Version
from kernellab.store.columns import Status
from kernellab.store.decoding import launch_digest
from kernellab.target import device_name, parse_target
from kernellab.timing.bench import Bench
from kernellab.timing.launches import Implementation, Launches, implementation_of, outputs_on_copies, set_to_zero
from kernellab.timing.provenance import can_time, device_here, device_of
from kernellab.tune.device_pool import valid_devices
from kernellab.tune.options import Options
from kernellab.tune.result import Tuning
from kernellab.tune.run_tuning import Environment, tune_launches
from kernellab.workers.forks_and_interrupts import Interrupted
from kernellab.workers.worker import Pool

if TYPE_CHECKING:
    from kernellab.checking.reference import ReferenceFunction
    from kernellab.explain.prediction import Prediction
    from kernellab.tune.cluster_tuning import OpenEnvironment
    from kernellab.tune.proposal import ProposedSpace

TOO_LARGE = "The configs were not checked: what the kernel reads and changes was too large to be kept for it."


def environment_of(session: Session, device: int | None = None) -> Environment:
    """Return the environment of a lab; nothing is timed where it compiles for another target than the GPU's."""
    runtime = session.runtime
    return Environment(
        session.compiler,
        session.kernels,
        device_here(runtime, device),
        partial(_bench, runtime) if can_time(runtime) else None,
        progress=runtime.tuning_reporter,
        interpret=runtime.interpret,
        predict=partial(_predict, session, session.compiler.pool),
        outputs_on_gpu=partial(outputs_on_copies, runtime, "cuda"),
    )


def _predict(
    session: Session, pool: Pool | None, implementations: Sequence[Implementation]
) -> list[Prediction | KernellabError]:
    from kernellab.explain.devices import device_for
    from kernellab.explain.prediction_requests import predict_all  # a tuning on a GPU needs none of it

    device = device_for(session.target, session.model)
    return predict_all(pool, implementations, device, session.compiler.timeout_s)


def call_to_tune(
    session: Session, kernel: Kernel | str | int, grid: Any, args: tuple[Any, ...], meta: Mapping[str, Any]
) -> UserCall:
    """Return the call to tune with its bound kernel; of a kept kernel alone, its latest launch on new arguments.

    That has the grid function that the user wrote, if its text is known; else the numbers of the launch.

    Raises:
        UnknownName, UsageError, LaunchError: there is no such kernel, grid or launch.
    """
    from kernellab.registry.calls import call_in, is_recorded_call  # most tunings need none of it

    call = call_in(session, "tune", kernel, grid, args, meta)
    if not is_recorded_call(kernel, grid, args, meta):
        return call
    version = session.kernels.version(kernel)
    formula = recorded_grid(session.kernels.store, version)
    kept = session.kernels[version.id]
    own = {name: value for name, value in call.meta.items() if name not in supplied_names(kept)}
    written = formula is not None and not formula.inferred
    return UserCall(session.bind(kept), formula.grid_for if formula and written else call.grid, (), own)


def tune_and_launch(
    session: Session, launches: Launches, options: Options, opened: OpenEnvironment | None = None
) -> Tuning:
    """Tune a bound kernel; launch the winner once if configs were timed in this process.

    Without a GPU here, a process of the executor that owns one tunes, in the environment that ``opened`` returns there.

    Raises:
        UsageError, LaunchError: the configs, options or arguments do not fit the kernel.
    """
    if options.check is not None:
        from kernellab.checking.reference import check_of  # most tunings have none

        options = replace(options, check=check_of(options.check))
    if options.devices is not None:
        options = replace(options, devices=_device_indices(session.runtime, options.devices))
    proposed: ProposedSpace | None = None
    if options.configs is None and not autotune_settings(launches.kernel).configs:
        from kernellab.tune.proposing import propose_space  # most tunings have configs

        launches, proposed = propose_space(session.compiler, launches)
        options = replace(options, configs=proposed.configs if options.search == "exhaustive" else proposed.space)
    environment = environment_of(session, options.devices[0] if options.devices else None)
    if options.executor is not None:  # the lab's own workers are left alone
        environment = replace(environment, predict=partial(_predict, session, None))
    elsewhere = remote_tuning(environment, launches, options, opened)
    try:
        tuning = elsewhere or tune_launches(environment, launches, options)
    except KeyboardInterrupt:
        raise Interrupted("The tuning was interrupted before anything was known.") from None
    if elsewhere is not None:
        launches = launches.for_target(parse_target(elsewhere.provenance["target"]))
    if tuning.winner is not None:
        is_here = options.executor is not None and environment.make_bench is None
        pool = None if is_here else session.compiler.pool
        notes = _record_winner(session, launches, tuning, pool, launches_it=environment.make_bench is not None)
        tuning = replace(tuning, notes=(*tuning.notes, *notes))
    if proposed is None:
        return tuning
    provenance = {**tuning.provenance, "proposed": proposed.kind.name.lower()}
    return replace(tuning, notes=(*proposed.notes, *tuning.notes), provenance=provenance)


def _record_winner(
    session: Session, launches: Launches, tuning: Tuning, pool: Pool | None, *, launches_it: bool
) -> list[str]:
    """Record the launch of the winner, and launch it; of a trial, if it was neither timed nor is launched.

    A prediction decides nothing that is kept: of configs that were only predicted, the first that fits is recorded.
    The result is a note where the launch fails here, although the worker could time it.
    """
    notes: list[str] = []
    index = _first_fitting(tuning) if tuning.is_predicted else tuning.winner or 0
    row, config = tuning.rows[index], tuning.configs[index]
    launch = launches.of(row.config, config)
    if launches_it:
        # it is remembered with its time
        launch.function.reported.add((launch.job.digest, getattr(launches.grid, "__code__", None)))
        _prepare_arguments(launches, config)
    compiled = session.compiler.compile(launch.job)
    seconds = (row.time_ms or 0.0) / 1e3
    record = LaunchRecord(
        kernel=launch.function,
        compiled=compiled,
        arguments=launch.arguments,
        grid=launch.grid,
        launches=int(launches_it),
        run=Run(compiled.kernel, launch.grid, seconds, {}, (), "gpu") if launches_it else None,
        given_grid=launches.grid,
        owner=launches.kernel,
        before=samples_before(launch.arguments, compiled.effects),
    )
    if launches_it:
        variant = variant_with(launches.kernel, launches.args, launches.meta, config)
        try:
            variant.function[launches.grid](*launches.args, **variant.meta)
        except KernellabError as exc:  # the tuning is not lost
            notes.append(f"The winner was not launched: {exc.message}")
            record = replace(record, launches=0, run=None)
    is_launch = launches_it or row.time_ms is not None
    by: LaunchedBy = "launch" if is_launch else "run"
    version = remember(session.kernels, launches.kernel, record, by=by)
    if version is not None:
        recorded = replace(recorded_launch_of(record), by=by)
        _keep_snapshot(
            session, version, recorded, implementation_of(launches, row.config, compiled), pool, is_now=not launches_it
        )
    return notes


def _keep_snapshot(
    session: Session,
    version: Version,
    launch: RecordedLaunch,
    winner: Implementation,
    pool: Pool | None,
    *,
    is_now: bool,
) -> None:
    """Keep what this Triton made of the winner, for `lab.upgrade` under a later one; a worker of the pool looks at it.

    On a GPU, where that takes longer than many a tuning, the notebook goes on meanwhile, and what depends on the
    contents of the arguments is not kept: these may change. ``winner`` is let go of, so that they may be freed.
    """
    store, compiler, target, left = session.kernels.store, session.compiler, winner.kernel.target, [winner]

    def keep() -> None:
        from kernellab.explain.devices import device_of_table
        from kernellab.explain.prediction_requests import snapshot_job

        device = device_of_table(target)
        job = snapshot_job(left[0] if is_now else left.pop(), launch, device)
        digest = launch_digest(launch)
        if (digest, VERSION) in store.snapshots.of_version(version.id):
            return
        # `lab.upgrade` compares the resources, which are kept with every launch; Ctrl-C ends this, and costs no tuning
        with suppress(KernellabError, KeyboardInterrupt):
            snapshot = None if job is None or pool is None else pool.run(job, compiler.timeout_s)
            if snapshot is None and is_now:
                from kernellab.explain.snapshot import snapshot_of  # which few kernels need here

                snapshot = snapshot_of(left.pop(), device, launch)
            if snapshot is not None:
                store.snapshots.add(version.id, digest, snapshot)

    if pool is None or is_now:
        keep()
    else:
        pool.run_in_background(keep)


def _first_fitting(tuning: Tuning) -> int:
    """Return the first config of a predicted tuning that can run; of those that agree with a reference, if any do."""
    checked = tuning.rows[tuning.winner or 0].checked
    fitting = (i for i, row in enumerate(tuning.rows) if row.status is Status.NOT_TIMED and row.checked == checked)
    return next(fitting, tuning.winner or 0)


def remote_tuning(
    environment: Environment, launches: Launches, options: Options, opened: OpenEnvironment | None
) -> Tuning | None:
    """Tune in a process of the executor; None without such a process, or where this one measures."""
    if opened is None or options.executor is None or environment.make_bench is not None:
        return None
    from kernellab.tune.cluster_tuning import tune_elsewhere  # most tunings need none of it

    return tune_elsewhere(environment, opened, launches, options)


def best_config(
    session: Session, kernel: Kernel, args: tuple[Any, ...], meta: dict[str, Any], timeout_s: float | None
) -> Any:
    """Return the config to launch an autotuned kernel with on the GPU, whatever target the lab compiles for.

    Raises:
        CannotRun: no config works.
    """
    from kernellab._triton.drivers import gpu_target_of_machine

    target = gpu_target_of_machine()
    assert target is not None, "only launches on a GPU ask"
    runtime = session.runtime
    progress = None if runtime.tuning_reporter is None else partial(runtime.tuning_reporter, silent=True)
    device = device_of(target, has_gpu=True)
    environment = Environment(session.compiler, session.kernels, device, partial(_bench, runtime), progress=progress)
    arguments = {name: value for name, value in meta.items() if name not in {"grid", "warmup"}}
    options = Options() if timeout_s is None else Options(timeout_s=timeout_s)
    return tune_launches(environment, Launches(kernel, meta["grid"], args, arguments, target), options).best


def best_of(session: Session, launches: Launches) -> Any:
    """Return the best config of an autotuned kernel for some launches; tunes where it is unknown.

    Raises:
        CannotRun: no config works.
    """
    environment = replace(environment_of(session), progress=None)  # whoever asks has a display of its own
    return tune_launches(environment, launches.for_target(environment.device.target), Options()).best


def tune_recorded_launches(
    session: Session, recorder: Recorder, checks: Mapping[int, ReferenceFunction]
) -> list[Tuning]:
    """Tune each autotuned kernel among recorded launches once; their tensors keep their values.

    Each tuning starts from the values before the launch. ``checks`` are references by the `id` of the record.
    """
    from kernellab.checking.check_launch import starting_values  # most tunings need none of it

    tunings: dict[int, Tuning] = {}
    for record in recorder.records.values():
        kernel = session.kernels.owner_of(record.kernel)
        if record.given_grid is None or not autotune_settings(kernel).configs or id(kernel) in tunings:
            continue
        supplied = supplied_names(kernel)
        arguments = {name: value for name, value in record.arguments.items() if name not in supplied}
        own, environment = checks.get(id(record)), environment_of(session)
        if own is not None and not recorder.undo.is_kept(record.last, _updated_by(kernel, record)):
            own, environment = None, replace(environment, remarks=(TOO_LARGE,))
        with starting_values(record, recorder, autotune_settings(kernel).reset_to_zero):
            launches = Launches(kernel, record.given_grid, (), arguments, environment.device.target)
            tunings[id(kernel)] = tune_launches(environment, launches, Options(check=own))
    return list(tunings.values())


def _updated_by(kernel: Kernel, record: LaunchRecord) -> set[str]:
    """Return the arguments that a kernel reads and changes, but those that a tuning sets to zero."""
    effects = record.compiled.effects
    updated = effects.mutated & effects.reads | effects.atomics
    everything = memory_of(record.arguments).keys()
    return set(everything if effects.unknown else updated) - set(autotune_settings(kernel).reset_to_zero)


def _prepare_arguments(launches: Launches, config: Any) -> None:
    """Zero what accumulates, and call the hooks of a winner, before its launch."""
    named, tuner = launches.given, autotune_settings(launches.kernel)
    set_to_zero(named, tuner.reset_to_zero)
    if config.pre_hook is not None:
        config.pre_hook({**named, **config.all_kwargs()})
    if tuner.pre_hook is not None:
        tuner.pre_hook({**named, **config.all_kwargs()}, reset_only=True)


def _bench(runtime: Runtime, launches: Launches, timeout_s: float, device: int | None) -> Bench:
    from kernellab.timing.gpu_bench import bench_of  # where all is known, nothing of it is needed

    return bench_of(launches, runtime.trials, timeout_s, device)


def _device_indices(runtime: Runtime, given: Sequence[int]) -> tuple[int, ...]:
    """Return the GPU numbers to measure on, each once; `UsageError` if one does not exist, or nothing is timed."""
    import torch  # a launch needs it anyway

    count = torch.cuda.device_count() if can_time(runtime) else 0
    return valid_devices(given, count, [device_name(index) for index in range(count)])

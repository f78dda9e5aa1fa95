"""What one tuning is given to work with: a reference, what is known, a compiler, benches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from kernellab.compiler import Compiler
from kernellab.tune.config import Config
from kernellab.tune.crew import Crew
from kernellab.tune.launches import Launches
from kernellab.tune.options import Options, Workshop
from kernellab.tune.result import Row, Status
from kernellab.worker import Pool

if TYPE_CHECKING:
    from kernellab.tune.tuner import Outcome


def take_reference(launches: Launches, config: Config, options: Options, *, times: bool) -> None:
    """Compute what the outputs are compared with; note what an autotuner asks for and does not get."""
    from kernellab._triton.tuning import declared

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


def usable(rows: Mapping[Config, Row], launches: Launches) -> dict[Config, Row]:
    """Return the known rows that hold here: outputs that were, or were not, compared with these reference values."""
    wanted = "" if launches.reference is None else launches.reference.identity

    def holds(row: Row) -> bool:
        if row.status not in {Status.OK, Status.WRONG} or row.checked == wanted:
            return True
        return not wanted and row.status is Status.OK

    return {config: row for config, row in rows.items() if holds(row)}


def compiler_of(workshop: Workshop, options: Options) -> Compiler:
    if options.executor is None:
        return workshop.compiler
    from kernellab.tune.remote import ExecutorPool  # most tunings need none of it

    pool = ExecutorPool(options.executor)
    return Compiler(cast(Pool, pool), workshop.compiler.folder, workshop.compiler.timeout_s)


def complaints(compiler: Compiler, outcome: Outcome) -> list[str]:
    """Return what made an executor useless on the way; raise it if the tuning came to nothing for that."""
    failure = getattr(compiler.pool, "failure", None)
    if failure is not None and outcome.winner is None:
        raise failure
    return [] if failure is None else [failure.message]


def crew_of(workshop: Workshop, launches: Launches, options: Options) -> Crew | None:
    if workshop.make_bench is None:
        return None
    if options.devices is None or workshop.bench_on is None:
        return Crew((workshop.make_bench(launches, options.timeout_s),), (workshop.device.index,))
    benches = [workshop.bench_on(launches, options.timeout_s, device) for device in options.devices]
    return Crew(benches, options.devices)

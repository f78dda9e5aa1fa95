"""The commands: each takes a lab and the options, calls a method of the lab, and returns an answer.

A benchmark sweeps sizes by asking the kernel file for each, all else by the lab.
"""

from __future__ import annotations

import inspect
import os
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kernellab.benchmark.result import Benchmark, join_benchmarks
from kernellab.benchmark.spec import VARIANTS
from kernellab.cli.gate import gate_command, require_no_gate_options
from kernellab.cli.kept import (
    Answer,
    explained_subject,
    explanation_digest,
    is_file,
    refuse_launch_options,
    source_digests,
)
from kernellab.cli.kernel_file import (
    KernelFile,
    device_of,
    file_launch,
    kernel_file,
    launch_of,
    reference_blamed,
    require_known,
    sizes_of,
    with_meta,
)
from kernellab.cli.parser import parse_assignments, parse_lists
from kernellab.errors import UsageError
from kernellab.export.write import default_path
from kernellab.registry.versions import key_of
from kernellab.store import KeptExplanation
from kernellab.store.columns import UNMEASURED, Status
from kernellab.timing.config import Space
from kernellab.views import data as as_data
from kernellab.views.cards import results
from kernellab.views.cards.listing import exported_card
from kernellab.views.cards.traffic import traffic_card

if TYPE_CHECKING:
    from kernellab.lab import Lab

_REST = "with --json"
_Result = TypeVar("_Result")


def _about(file: KernelFile) -> dict[str, Any]:
    """The first fields of every answer on a kernel of a file."""
    return {"kernel": file.name, "file": str(file.path)}


def compile_command(lab: Lab, args: Namespace) -> Answer:
    """Compile a kernel; show the card, or the text of one stage."""
    launch = launch_of(lab, args)
    compiled = lab.compile(launch.kernel, *launch.args, **launch.named)
    data = {**_about(launch.file), "target": str(compiled.target), **as_data.compiled_data(compiled)}
    if args.stage is None:
        return Answer(data, lambda: results.compiled_card(compiled).text())
    text = compiled.text_of(args.stage)
    return Answer({**data, "text": text}, lambda: text)


def effects_command(lab: Lab, args: Namespace) -> Answer:
    """Show the memory effects of a kernel, by argument."""
    launch = launch_of(lab, args)
    effects = lab.effects(launch.kernel, *launch.args, **launch.named)
    data = {**_about(launch.file), "target": str(lab.target), **as_data.effects_data(effects)}
    return Answer(data, lambda: results.effects_card(effects).text())


def run_command(lab: Lab, args: Namespace) -> Answer:
    """Launch a kernel once, compare it with a reference, and keep it."""
    launch = launch_of(lab, args)
    lab.kernels.add(launch.kernel)
    check, named = _reference(launch.file, args)
    options = {"timeout_s": args.timeout, "interpret": args.interpret, "check": check}
    with reference_blamed(launch.file, check):
        run = lab.run(launch.kernel, launch.grid, *launch.args, **options, **launch.named)
    data = {**_about(launch.file), "target": str(lab.target), **as_data.run_data(run, named)}
    return Answer(data, lambda: results.run_card(run).text())


def traffic_command(lab: Lab, args: Namespace) -> Answer:
    """Show the memory traffic of a launch, by line."""
    launch = launch_of(lab, args)
    traffic = lab.traffic(launch.kernel, launch.grid, *launch.args, **launch.named)
    data = {**_about(launch.file), "target": traffic.target, **as_data.traffic_data(traffic)}
    return Answer(data, lambda: traffic_card(traffic).text())


def explain_command(lab: Lab, args: Namespace) -> Answer:
    """Explain what limits a launch of a file's kernel, or the recorded launch of a kept one; keep the answer."""
    from kernellab.views.cards.explanation import explanation_card

    explanation, file = _of_launch(lab.explain, lab, args, samples=args.samples, timeout_s=args.timeout)
    about = {"kernel": explanation.kernel, "file": explanation.file} if file is None else _about(file)
    data = {**about, "target": explanation.target, **as_data.explanation_data(explanation)}
    text = explanation_card(explanation).text()
    digest = explanation_digest(args, explained_subject(lab.kernels.store, args))
    if digest is not None:
        lab.kernels.store.explanations.add(digest, KeptExplanation(data, text, source_digests()))
    return Answer({**data, "from_cache": False}, lambda: text)


def predict_command(lab: Lab, args: Namespace) -> Answer:
    """Predict the time of a launch of a file's kernel, or of the recorded launch of a kept one."""
    from kernellab.views.cards.explanation import prediction_card

    prediction, file = _of_launch(lab.predict, lab, args, device=args.device, target=args.target)
    about = {"kernel": prediction.kernel, "file": ""} if file is None else _about(file)
    data = {**about, "target": prediction.target, **as_data.prediction_data(prediction)}
    return Answer(data, lambda: prediction_card(prediction).text())


def _of_launch(
    verb: Callable[..., _Result], lab: Lab, args: Namespace, **options: Any
) -> tuple[_Result, KernelFile | None]:
    """Return what a verb says of a launch: that of a file, which comes along, or the recorded one of a kept kernel."""
    if is_file(args.kernel):
        launch = launch_of(lab, args)
        return verb(launch.kernel, launch.grid, *launch.args, **options, **launch.named), launch.file
    refuse_launch_options(args)
    return verb(key_of(args.kernel), **options), None


def tune_command(lab: Lab, args: Namespace) -> Answer:
    """Find the fastest config of a file's kernel, or of a kept one on arguments like those of its recorded launch."""
    from kernellab.views.cards.tuning import tuning_card  # loads matplotlib

    values = parse_lists(args.space, "--space")
    if args.where is not None and not values:
        raise UsageError("--where says which values of --space count; give these: --space BLOCK=64,128; repeat it.")
    options: dict[str, Any] = {"search": args.search, "budget_s": args.budget, "budget_configs": args.limit}
    options |= {"configs": Space(where=args.where, **values) if values else None}
    options |= {"fresh": args.fresh, "timeout_s": args.timeout}
    if is_file(args.kernel):
        launch = launch_of(lab, args)
        require_known(lab, launch.file, "--space", values)
        named = {name: value for name, value in launch.named.items() if name not in values}
        check, about = _reference(launch.file, args)[0], _about(launch.file)
        with reference_blamed(launch.file, check):
            tuning = lab.tune(launch.kernel, launch.grid, *launch.args, check=check, **options, **named)
    else:
        refuse_launch_options(args)
        tuning = lab.tune(key_of(args.kernel), check=args.check, **options)
        about = {"kernel": tuning.kernel, "file": ""}
    data = {**about, "target": str(lab.target), **as_data.tuning_data(tuning)}
    return Answer(data, lambda: tuning_card(tuning, rest_is=_REST).text(), status=int(tuning.winner is None))


def bench_command(lab: Lab, args: Namespace) -> Answer:
    """Time a kernel over a sweep, or with ``--against`` one launch and its earlier revision in turns."""
    if args.against is not None:
        return gate_command(lab, args)
    require_no_gate_options(args)
    from kernellab.views.cards.benchmark import benchmark_card  # loads matplotlib

    file = kernel_file(args.kernel)
    benchmark = swept_benchmark(lab, file, args)
    own = [row for row in benchmark.rows if row.implementation == benchmark.implementations[0]]
    failed = not any(row.status in {Status.OK, *UNMEASURED} for row in own)
    data = {**_about(file), "target": str(lab.target), **as_data.benchmark_data(benchmark)}
    return Answer(data, lambda: benchmark_card(benchmark, rest_is=_REST).text(), status=int(failed))


def merge_command(lab: Lab, args: Namespace) -> Answer:
    """Enter the kernels and measurements of another store."""
    from kernellab.views.cards.kernels import merged_card

    merged = lab.merge(args.path)
    return Answer(as_data.merged_data(merged), lambda: merged_card(merged).text())


def regressions_command(lab: Lab, args: Namespace) -> Answer:
    """Show slower and faster launches; the exit status is 1 where one became slower, or fails."""
    from kernellab.views.cards.kernels import regressions_card

    kernel = None if args.kernel is None else key_of(args.kernel)
    regressions = lab.regressions(kernel, since=args.since, margin=args.margin)
    data = as_data.regressions_data(regressions)
    return Answer(data, lambda: regressions_card(regressions).text(), status=int(bool(regressions.slower)))


def upgrade_command(lab: Lab, args: Namespace) -> Answer:
    """Compare the stored winners with what was kept of them; the exit status is 1 where one is suspect, or fails."""
    from kernellab.views.cards.upgrade import upgrade_card, write_summary

    upgrade = lab.upgrade(args.from_version, python=args.python, times=not args.no_time)
    if args.summary is not None:
        write_summary(upgrade, Path(args.summary))
    return Answer(
        as_data.upgrade_data(upgrade), lambda: upgrade_card(upgrade).text(), status=int(bool(upgrade.suspects))
    )


def harvest_command(lab: Lab, args: Namespace) -> Answer:
    """Run a program and show which kernels it launched; the exit status is the program's."""
    from kernellab.harvest.verbs import run_program

    with lab.harvest(inductor=args.inductor) as seen:
        status = run_program(args.program, args.arguments, is_module=args.is_module)
    card, rows = seen.card(), as_data.plain(seen.rows())
    if args.output is not None:
        seen.save(args.output.replace("{pid}", str(os.getpid())))
    record = seen.record
    data = {"program": args.program, "status": status, **as_data.selected_fields(record, "seconds", "unknown_replays")}
    return Answer({**data, "rest": dict(record.rest), "rows": rows}, card.text, status=status)


def export_command(lab: Lab, args: Namespace) -> Answer:
    """Launch a kernel of a file once, and write it as a file."""
    launch = launch_of(lab, args)
    version = lab.kernels.add(launch.kernel)
    if not args.output:
        default_path(version.identifier, args.kind, launch.file.path)  # refuses before the launch
    lab.run(launch.kernel, launch.grid, *launch.args, **launch.named)
    exported = lab.export(version.id, args.output, kind=args.kind, targets=args.targets)
    return Answer(as_data.plain(exported), lambda: exported_card(exported).text())


def _reference(file: KernelFile, args: Namespace) -> tuple[Any, str | None]:
    """Return the reference of the outputs and its name: the option's expression, or the file's function."""
    if args.check is not None:
        return args.check, args.check
    function = None if args.no_check else file.reference
    return function, None if function is None else "reference"


COMMANDS: Mapping[str, Callable[[Lab, Namespace], Answer]] = {
    "compile": compile_command,
    "effects": effects_command,
    "run": run_command,
    "traffic": traffic_command,
    "explain": explain_command,
    "predict": predict_command,
    "tune": tune_command,
    "bench": bench_command,
    "merge": merge_command,
    "regressions": regressions_command,
    "upgrade": upgrade_command,
    "harvest": harvest_command,
    "export": export_command,
}


def swept_benchmark(lab: Lab, file: KernelFile, args: Namespace) -> Benchmark:
    """Return the benchmark that the options ask for.

    A file's grid and arguments belong to its sizes, so there is one benchmark for each combination of these; together
    they are one table.

    Raises:
        UsageError: what is swept is neither a size of the file nor of the kernel, or a peer is not in the file.
    """
    over = parse_lists(args.over, "--over")
    fixed, meta = parse_assignments(args.size, "--size"), parse_assignments(args.meta, "--meta")
    sizes = {name: over[name] for name in over if name in sizes_of(file)}
    others = {name: over[name] for name in over if name not in sizes}
    _require_known(file, others)
    for option, assigned_ones in (("--size", fixed), ("--meta", meta)):
        if twice := [name for name in assigned_ones if name in over]:
            raise UsageError(f"{twice[0]} is given by --over and by {option}; give it once.")
    if not over:
        sizes, others = _default_sizes(file, fixed)
    options = {"rounds": args.rounds or 30, "timeout_s": args.timeout, "check": args.check}
    options["versus"] = _peers(file, args.versus) or None
    benchmarks = []
    for values in product(*sizes.values()):
        case = dict(zip(sizes, values, strict=True))
        launch = with_meta(lab, file_launch(file, {**fixed, **case}, device_of(lab)), meta)
        left = {name: value for name, value in launch.by_name.items() if name not in others}
        over = {**{name: (value,) for name, value in case.items()}, **others}
        benchmarks.append(lab.bench(file.kernel, launch.grid, over=over, inputs=_constant_inputs(left), **options))
    return join_benchmarks(benchmarks)


def _constant_inputs(arguments: Mapping[str, Any]) -> Callable[..., Mapping[str, Any]]:
    return lambda **point: arguments


def _require_known(file: KernelFile, others: Iterable[str]) -> None:
    from kernellab._triton.kernel import parameter_names

    known = (*sizes_of(file), *parameter_names(file.kernel), *VARIANTS)
    for name in others:
        if name not in known:
            raise UsageError(
                f"--over {name}: neither a size of {file.path} nor of {file.name}; known: {', '.join(known)}."
            )


def _default_sizes(
    file: KernelFile, fixed: Mapping[str, Any]
) -> tuple[dict[str, tuple[Any, ...]], dict[str, tuple[Any, ...]]]:
    """Return the only point of a benchmark without a sweep: its sizes, else its options."""
    parameters = {} if file.arguments is None else inspect.signature(file.arguments).parameters
    defaults = {name: parameters[name].default for name in sizes_of(file)}
    sizes = {**{name: value for name, value in defaults.items() if value is not inspect.Parameter.empty}, **fixed}
    if sizes:
        return {name: (value,) for name, value in sizes.items()}, {}
    return {}, {"num_warps": (None,)}


def _peers(file: KernelFile, names: Sequence[str]) -> dict[str, Any]:
    """Return functions and kernels of the file by name.

    Raises:
        UsageError: one is not there.
    """
    peers = {name: getattr(file.module, name, None) for name in names}
    for name, peer in peers.items():
        if not callable(peer) and not hasattr(peer, "run"):
            raise UsageError(f"--versus {name!r}: {file.path} has no such function or kernel.")
    return peers

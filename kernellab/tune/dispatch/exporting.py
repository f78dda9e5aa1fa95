"""Export of a dispatch: a module of plain Triton, or an operator, that picks its config by the sizes."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import prod
from pathlib import Path
from types import FunctionType
from typing import Any

from kernellab.errors import SourceError, UsageError, choice_message, plural, value_text
from kernellab.export import DISPATCH_KINDS
from kernellab.export.binaries import BinaryVariant, kernel_files
from kernellab.export.launcher import Chooser, Decision
from kernellab.export.module import dispatch_text
from kernellab.export.paths import export_path, replacement_notes
from kernellab.export.torch_op import torch_op_text
from kernellab.export.write import Exported, replace_file, summarize_expected_outputs, write_folder
from kernellab.launch.recording import LaunchRecord
from kernellab.registry import RecordedVersion, Session, recorded_launch_of, result_of
from kernellab.registry.launches_from_store import size_formulas
from kernellab.registry.versions import key_of
from kernellab.source import Heuristics, is_plain, lambda_definition
from kernellab.store import Argument, RecordedLaunch, Version
from kernellab.store.decoding import is_reference
from kernellab.target import Target, parse_target
from kernellab.timing.config import Config
from kernellab.timing.launches import Launches
from kernellab.tune.dispatch.config_files import read_table, require_alike, table_files, write_table
from kernellab.tune.dispatch.result import Dispatch, MeasuredCase

_SUFFIXES = {"dispatch": "_dispatch.py", "torch-op": "_op.py", "vllm": "", "binaries": "_binaries"}

Sample = tuple[MeasuredCase, RecordedLaunch]
"""A case with its launch as data."""


@dataclass(frozen=True, slots=True)
class BinaryRequest:
    """The targets to compile binaries for, and further sizes to specialize for than those of the tuned cases."""

    targets: tuple[Target, ...] = ()
    sizes: tuple[Mapping[str, int], ...] = ()


def export_dispatch(
    session: Session,
    dispatch: Dispatch,
    to: str | Path | None,
    kind: str | None,
    others: Sequence[Dispatch | str | Path],
    binaries: BinaryRequest = BinaryRequest(),
) -> Exported:
    """Write a dispatch; without a ``kind``, ``to`` decides: ``.json`` is a table, anything else a module.

    ``binaries`` says what ``kind="binaries"`` compiles.

    Raises:
        UsageError: there is no such kind, or it cannot be written so.
    """
    kind = kind or ("table" if to is not None and str(to).endswith(".json") else "dispatch")
    if kind not in DISPATCH_KINDS:
        raise UsageError(choice_message("kind", kind, DISPATCH_KINDS))
    if kind != "binaries" and (binaries.targets or binaries.sizes):
        raise UsageError("targets= and sizes= are those of kind='binaries'; other kinds compile when launched.")
    known = [dispatch, *chain.from_iterable(map(_dispatches, others))]
    _require_decision(dispatch)
    if kind == "table":  # which joins a table that is there, and refuses another file
        return write_table(Path(to or f"{dispatch.kernel}.json"), known)
    path = Path(to) if to else export_path(f"{dispatch.kernel}{_SUFFIXES[kind]}", dispatch.kernel)
    if kind == "vllm":
        return table_files(path, known)
    recorded, chooser = _record_cases(session, dispatch, known)
    from kernellab._triton.kernel import jit_function  # keeps `import kernellab` light

    bound = session.bind(jit_function(dispatch.function))
    expected = summarize_expected_outputs(recorded, bound, session.runtime.device)
    if kind == "binaries":
        function = jit_function(dispatch.function)
        variants = _variants(session, dispatch, chooser.decisions, binaries)
        content = kernel_files(recorded, function, variants, session.compiler, expected, chooser)
        content = replace(content, notes=(*content.notes, *dispatch.notes))
        return write_folder(path, content, recorded.version.label, is_default=not to)
    if kind == "torch-op":
        text = torch_op_text(recorded, expected, chooser)
    else:
        text = dispatch_text(recorded, chooser, expected)
    replaced = () if to else replacement_notes({path: text.encode()})
    replace_file(path, text.encode())
    return Exported(path, recorded.version.label, kind, (*replaced, *dispatch.notes))


def _require_decision(dispatch: Dispatch) -> None:
    """Raise `UsageError` if no case has times, even predicted: the rule then takes the first config that compiles."""
    if not dispatch.rule.known and not any(case.times_ms for case in dispatch.cases):
        raise UsageError(
            f"No case of the dispatch of {dispatch.kernel} was timed with a config that works: there is no decision to "
            "export. Tune on a GPU, or pass executor=, whose workers own one."
        )


def export_source(text: str, kind: str | None, names: Mapping[str, Any]) -> Dispatch | str | int:
    """Return the object to export under a name: a dispatch (of a variable or a kernel), else a stored kernel.

    Raises:
        UsageError: a dispatch is asked for, and there is none.
    """
    value = names.get(text)
    if isinstance(value, Dispatch):
        return value
    if kind not in set(DISPATCH_KINDS) - {"torch-op", "binaries"}:
        return key_of(text)
    dispatches = [
        dispatch
        for dispatch in names.values()
        if isinstance(dispatch, Dispatch) and dispatch.kernel == text.partition("@")[0]
    ]
    if not dispatches:
        raise UsageError(f"{text!r} is not a dispatch, and no variable holds one of it; lab.tune_over returns one.")
    return dispatches[-1]


def _dispatches(other: Dispatch | str | Path) -> tuple[Dispatch, ...]:
    if isinstance(other, Dispatch):
        return (other,)
    if isinstance(other, str | Path):
        return read_table(Path(other))
    raise UsageError(f"others has {value_text(other)}; expected dispatches, or the paths of tables.")


def _record_cases(session: Session, dispatch: Dispatch, known: Sequence[Dispatch]) -> tuple[RecordedVersion, Chooser]:
    """Record launches of a few cases, the smallest last; return kernel and chooser, or raise `UsageError`."""
    if dispatch.function is None or dispatch.arguments is None:
        raise UsageError(
            f"The dispatch of {dispatch.kernel} has no kernel: it was read from a file; tune again for it."
        )
    for other in known:
        require_alike(dispatch, other, "others")
    by_device: dict[str, Decision] = {}
    for decision in map(_decision, known):
        by_device.setdefault(decision.device, decision)
    decisions = tuple(by_device.values())
    names = frozenset(name for decision in decisions for config in decision.configs for name in config)
    version = session.kernels.current_version(dispatch.function)
    samples, compiled = _samples(session, dispatch)
    computed = {name for w in version.closure.wrappers if isinstance(w, Heuristics) for name, _ in w.values}
    samples = _with_sizes_as_arguments(samples, names | computed)
    recorded = RecordedVersion(version, tuple(launch for _, launch in samples), result_of(compiled))
    outputs = set(result_of(compiled).writes) - set(result_of(compiled).reads)
    sizes = tuple((name, _formula(name, samples, outputs, version)) for name in dispatch.rule.names)
    return recorded, Chooser(sizes, _device_expression(samples[-1][1], outputs, version), decisions)


def _variants(
    session: Session, dispatch: Dispatch, decisions: Sequence[Decision], request: BinaryRequest
) -> list[BinaryVariant]:
    """Return each config of each decision, specialized for the cases and for the sizes and targets of a request."""
    assert dispatch.arguments is not None
    names = dispatch.rule.names
    for sizes in request.sizes:
        if set(sizes) != set(names):
            raise UsageError(f"sizes has {value_text(dict(sizes))}; expected values of {', '.join(names)}.")
    known = dict.fromkeys(decision.target for decision in decisions if decision.target)
    targets = request.targets or tuple(map(parse_target, known))
    configs = list({Config.of(config): None for decision in decisions for config in decision.configs})
    variants: dict[Any, BinaryVariant] = {}
    for sizes in (*(case.sizes for case in dispatch.cases), *request.sizes):
        launches = Launches(dispatch.function, dispatch.grid, (), dispatch.arguments(sizes), session.target)
        for own in map(launches.for_target, targets):
            for config in configs:
                launch = own.of(config)
                variants.setdefault(launch.job.digest, BinaryVariant(launch.job, launch.options))
    return list(variants.values())


def _decision(dispatch: Dispatch) -> Decision:
    configs = tuple(_plain_config(dispatch.kernel, config) for config in dispatch.configs)
    facts = dispatch.provenance
    needs: dict[Config, int] = {}
    for row in (row for case in dispatch.cases for row in case.rows if row.shared_bytes is not None):
        needs[row.config] = max(needs.get(row.config, 0), row.shared_bytes or 0)
    cases = sum(bool(case.times_ms) for case in dispatch.cases) or len(dispatch.rule.known)
    driver = "" if dispatch.is_predicted else f", driver {facts.get('driver')}"
    return Decision(
        device=dispatch.device,
        target=str(facts.get("target") or ""),
        multiprocessors=dispatch.rule.multiprocessors,
        configs=configs,
        shared_bytes=tuple(needs.get(config) for config in dispatch.rule.configs),
        source=dispatch.rule.source,
        words=f"{plural(cases, 'case')}, Triton {facts.get('triton')}{driver}",
        is_predicted=dispatch.is_predicted,
    )


def _plain_config(kernel: str, config: Any) -> Mapping[str, Any]:
    """Return constexprs and options of a `triton.Config`; `UsageError` for a hook, or a value without a literal."""
    if getattr(config, "pre_hook", None) is not None:
        raise UsageError(
            f"A config of {kernel} has a pre_hook, which a dispatch cannot write down; set it in the kernel."
        )
    values = {
        name: value for name, value in Config.from_triton(config).values.items() if (name, value) != ("num_ctas", 1)
    }
    for name, value in values.items():
        if not is_plain(value):
            text = f"{name} of a config of {kernel} is {value_text(value)}"
            raise UsageError(f"{text}, which has no literal; a dispatch needs one.")
    return values


def _samples(session: Session, dispatch: Dispatch) -> tuple[list[Sample], Any]:
    """Return the launches of a few cases, the smallest last, and the compiled kernel of the last one."""
    from kernellab._triton.kernel import jit_function

    assert dispatch.arguments is not None
    samples: list[Sample] = []
    compiled = None
    for case in reversed(_sample_cases(dispatch.cases, dispatch.rule.names)):
        original = dispatch.choose(**case.sizes)
        arguments = dispatch.arguments(case.sizes)
        launches = Launches(dispatch.function, dispatch.grid, (), arguments, session.target)
        launch = launches.of(Config.from_triton(original), original)
        compiled = session.compiler.compile(launch.job)
        record = LaunchRecord(
            jit_function(dispatch.function),
            compiled,
            launch.arguments,
            dispatch.function,
            grid=launch.grid,
            given_grid=dispatch.grid,
        )
        check = _reference_text(dispatch.check, launch.arguments.keys())
        samples.append((case, recorded_launch_of(record, check)))
    return samples, compiled


def _reference_text(check: Any, names: Collection[str]) -> str:
    """Return the reference as an expression over parameters; "" if it is not one."""
    text = check if isinstance(check, str) else ""
    if isinstance(check, FunctionType) and check.__name__ == "<lambda>":
        with contextlib.suppress(SourceError):
            text = ast.unparse(lambda_definition(check)[2].body)
    return text if text and is_reference(text, names) else ""


def _sample_cases(cases: Sequence[MeasuredCase], names: Sequence[str]) -> list[MeasuredCase]:
    """Return the smallest case, and for each size the smallest case where that size differs; or `UsageError`."""
    good = sorted((case for case in cases if case.times_ms), key=lambda case: prod(case.sizes.values()))
    if not good:
        raise UsageError("No case of the dispatch was timed with a config that works: there is no decision to export.")
    chosen = [good[0]]
    for name in names:
        chosen += [case for case in good if case.sizes[name] != good[0].sizes[name]][:1]
    return list({case.number: case for case in chosen}.values())


def _with_sizes_as_arguments(samples: Sequence[Sample], names: frozenset[str]) -> list[Sample]:
    """Turn constexprs that vary between cases into arguments, except for some names.

    A size that is a constexpr is not a default of a launch.
    """
    values: dict[str, set[Any]] = {}
    for _, launch in samples:
        for argument in launch.arguments:
            if argument.constexpr and argument.kind == "scalar" and argument.name not in names:
                values.setdefault(argument.name, set()).add(argument.value)
    varying = {name for name, seen in values.items() if len(seen) > 1}

    def as_runtime_argument(argument: Argument) -> Argument:
        return replace(argument, constexpr=False) if argument.name in varying else argument

    return [
        (case, replace(launch, arguments=tuple(map(as_runtime_argument, launch.arguments)))) for case, launch in samples
    ]


def _formula(name: str, samples: Sequence[Sample], outputs: set[str], version: Version) -> str:
    """Return a size as an expression over the caller's arguments, by its own name if possible; else `UsageError`."""
    wanted = tuple(case.sizes[name] for case, _ in samples)
    launches = [launch for _, launch in samples]
    texts = [
        text
        for text, values in size_formulas(launches)
        if values == wanted and not text.startswith("meta[") and text.partition(".")[0] not in outputs
    ]
    if not texts:
        raise UsageError(
            f"{name} is not an argument of {version.label}, nor a size of one, so a launch does not have it; "
            "pass it to the kernel."
        )
    named = [text for text in texts if text.casefold() == name.casefold()]
    return (named or texts)[0]


def _device_expression(launch: RecordedLaunch, outputs: set[str], version: Version) -> str:
    devices = {"tensor": "device", "descriptor": "base.device"}
    for argument in launch.arguments:
        if argument.kind in devices and argument.name not in outputs:
            return f"{argument.name}.{devices[argument.kind]}"
    raise UsageError(f"{version.label} reads no tensor, so a launch cannot determine its device; pass it one.")

"""A kept kernel as a Python module that needs torch and Triton, and nothing of the lab."""

from __future__ import annotations

import dataclasses
import textwrap
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from kernellab.errors import UsageError
from kernellab.export.checking import OutputSummary, check_text, inputs_text, usage_lines, why_uninterpreted
from kernellab.export.flatten import (
    RESERVED,
    FlatModule,
    append_closures,
    decorator_of,
    flatten_closure,
    remap_functions,
)
from kernellab.export.launcher import RECORDER, Chooser, LauncherPlan, launch_text, plan_of
from kernellab.registry import RecordedVersion
from kernellab.registry.launches_from_store import tensors_among
from kernellab.source import Autotune, Binding, Closure, ConfigText, Heuristics, JitOptions, Opaque, docstring, literal
from kernellab.store import Argument, RecordedLaunch, Result, Version


@dataclass(frozen=True, slots=True)
class ModuleParts:
    """The parts of an exported module before they are joined.

    ``functions`` are expressions for arguments without a literal, such as functions. ``expected`` are summaries of the
    outputs after a launch on the module's generated inputs, if known.
    """

    recorded: RecordedVersion
    flat: FlatModule
    plan: LauncherPlan | None
    tuner: Autotune | None
    heuristics: tuple[tuple[str, Binding], ...]
    functions: Mapping[Argument, str]
    expected: tuple[OutputSummary, ...]


def module_text(recorded: RecordedVersion, expected: tuple[OutputSummary, ...] = (), *, autotune: bool = False) -> str:
    """Return the source of the module; with ``autotune``, the kernel keeps its ``@triton.autotune``.

    Raises:
        UsageError: an argument of its recorded launch cannot be written down.
    """
    parts = parts_of(recorded, expected)
    tuned = parts.tuner if autotune else None
    sections = [*leading_sections(parts), *definitions(parts, tuned)]
    if parts.plan is None:
        name = parts.flat.names[0]
        doc = f'"""Launch `{name}` on this grid."""'
        sections.append(f"def launch(*args, grid, **meta):\n    {doc}\n    {name}[grid](*args, **meta)\n")
    else:
        configs = () if tuned is None else tuned.configs  # which the kernel chooses itself
        own = {name for config in configs for name, _ in (*config.parameters, *config.options)}
        meta = tuple((name, text) for name, text in parts.plan.meta if name not in own)
        plan = dataclasses.replace(parts.plan, meta=meta)
        sections += [*meta_sections(parts, plan, tuned), *launch_sections(parts, plan, tuned)]
    return kernel_module_source(sections, parts)


def reproducer_text(closure: Closure, launch: RecordedLaunch, result: Result) -> str:
    """Return the source of a module that repeats a launch of a kernel; nothing is stored.

    Raises:
        UsageError: an argument cannot be written down.
    """
    version = Version(0, closure.name, 1, closure.digest, closure, time.time())
    return module_text(RecordedVersion(version, (launch,), result))


def parts_of(recorded: RecordedVersion, expected: tuple[OutputSummary, ...] = ()) -> ModuleParts:
    """Return the parts of a version's module; the plan is None where its launch cannot be written down."""
    closure = recorded.version.closure
    passed = {a: a.source for launch in recorded.launches for a in launch.arguments if a.source is not None}
    whole, index_maps = append_closures(closure, [source for source, _ in passed.values()])
    flat = flatten_closure(whole)
    bindings = zip(passed.items(), index_maps, strict=True)
    functions = {
        argument: flat.expression(remap_functions(binding, index_map))
        for (argument, (_, binding)), index_map in bindings
    }
    heuristics = tuple(v for w in closure.wrappers if isinstance(w, Heuristics) for v in w.values)
    known = [name for name, value in heuristics if not isinstance(value, Opaque)]
    plan = None
    if recorded.launch is not None and not why_unwritable(recorded):
        plan = plan_of(flat.names[0], recorded.launches, recorded.result, known, functions)
        plan = dataclasses.replace(plan, refusal=why_uninterpreted(flat, _dtypes(recorded.launch)))
    tuner = next((wrapper for wrapper in closure.wrappers if isinstance(wrapper, Autotune)), None)
    return ModuleParts(recorded, flat, plan, tuner, heuristics, functions, expected)


def _dtypes(launch: RecordedLaunch) -> list[str]:
    passed = [str(argument.value) for argument in launch.arguments if argument.kind == "dtype"]
    return [*passed, *(tensor.dtype for tensor in tensors_among(launch.arguments))]


# Names that functions of a module use beside the kernel's arguments, which are their local variables.
_IN_FUNCTIONS = frozenset(
    {
        *("device", "generator", "random_tensor", "listed_tensor", "TensorDescriptor", "RECORD", "INTERPRETED"),
        *("META", "CONFIGS", "HEURISTICS"),
    }
)


def why_unwritable(recorded: RecordedVersion) -> str:
    """Return why the recorded launch of a kernel cannot be written down, with arguments and a check, or ""."""
    arguments = () if recorded.launch is None else recorded.launch.arguments
    closure = recorded.version.closure
    own = {"meta", "torch", "triton", "tl"}
    if any(isinstance(wrapper, Autotune | Heuristics) for wrapper in closure.wrappers):
        own.add("grid")  # Triton's decorators pass the grid by this name
    in_functions = _IN_FUNCTIONS | {closure.functions[0].name}
    if names := [a.name for a in arguments if a.name in own or (a.name in in_functions and not a.constexpr)]:
        return f"It has a parameter called {', '.join(names)}"
    if recorded.result is not None and recorded.result.through:
        return f"It takes addresses out of {', '.join(recorded.result.through)}, which hold in one process"
    return ""


def dispatch_text(recorded: RecordedVersion, chooser: Chooser, expected: tuple[OutputSummary, ...] = ()) -> str:
    """Return the source of a module with a ``launch`` that chooses the config by the sizes.

    Raises:
        UsageError: its launches cannot be written down.
    """
    parts = parts_of(recorded, expected)
    plan = dispatch_plan(parts, chooser)
    sections = [*leading_sections(parts), *definitions(parts, None), f"META = {dict_text(plan.meta)}"]
    defaults = f"chosen by {', '.join(name for name, _ in chooser.sizes)}, once for each, and looked up from then on"
    launch = launch_text(plan, f"META, **{chooser.call()}", defaults=defaults, is_marked=False)
    sections += [*chooser.sections(plan.name), launch]
    sections += check_sections(parts, plan, variants=chooser.variants)
    return kernel_module_source(sections, parts, chooser.words)


def dispatch_plan(parts: ModuleParts, chooser: Chooser) -> LauncherPlan:
    """Return the launch plan of a kernel with a config chosen by the sizes.

    Raises:
        UsageError: it cannot be written down.
    """
    label = parts.recorded.version.label
    if parts.plan is None:
        raise UsageError(f"The launches of {label} cannot be written down. {why_unwritable(parts.recorded)}.")
    if names := sorted(argument.name for argument in parts.plan.parameters if argument.name in RESERVED):
        raise UsageError(f"{label} has a parameter called {names[0]}, which is a name of the module; rename it.")
    kept = tuple((name, text) for name, text in parts.plan.meta if name not in chooser.names)
    return dataclasses.replace(parts.plan, meta=kept)


def kernel_module_source(sections: Sequence[str], parts: ModuleParts, words: str = "") -> str:
    """Join docstring, imports and sections of a kernel's module; ``words`` are added to the docstring."""
    imports = ["import os", "import sys", "", *parts.flat.import_lines()]
    launch = parts.recorded.launch
    blocks = [] if launch is None else [argument for argument in launch.arguments if argument.block]
    if blocks:
        is_gluon = any(argument.value is not None for argument in blocks)
        module = "triton.experimental.gluon.nvidia.hopper" if is_gluon else "triton.tools.tensor_descriptor"
        imports.append(f"from {module} import TensorDescriptor")
    return module_source(docstring_lines(parts, words), imports, sections)


IS_INTERPRETED = 'INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # on the CPU, by Triton\'s interpreter'


def module_source(about: Iterable[str], imports: Iterable[str], sections: Iterable[str]) -> str:
    """Join a module's docstring lines, imports and sections; lines that are not indented are filled."""
    filled = "\n".join(line if line.startswith(" ") else textwrap.fill(line, 110) for line in about) + "\n"
    body = "\n\n\n".join(section.strip("\n") for section in sections if section.strip())
    return "\n\n".join([docstring(filled), "\n".join(imports), body]) + "\n"


def leading_sections(parts: ModuleParts) -> Iterator[str]:
    """Yield the sections before the functions."""
    yield IS_INTERPRETED
    if constants := parts.flat.first_constants():
        yield constants


def definitions(parts: ModuleParts, tuner: Autotune | None, *, heuristics: bool = True) -> Iterator[str]:
    """Yield the helpers, then the kernel with its decorators."""
    closure = parts.recorded.version.closure
    yield from parts.flat.helpers()
    decorators: list[str] = []
    untimed, applied = "", parts.flat.names[0]
    for wrapper in closure.wrappers:
        if isinstance(wrapper, Autotune) and tuner:
            untimed = f"\nif INTERPRETED:\n    {applied}.configs = {applied}.configs[:1]  # nothing is timed there"
            lines = (f"    {line}" for line in autotune_arguments(parts.flat, tuner))
            decorators += ["@triton.autotune(", *lines, ")"]
        elif (
            heuristics
            and isinstance(wrapper, Heuristics)
            and (heuristic_entries := heuristics_text(parts.flat, wrapper.values))
        ):
            decorators.append(f"@triton.heuristics({heuristic_entries})")
            applied += ".fn"
    options = [option for w in closure.wrappers if isinstance(w, JitOptions) for option in w.options]
    above = "".join(f"{decorator}\n" for decorator in decorators)
    yield f"{above}{decorator_of(closure.functions[0], options)}{parts.flat.texts[0]}"
    yield untimed


def heuristics_text(flat: FlatModule, values: Iterable[tuple[str, Binding]]) -> str:
    """Return the heuristics with known functions as a dict of expressions, or ""."""
    known = [(name, flat.expression(b)) for name, b in values if not isinstance(b, Opaque)]
    return dict_text(known) if known else ""


def autotune_arguments(flat: FlatModule, tuner: Autotune) -> Iterator[str]:
    """Yield the lines of the arguments of ``@triton.autotune``."""
    yield "configs=["
    yield from (f"    {_config(flat, config)}," for config in tuner.configs)
    yield "],"
    yield f"key={literal(list(tuner.key))},"
    for name, binding in tuner.arguments:
        if not isinstance(binding, Opaque):
            yield f"{name}={flat.expression(binding)},"
    pruning = [(n, flat.expression(b)) for n, b in tuner.prune_configs_by if not isinstance(b, Opaque)]
    if pruning:
        yield f"prune_configs_by={dict_text(pruning)},"


def _config(flat: FlatModule, config: ConfigText) -> str:
    parameters = dict_text((name, flat.expression(value)) for name, value in config.parameters)
    set_options = [
        (name, value) for name, value in config.options if value is not None and (name, value) != ("num_ctas", 1)
    ]
    options = [f"{name}={literal(value)}" for name, value in set_options]
    if config.pre_hook is not None and not isinstance(config.pre_hook, Opaque):
        options.append(f"pre_hook={flat.expression(config.pre_hook)}")
    return f"triton.Config({', '.join([parameters, *options])})"


def meta_sections(parts: ModuleParts, plan: LauncherPlan, tuned: Autotune | None) -> Iterator[str]:
    """Yield ``META`` of the last launch, and for a tuned kernel ``CONFIGS`` by launched key."""
    yield f"META = {dict_text(plan.meta)}"
    if parts.tuner is None or tuned is not None:
        return
    chosen = {}
    for launch in parts.recorded.launches:
        launch_plan = plan_of(
            plan.name, [launch], parts.recorded.result, [name for name, _ in parts.heuristics], parts.functions
        )
        chosen[_key_values(launch, parts.tuner)] = dict(launch_plan.meta)
    rows = [f"    {key}: {dict_text(meta.items())}," for key, meta in chosen.items()]
    names = ", ".join(parts.tuner.key) or "nothing"
    yield "\n".join([f"# What was chosen for each value of ({names}); another takes META.", "CONFIGS = {", *rows, "}"])


def dict_text(entries: Iterable[tuple[str, str]]) -> str:
    """Return a dict of expressions by name."""
    return f"{{{', '.join(f'{literal(name)}: {text}' for name, text in entries)}}}"


def _key_values(launch: RecordedLaunch, tuner: Autotune) -> str:
    values = [next((a for a in launch.arguments if a.name == name), None) for name in tuner.key]
    shown = [literal(a.value) if a is not None and a.kind == "scalar" else "None" for a in values]
    return f"({', '.join(shown)}{',' if len(shown) == 1 else ''})"


def launch_sections(parts: ModuleParts, plan: LauncherPlan, tuned: Autotune | None) -> Iterator[str]:
    """Yield ``launch`` with its recorder of profiles, and the sections after it."""
    yield RECORDER
    scalars = {argument.name for argument in plan.parameters if argument.kind == "scalar"}
    if parts.tuner is not None and tuned is None:
        key = [name if name in scalars else "None" for name in parts.tuner.key]
        lookup = f"CONFIGS.get(({', '.join(key)}{',' if len(key) == 1 else ''}), META)"
        yield launch_text(plan, lookup)
    else:
        yield launch_text(plan)
    yield from check_sections(parts, plan)


def check_sections(parts: ModuleParts, plan: LauncherPlan, variants: str = "") -> Iterator[str]:
    """Yield the sections after ``launch``: generated inputs, the check and ``main``."""
    yield inputs_text(plan.launch)
    has_dot = any("tl.dot" in text for text in parts.flat.texts.values())
    yield from check_text(plan, parts.expected, has_dot=has_dot, variants=variants)


def docstring_lines(parts: ModuleParts, words: str) -> list[str]:
    """Return the lines of a kernel module's docstring; ``words`` are added to them."""
    recorded = parts.recorded
    created = datetime.fromtimestamp(recorded.version.created, tz=UTC).strftime("%Y-%m-%d")
    lines = [f"The Triton kernel `{parts.flat.names[0]}`.", ""]
    where = f" from {recorded.version.cell}" if recorded.version.cell else ""
    lines.append(f"Exported by kernellab: {recorded.version.label}{where}, kept since {created}.")
    lines.append(f"Its hash is {recorded.version.digest[:16]}.")
    if recorded.launch is not None:
        ran = {"gpu": f" and ran on {recorded.launch.device}", "interpreter": " and ran on the CPU"}
        where = ran.get(recorded.launch.where, "")
        lines.append(f"The recorded launch was compiled for {recorded.launch.target}{where}.")
    if recorded.result is not None:
        lines.append(f"Compiled by Triton {recorded.result.triton}.")
    if recorded.launch is not None and parts.plan is None:
        why = why_unwritable(recorded)
        lines.append(f"{why}: `launch` passes on what it is given, and nothing is checked.")
    if parts.plan is not None and parts.plan.grid_name != "grid":
        lines.append(f"It has a parameter called grid, so `launch` takes the grid as `{parts.plan.grid_name}`.")
    lines += [words] if words else []
    for name, kind in sorted(parts.flat.missing.items()):
        lines.append(f"`{name}` ({kind}) stayed behind.")
    missing_heuristics = [name for name, value in parts.heuristics if isinstance(value, Opaque)]
    lines += [
        f"The heuristic of `{name}` stayed behind; its value is that of the recorded launch."
        for name in missing_heuristics
    ]
    if parts.plan is None:
        return lines
    return [*lines, *usage_lines("kernel", "benchmarks", parts.plan.refusal)]

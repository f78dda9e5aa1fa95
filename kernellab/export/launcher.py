"""The text of ``launch(...)``: a caller passes inputs; grid, outputs and meta-parameters are derived.

Where the config is chosen by sizes and device, the text has a table of decisions by device, a function of the sizes for
each, and a cache of chosen configs, so that a launch of known sizes costs a lookup. The lookup functions below are
copied into modules as they are. Their globals (DECISIONS and so on) are filled in the module; here they are empty, and
tests fill them.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernellab.errors import UsageError
from kernellab.export.flatten import function_text
from kernellab.registry import grid_text
from kernellab.registry.launches_from_store import GridText, options_of, unmakable_message
from kernellab.source import literal
from kernellab.store import Argument, RecordedLaunch, Result


@dataclass(frozen=True, slots=True)
class LauncherPlan:
    """The parameters, outputs, meta-parameters and grid of an exported ``launch``.

    ``required`` are the parameters that a caller passes; ``allocated`` are those that are only written, each with the
    expression that allocates it; neither are constexprs. ``mutated`` are all tensors that the kernel writes, ``meta``
    the constexprs and options of the last launch as expressions, ``grid`` the grid, if it is known. ``refusal`` is why
    Triton's own interpreter cannot run the kernel, or "".
    """

    name: str
    launch: RecordedLaunch
    required: tuple[Argument, ...]
    allocated: tuple[tuple[Argument, str], ...]
    mutated: tuple[str, ...]
    meta: tuple[tuple[str, str], ...]
    grid: GridText | None
    refusal: str = ""

    @property
    def grid_name(self) -> str:
        """The parameter of ``launch`` for the grid; ``launch_grid`` where the kernel has a parameter called grid."""
        return "launch_grid" if any(argument.name == "grid" for argument in self.launch.arguments) else "grid"

    @property
    def parameters(self) -> tuple[Argument, ...]:
        """All parameters but the constexprs, in the order of the kernel."""
        return tuple(argument for argument in self.launch.arguments if not argument.constexpr)


def plan_of(
    name: str,
    launches: Sequence[RecordedLaunch],
    result: Result | None,
    computed: Sequence[str],
    functions: Mapping[Argument, str],
) -> LauncherPlan:
    """Return the plan for a kernel that was launched.

    ``computed`` are the constexprs that heuristics give, ``functions`` the expressions of arguments that are functions,
    or values without a literal.
    """
    launch = launches[-1]
    parameters = [argument for argument in launch.arguments if not argument.constexpr]
    outputs = _only_written(parameters, result)
    inputs = [a for a in parameters if a.kind == "tensor" and a not in outputs and a.shape and not a.alias]
    allocated = tuple((a, text) for a in outputs if (text := _allocation_expression(a, inputs, launches)))
    allocated_names = {argument.name for argument, _ in allocated}
    constexprs = {a.name: functions[a] if a in functions else scalar_text(a) for a in launch.arguments if a.constexpr}
    meta = {**constexprs, **{option: literal(value) for option, value in options_of(launch).items()}}
    return LauncherPlan(
        name=name,
        launch=launch,
        required=tuple(argument for argument in parameters if argument.name not in allocated_names),
        allocated=allocated,
        mutated=_mutated_tensors(parameters, result),
        meta=tuple((key, text) for key, text in meta.items() if key not in computed),
        grid=grid_text(launches),
    )


def scalar_text(argument: Argument) -> str:
    """Return a scalar or a dtype as an expression.

    Raises:
        UsageError: the argument is something else.
    """
    if argument.kind == "scalar":
        return literal(argument.value)
    if argument.kind == "dtype":
        return f'tl.dtype("{argument.value}")'
    raise UsageError(unmakable_message(argument))


# Unlike `record_function`, this is not an operation of torch; without a profiler it costs less than a microsecond.
RECORDER = 'RECORD = getattr(torch._C._profiler, "_RecordFunctionFast", torch.profiler.record_function)'


def launch_text(
    plan: LauncherPlan, configs: str = "META", *, defaults: str = "those of the recorded launch", is_marked: bool = True
) -> str:
    """Return the source of ``launch``; ``configs`` is the expression of the meta-parameters of a call.

    ``defaults`` describes them in words for the docstring. With ``is_marked``, launches show in profiles of torch,
    which costs the host a microsecond.
    """
    opening = [*refusal_lines(plan.refusal), *flag_lines(plan), f"meta = {{**{configs}, **meta}}"]
    name = plan.grid_name
    grid = [f"if {name} is None:", f"    {name} = {plan.grid.text}"] if plan.grid else []
    last = f"{name}=None" if plan.grid else name
    doc = "\n".join(f"    {line}".rstrip() for line in _docstring_lines(plan, defaults)).lstrip()
    call = [_call_expression(plan, f"{plan.name}[{name}]")]
    if is_marked:
        call = [f"with RECORD({literal(plan.name)}):", *(f"    {line}" for line in call)]
    return _launch_source(plan, [last], f"{doc}\n    ", opening, [*grid, *call]) + "\n"


def refusal_lines(refusal: str) -> list[str]:
    """Return the statements by which a function of a module refuses to run in Triton's own interpreter."""
    return ["if INTERPRETED:", f"    raise NotImplementedError({literal(refusal)})"] if refusal else []


def flag_lines(plan: LauncherPlan) -> list[str]:
    """Return the statements that pass bools as integers to Triton's own interpreter; that of Triton 3.6 takes none."""
    flags = [argument.name for argument in plan.parameters if isinstance(argument.value, bool)]
    return ["if INTERPRETED:", *(f"    {name} = int({name})" for name in flags)] if flags else []


def operator_launch_text(plan: LauncherPlan, operator: str) -> str:
    """Return the source of a ``launch`` that goes through an operator."""
    doc = f"Call the operator, and return {', '.join(plan.mutated) or 'nothing'}."
    return _launch_source(plan, [], doc, [], [_call_expression(plan, operator)])


def _launch_source(plan: LauncherPlan, last: list[str], doc: str, opening: list[str], closing: list[str]) -> str:
    """Return the source of ``launch``, which allocates missing outputs between ``opening`` and ``closing``."""
    optional = [*(f"{argument.name}=None" for argument, _ in plan.allocated), *last]
    parameters = [*(argument.name for argument in plan.required), *(["*", *optional] if optional else [])]
    allocated = [f"if {a.name} is None:\n        {a.name} = {text}" for a, text in plan.allocated]
    returned = [f"return {', '.join(plan.mutated)}"] if plan.mutated else []
    lines = [f"def launch({', '.join([*parameters, '**meta'])}):", f'    """{doc}"""']
    return "\n".join([*lines, *(f"    {line}" for line in (*opening, *allocated, *closing, *returned))])


def _call_expression(plan: LauncherPlan, callee: str) -> str:
    """Return the call with arguments by name; those up to one called ``grid``, a name of Triton, by position."""
    names = [argument.name for argument in plan.launch.arguments]
    first = plan.launch.arguments[: names.index("grid") + 1] if "grid" in names else ()
    passed = [f"meta.pop({literal(a.name)})" if a.constexpr else a.name for a in first]
    passed += [f"{argument.name}={argument.name}" for argument in plan.parameters if argument not in first]
    return f"{callee}({', '.join(passed)}, **meta)"


def _docstring_lines(plan: LauncherPlan, defaults: str) -> Iterator[str]:
    yield f"Launch `{plan.name}`" + (f" and return {', '.join(plan.mutated)}." if plan.mutated else ".")
    yield ""
    yield f"``meta`` replaces constexprs and options of the kernel; their defaults are {defaults}."
    for argument, text in plan.allocated:
        yield f"``{argument.name}``, which is only written, is allocated where it is not given, as ``{text}``."
    if plan.grid is None:
        yield "The grid is not known as a formula, and has to be given."
    elif plan.grid.inferred:
        times = "1 launch" if plan.grid.inferred == 1 else f"{plan.grid.inferred} launches"
        yield f"The grid is inferred from {times}; give another where it does not hold."


def _mutated_tensors(parameters: Sequence[Argument], result: Result | None) -> tuple[str, ...]:
    known = None if result is None or not result.complete else {*result.writes, *result.atomics}
    memory = [
        member.name
        for argument in parameters
        for member in (argument.members if argument.kind == "tuple" else (argument,))
        if not argument.alias and member.kind in ("tensor", "descriptor")
    ]
    return tuple(name for name in memory if known is None or name in known)


def _only_written(parameters: Sequence[Argument], result: Result | None) -> list[Argument]:
    if result is None or not result.complete:
        return []
    only = set(result.writes) - set(result.reads) - set(result.atomics)
    shared = {name for argument in parameters if argument.alias for name in (argument.name, argument.alias)}
    return [a for a in parameters if a.kind == "tensor" and a.name in only - shared]


def _allocation_expression(output: Argument, inputs: Sequence[Argument], launches: Sequence[RecordedLaunch]) -> str:
    """Return the expression that allocates an output, or "" where its shape does not follow from the inputs."""
    for source in inputs:
        pairs = [(launch.argument(output.name), launch.argument(source.name)) for launch in launches]
        if all((a.shape, a.stride) == (b.shape, b.stride) for a, b in pairs):
            same = source.dtype == output.dtype
            return f"torch.zeros_like({source.name}" + (")" if same else f", dtype=torch.{output.dtype})")
    extents = [_extent_expression(axis, output, inputs, launches) for axis in range(len(output.shape))]
    if not inputs or None in extents or output.stride != contiguous_strides(output.shape):
        return ""
    shape = f"({', '.join(map(str, extents))}{',' if len(extents) == 1 else ''})"
    alike = next((a for a in inputs if a.dtype == output.dtype), None)
    dtype = f"{alike.name}.dtype" if alike else f"torch.{output.dtype}"
    return f"torch.zeros({shape}, dtype={dtype}, device={inputs[0].name}.device)"


def _extent_expression(
    axis: int, output: Argument, inputs: Sequence[Argument], launches: Sequence[RecordedLaunch]
) -> str | None:
    """Return the expression of an output's extent, from the first input, or from the last one for the last axis."""
    last = axis == len(output.shape) - 1
    axes = [(a, k) for a in (reversed(inputs) if last and axis else inputs) for k in range(len(a.shape))]
    axes.sort(key=lambda place: place[1] != (len(place[0].shape) - 1 if last and axis else axis))
    for source, k in axes:
        if all(_axis_of(launch, output.name, axis) == _axis_of(launch, source.name, k) for launch in launches):
            return f"{source.name}.shape[{k}]"
    return None


def _axis_of(launch: RecordedLaunch, name: str, axis: int) -> int | None:
    shape = launch.argument(name).shape
    return shape[axis] if axis < len(shape) else None


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a contiguous tensor of this shape, in elements."""
    inner = itertools.accumulate(reversed(shape[1:]), operator.mul, initial=1)
    return tuple(inner)[::-1][: len(shape)]


Source = Callable[[str], str]
"""Returns a function of the sizes under a name, as Python, that gives the place of a config."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The configs tuned on one model of device, and a function of the sizes that picks one.

    ``configs`` are constexprs and options by name, ``shared_bytes`` the shared memory of each, where known. ``words``
    describes the measurement; it is a prediction if ``is_predicted``.
    """

    device: str
    target: str
    multiprocessors: int
    configs: tuple[Mapping[str, Any], ...]
    shared_bytes: tuple[int | None, ...]
    source: Source
    words: str
    is_predicted: bool = False


@dataclass(frozen=True, slots=True)
class Chooser:
    """The rule by which the ``launch`` of a module chooses its config.

    ``sizes`` are the arguments of the decisions by name, each as an expression over the parameters of the launch;
    ``device`` is the expression of the device. The first of ``decisions`` is that of the device it was tuned on.
    """

    sizes: tuple[tuple[str, str], ...]
    device: str
    decisions: tuple[Decision, ...]

    @property
    def names(self) -> frozenset[str]:
        """The constexprs and options that the configs set."""
        return frozenset(name for decision in self.decisions for config in decision.configs for name in config)

    def call(self, given: str = "meta") -> str:
        """Return the expression of the config for a call; ``given`` are options that the caller sets."""
        sizes = ", ".join(text for _, text in self.sizes)
        return f"config_for(({sizes},), {self.device}, {given})"

    @property
    def variants(self) -> str:
        """The expression of the configs that fit a ``device``, which the module checks."""
        decided = "decision_on(torch.device(device))"
        return f'[{decided}["configs"][place] for place in fitting({decided}, torch.device(device))]'

    @property
    def words(self) -> str:
        """The choice of the config, as a sentence for the module's docstring."""
        names = ", ".join(name for name, _ in self.sizes)
        how = {True: "predicted, not measured, for", False: "measured on"}
        places = [f"{how[d.is_predicted]} {d.device} ({d.words})" for d in self.decisions]
        return f"Its config is chosen by {names}, as {'; '.join(places)}."

    def sections(self, kernel: str) -> Iterator[str]:
        """Yield the source: functions of the sizes, the table of decisions, and the lookup."""
        for number, decision in enumerate(self.decisions, 1):
            yield decision.source(f"choose_{number}").rstrip()
        yield "\n".join(
            ["DECISIONS = {", *_decision_rows(self.decisions), "}", f"KERNEL = {literal(kernel)}", "CHOSEN = {}"]
        )
        yield from (function_text(function) for function in (config_for, decision_on, fitting, decision_for))


def _decision_rows(decisions: Sequence[Decision]) -> Iterator[str]:
    for number, decision in enumerate(decisions, 1):
        predicted = "Predicted, not measured: " * decision.is_predicted
        yield f"    # {predicted}{' '.join(decision.words.split())}"
        yield f"    {literal(decision.device)}: {{"
        yield f'        "target": {literal(decision.target)},'
        yield f'        "multiprocessors": {decision.multiprocessors},'
        yield '        "configs": ['
        yield from (f"            {literal(dict(config))}," for config in decision.configs)
        yield "        ],"
        yield f'        "shared_bytes": {literal(list(decision.shared_bytes))},'
        yield f'        "choose": choose_{number},'
        yield "    },"


INTERPRETED = False
KERNEL = ""
DECISIONS: dict[str, dict[str, Any]] = {}
"""By model of device: ``target``, ``multiprocessors``, ``configs``, their ``shared_bytes``, and ``choose`` by sizes."""
CHOSEN: dict[tuple[Any, ...], dict[str, Any]] = {}


def config_for(sizes: Any, device: Any, given: Any) -> Any:
    """Return the config for some sizes on a device; empty where ``given`` sets all that configs set.

    Chosen configs are cached. A config that needs more shared memory than the device has is replaced by the largest
    that fits.
    """
    config = CHOSEN.get((device, sizes))
    if config is None:
        if all(name in given for decision in DECISIONS.values() for config in decision["configs"] for name in config):
            return {}
        decision = decision_on(device)
        places = fitting(decision, device)
        place = decision["choose"](*sizes)
        if place not in places:
            place = max(places, key=lambda other: decision["shared_bytes"][other] or 0)
        config = CHOSEN[(device, sizes)] = decision["configs"][place]
    return config


def decision_on(device: Any) -> Any:
    """Return the decision for a device; for the CPU, which interprets kernels, the first."""
    import torch

    if INTERPRETED or torch.device(device).type == "cpu":
        return next(iter(DECISIONS.values()))
    return decision_for(torch.cuda.get_device_properties(device), is_amd=torch.version.hip is not None)


def fitting(decision: Any, device: Any) -> Any:
    """Return the places of the configs that fit the shared memory of a device."""
    import torch

    is_cpu = INTERPRETED or torch.device(device).type == "cpu"
    properties: Any = None if is_cpu else torch.cuda.get_device_properties(device)
    limit = getattr(properties, "shared_memory_per_block_optin", None)
    needs = enumerate(decision["shared_bytes"])
    places = [place for place, need in needs if limit is None or need is None or need <= limit]
    if not places:
        raise RuntimeError(f"No config of {KERNEL} fits {limit} bytes of shared memory: tune it on {properties.name}.")
    return places


def decision_for(properties: Any, is_amd: Any) -> Any:
    """Return the decision for a device; without one, that of the nearest model, with a warning."""
    import warnings

    if properties.name in DECISIONS:
        return DECISIONS[properties.name]
    amd = properties.gcnArchName.split(":")[0] if is_amd else ""
    target = f"hip:{amd}" if is_amd else f"cuda:{properties.major}{properties.minor}"
    backend = target.partition(":")[0]
    near = {name: decision for name, decision in DECISIONS.items() if decision["target"].partition(":")[0] == backend}
    if not near:
        raise RuntimeError(
            f"{KERNEL} was tuned on {', '.join(DECISIONS)}, and {properties.name} is of another kind ({target}): "
            "tune it there, or pass all constexprs and options to launch."
        )

    def distance(name: Any) -> Any:
        numbers = ["".join(filter(str.isdigit, text)) for text in (near[name]["target"], target)]
        generations = abs(int(numbers[0] or 0) - int(numbers[1] or 0))
        ratio = near[name]["multiprocessors"] / properties.multi_processor_count
        return near[name]["target"] != target, generations, max(ratio, 1 / ratio)

    nearest = min(near, key=distance)
    warnings.warn(
        f"{KERNEL} was not tuned on {properties.name}; its configs are those for {nearest}, the nearest that is known.",
        stacklevel=5,
    )
    return near[nearest]

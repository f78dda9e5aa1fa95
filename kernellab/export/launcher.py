"""The text of ``launch(...)``: what a caller of an exported kernel needs, with the rest worked out.

Where the config is chosen by sizes and device, the text has a table of decisions by device, a function of the sizes for
each, and a dictionary of what was chosen before, so that a launch whose sizes are known costs a lookup. The functions
that look into the table stand here as modules have them. There, the names above them are globals of the module, filled
with what was measured; here they are empty, and tests fill them.
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
from kernellab.registry.recorded_launches import GridText, options_of, why_unmade
from kernellab.source import literal
from kernellab.store import Argument, RecordedLaunch, Result


@dataclass(frozen=True, slots=True)
class LauncherPlan:
    """What is known of how a kernel is launched.

    ``required`` and ``allocated`` are its parameters that are no constexprs: those that a caller gives, and those that
    are only written, with the expression that makes each. ``mutated`` are all that it writes; ``meta`` gives the
    constexprs and options of the last launch as expressions, ``grid`` the grid, if it is known. ``refusal`` is why
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
        """What ``launch`` calls the grid of a launch, which may be the name of a parameter."""
        return "launch_grid" if any(argument.name == "grid" for argument in self.launch.arguments) else "grid"

    @property
    def given(self) -> tuple[Argument, ...]:
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

    ``computed`` are the constexprs that heuristics give, ``functions`` the names of arguments that are functions.
    """
    launch = launches[-1]
    given = [argument for argument in launch.arguments if not argument.constexpr]
    outputs = _only_written(given, result)
    inputs = [a for a in given if a.kind == "tensor" and a not in outputs and a.shape and not a.alias]
    allocated = tuple((a, text) for a in outputs if (text := _allocation(a, inputs, launches)))
    made = {argument.name for argument, _ in allocated}
    meta = {key: text for key, text in meta_of(launch, functions).items() if key not in computed}
    return LauncherPlan(
        name=name,
        launch=launch,
        required=tuple(argument for argument in given if argument.name not in made),
        allocated=allocated,
        mutated=_mutated(given, result),
        meta=tuple(meta.items()),
        grid=grid_text(launches),
    )


def meta_of(launch: RecordedLaunch, functions: Mapping[Argument, str]) -> dict[str, str]:
    """Return the constexprs and options of a launch, by name, each as an expression.

    ``functions`` gives the expressions of arguments that are functions, or values without a literal.
    """
    constexprs = {a.name: functions[a] if a in functions else scalar_text(a) for a in launch.arguments if a.constexpr}
    return {**constexprs, **{name: literal(value) for name, value in options_of(launch).items()}}


def scalar_text(argument: Argument) -> str:
    """Return a scalar or a dtype as an expression.

    Raises:
        UsageError: the argument is something else.
    """
    if argument.kind == "scalar":
        return literal(argument.value)
    if argument.kind == "dtype":
        return f'tl.dtype("{argument.value}")'
    raise UsageError(why_unmade(argument))


# Unlike `record_function`, it is no operation of torch, and costs less than a microsecond where nothing is profiled.
RECORDER = 'RECORD = getattr(torch._C._profiler, "_RecordFunctionFast", torch.profiler.record_function)'


def launch_text(
    plan: LauncherPlan,
    configs: str = "META",
    *,
    defaults: str = "those of the recorded launch",
    is_marked: bool = True,
) -> str:
    """Return the source of ``launch``; ``configs`` is the expression of the meta-parameters of a call.

    ``defaults`` says in words what they are where the caller gives none. One that ``is_marked`` shows in profiles of
    torch, which costs the host a microsecond.
    """
    opening = [*refusal_lines(plan.refusal), f"meta = {{**{configs}, **meta}}"]
    name = plan.grid_name
    grid = [f"if {name} is None:", f"    {name} = {plan.grid.text}"] if plan.grid else []
    last = f"{name}=None" if plan.grid else name
    doc = "\n".join(f"    {line}".rstrip() for line in _doc(plan, defaults)).lstrip()
    call = [_call(plan, f"{plan.name}[{name}]")]
    if is_marked:
        call = [f"with RECORD({literal(plan.name)}):", *(f"    {line}" for line in call)]
    return _launch(plan, [last], f"{doc}\n    ", opening, [*grid, *call]) + "\n"


def refusal_lines(refusal: str) -> list[str]:
    """Return the statements by which a function of a module refuses to run in Triton's own interpreter."""
    return ["if INTERPRETED:", f"    raise NotImplementedError({literal(refusal)})"] if refusal else []


def operator_launch_text(plan: LauncherPlan, operator: str) -> str:
    """Return the source of a ``launch`` that goes through an operator."""
    doc = f"Call the operator, and return {', '.join(plan.mutated) or 'nothing'}."
    return _launch(plan, [], doc, [], [_call(plan, operator)])


def _launch(plan: LauncherPlan, last: list[str], doc: str, opening: list[str], closing: list[str]) -> str:
    """Return a ``launch``, which allocates between ``opening`` and ``closing`` what it was not given."""
    optional = [*(f"{argument.name}=None" for argument, _ in plan.allocated), *last]
    parameters = [*(argument.name for argument in plan.required), *(["*", *optional] if optional else [])]
    allocated = [f"if {a.name} is None:\n        {a.name} = {text}" for a, text in plan.allocated]
    returned = [f"return {', '.join(plan.mutated)}"] if plan.mutated else []
    lines = [f"def launch({', '.join([*parameters, '**meta'])}):", f'    """{doc}"""']
    return "\n".join([*lines, *(f"    {line}" for line in (*opening, *allocated, *closing, *returned))])


def _call(plan: LauncherPlan, called: str) -> str:
    """Return the call with the arguments by name; those up to one called ``grid``, which Triton takes, by position."""
    names = [argument.name for argument in plan.launch.arguments]
    first = plan.launch.arguments[: names.index("grid") + 1] if "grid" in names else ()
    passed = [f"meta.pop({literal(a.name)})" if a.constexpr else a.name for a in first]
    passed += [f"{argument.name}={argument.name}" for argument in plan.given if argument not in first]
    return f"{called}({', '.join(passed)}, **meta)"


def _doc(plan: LauncherPlan, defaults: str) -> Iterator[str]:
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


def _mutated(given: Sequence[Argument], result: Result | None) -> tuple[str, ...]:
    """Return the tensors that the kernel writes or updates: all of them where that is not known."""
    known = None if result is None or not result.complete else {*result.writes, *result.atomics}
    memory = [
        member.name
        for argument in given
        for member in (argument.members if argument.kind == "tuple" else (argument,))
        if not argument.alias and member.kind in ("tensor", "descriptor")
    ]
    return tuple(name for name in memory if known is None or name in known)


def _only_written(given: Sequence[Argument], result: Result | None) -> list[Argument]:
    if result is None or not result.complete:
        return []
    only = set(result.writes) - set(result.reads) - set(result.atomics)
    shared = {name for argument in given if argument.alias for name in (argument.name, argument.alias)}
    return [a for a in given if a.kind == "tensor" and a.name in only - shared]


def _allocation(output: Argument, inputs: Sequence[Argument], launches: Sequence[RecordedLaunch]) -> str:
    """Return the expression that makes an output, or "" where its shape does not follow from the inputs."""
    for source in inputs:
        if _have_one_layout(launches, output, source):
            same = source.dtype == output.dtype
            return f"torch.zeros_like({source.name}" + (")" if same else f", dtype=torch.{output.dtype})")
    extents = [_extent(axis, output, inputs, launches) for axis in range(len(output.shape))]
    if not inputs or None in extents or output.stride != _contiguous(output.shape):
        return ""
    shape = f"({', '.join(map(str, extents))}{',' if len(extents) == 1 else ''})"
    alike = next((a for a in inputs if a.dtype == output.dtype), None)
    dtype = f"{alike.name}.dtype" if alike else f"torch.{output.dtype}"
    return f"torch.zeros({shape}, dtype={dtype}, device={inputs[0].name}.device)"


def _extent(axis: int, output: Argument, inputs: Sequence[Argument], launches: Sequence[RecordedLaunch]) -> str | None:
    """Return what gives one extent of an output: that axis of the first input, or of the last one for the last axis."""
    last = axis == len(output.shape) - 1
    axes = [(a, k) for a in (reversed(inputs) if last and axis else inputs) for k in range(len(a.shape))]
    axes.sort(key=lambda found: found[1] != (len(found[0].shape) - 1 if last and axis else axis))
    for source, k in axes:
        if all(_axis_of(launch, output.name, axis) == _axis_of(launch, source.name, k) for launch in launches):
            return f"{source.name}.shape[{k}]"
    return None


def _have_one_layout(launches: Sequence[RecordedLaunch], output: Argument, source: Argument) -> bool:
    pairs = [(launch.argument(output.name), launch.argument(source.name)) for launch in launches]
    return all((a.shape, a.stride) == (b.shape, b.stride) for a, b in pairs)


def _axis_of(launch: RecordedLaunch, name: str, axis: int) -> int | None:
    shape = launch.argument(name).shape
    return shape[axis] if axis < len(shape) else None


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    inner = itertools.accumulate(reversed(shape[1:]), operator.mul, initial=1)
    return tuple(inner)[::-1][: len(shape)]


Source = Callable[[str], str]
"""Returns a function of the sizes under a name, as Python, that gives the place of a config."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What was found on one model of device: few configs, and a function of the sizes that picks one.

    ``configs`` are constexprs and options by name, ``shared_bytes`` what each takes of shared memory, where that is
    known. ``words`` says what it was measured with.
    """

    device: str
    target: str
    multiprocessors: int
    configs: tuple[Mapping[str, Any], ...]
    shared_bytes: tuple[int | None, ...]
    source: Source
    words: str


@dataclass(frozen=True, slots=True)
class Chooser:
    """How the launch of a module finds its config.

    ``sizes`` are the arguments of the decisions by name, each as an expression over the parameters of the launch, and
    ``device`` is the expression of the device. The first of the ``decisions`` is that of the device it was made for.
    """

    sizes: tuple[tuple[str, str], ...]
    device: str
    decisions: tuple[Decision, ...]

    @property
    def names(self) -> frozenset[str]:
        """The constexprs and options that the configs set."""
        return frozenset(name for decision in self.decisions for config in decision.configs for name in config)

    def call(self, given: str = "meta") -> str:
        """Return the expression of the config, but for what is ``given``."""
        sizes = ", ".join(text for _, text in self.sizes)
        return f"config_for(({sizes},), {self.device}, {given})"

    @property
    def variants(self) -> str:
        """The expression of the configs that fit a ``device``, which the module checks."""
        decided = "decision_on(torch.device(device))"
        return f'[{decided}["configs"][place] for place in fitting({decided}, torch.device(device))]'

    @property
    def words(self) -> str:
        """What the docstring of the module says of it."""
        names = ", ".join(name for name, _ in self.sizes)
        where = "; ".join(f"{each.device} ({each.words})" for each in self.decisions)
        return f"Its config is chosen by {names}, as measured on {where}."

    def sections(self, kernel: str) -> Iterator[str]:
        """Yield the text: the functions of the sizes, the table, and what looks into it."""
        for number, decision in enumerate(self.decisions, 1):
            yield decision.source(f"choose_{number}").rstrip()
        yield "\n".join(["DECISIONS = {", *_rows(self.decisions), "}", f"KERNEL = {literal(kernel)}", "CHOSEN = {}"])
        yield from (function_text(function) for function in (config_for, decision_on, fitting, decision_for))


def _rows(decisions: Sequence[Decision]) -> Iterator[str]:
    for number, decision in enumerate(decisions, 1):
        yield f"    # {' '.join(decision.words.split())}"
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
    """Return the config for some sizes on a device, and nothing where ``given`` has all that configs set.

    What was chosen once is looked up. A config that takes more shared memory than the device has is replaced by the
    largest that fits.
    """
    found = CHOSEN.get((device, sizes))
    if found is None:
        if all(name in given for each in DECISIONS.values() for config in each["configs"] for name in config):
            return {}
        decision = decision_on(device)
        places = fitting(decision, device)
        place = decision["choose"](*sizes)
        if place not in places:
            place = max(places, key=lambda other: decision["shared_bytes"][other] or 0)
        found = CHOSEN[(device, sizes)] = decision["configs"][place]
    return found


def decision_on(device: Any) -> Any:
    """Return the decision of a device; for the CPU, which interprets kernels, the first."""
    import torch

    if INTERPRETED or torch.device(device).type == "cpu":
        return next(iter(DECISIONS.values()))
    return decision_for(torch.cuda.get_device_properties(device), is_amd=torch.version.hip is not None)


def fitting(decision: Any, device: Any) -> Any:
    """Return the places of the configs that the shared memory of a device allows."""
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
    """Return the decision of a device; of one on which nobody measured, that of the nearest, with a warning."""
    import warnings

    if properties.name in DECISIONS:
        return DECISIONS[properties.name]
    amd = properties.gcnArchName.split(":")[0] if is_amd else ""
    target = f"hip:{amd}" if is_amd else f"cuda:{properties.major}{properties.minor}"
    backend = target.partition(":")[0]
    near = {name: each for name, each in DECISIONS.items() if each["target"].partition(":")[0] == backend}
    if not near:
        raise RuntimeError(
            f"{KERNEL} was tuned on {', '.join(DECISIONS)}, and {properties.name} is of another kind ({target}): "
            "tune it there, or pass all constexprs and options to launch."
        )

    def distance(name: Any) -> Any:
        numbers = ["".join(filter(str.isdigit, each)) for each in (near[name]["target"], target)]
        generations = abs(int(numbers[0] or 0) - int(numbers[1] or 0))
        ratio = near[name]["multiprocessors"] / properties.multi_processor_count
        return near[name]["target"] != target, generations, max(ratio, 1 / ratio)

    nearest = min(near, key=distance)
    warnings.warn(
        f"{KERNEL} was not tuned on {properties.name}; its configs are those for {nearest}, the nearest that is known.",
        stacklevel=5,
    )
    return near[nearest]

"""The text of ``launch(...)``: what a caller of an exported kernel needs, with the rest worked out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernellab.errors import UsageError
from kernellab.registry import grid_text
from kernellab.registry.recorded_launches import GridText, options_of, why_unmade
from kernellab.source import literal
from kernellab.store import Argument, RecordedLaunch, Result


@dataclass(frozen=True, slots=True)
class LauncherPlan:
    """What is known of how a kernel is launched.

    ``required`` and ``allocated`` are its parameters that are no constexprs: those that a caller gives, and those that
    are only written, with the expression that makes each. ``mutated`` are all that it writes; ``meta`` gives the
    constexprs and options of the last launch as expressions, ``grid`` the grid, if it is known.
    """

    name: str
    launch: RecordedLaunch
    required: tuple[Argument, ...]
    allocated: tuple[tuple[Argument, str], ...]
    mutated: tuple[str, ...]
    complete: bool
    meta: tuple[tuple[str, str], ...]
    grid: GridText | None

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
        complete=result is not None and result.complete,
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
    tuned: bool = False,
    defaults: str = "those of the recorded launch",
    is_marked: bool = True,
) -> str:
    """Return the source of ``launch``; ``configs`` is the expression of the meta-parameters of a call.

    ``defaults`` says in words what they are where the caller gives none. One that ``is_marked`` shows in profiles of
    torch, which costs the host a microsecond. A ``tuned`` kernel chooses its config itself, but for the interpreter,
    which cannot time anything.
    """
    opening = [f"meta = {{**{configs}, **meta}}"]
    called = plan.name
    if tuned:
        called = "function"
        opening += [f"function = {plan.name}.fn if INTERPRETED else {plan.name}", "if INTERPRETED:"]
        opening += [f"    meta = {{**{plan.name}.configs[0].all_kwargs(), **meta}}"]
    grid = ["if grid is None:", f"    grid = {plan.grid.text}"] if plan.grid else []
    last = "grid=None" if plan.grid else "grid"
    doc = "\n".join(f"    {line}".rstrip() for line in _doc(plan, defaults)).lstrip()
    call = [_call(plan, f"{called}[grid]")]
    if is_marked:
        call = [f"with RECORD({literal(plan.name)}):", *(f"    {line}" for line in call)]
    return _launch(plan, [last], f"{doc}\n    ", opening, [*grid, *call]) + "\n"


def operator_launch_text(plan: LauncherPlan, operator: str) -> str:
    """Return the source of a ``launch`` that goes through an operator."""
    doc = f"Call the operator, and return {', '.join(plan.mutated) or 'nothing'}."
    return _launch(plan, [], doc, [], [_call(plan, operator)])


def _launch(plan: LauncherPlan, last: list[str], doc: str, opening: list[str], closing: list[str]) -> str:
    """Return a ``launch``, which allocates between ``opening`` and ``closing`` what it was not given."""
    optional = [*(f"{argument.name}=None" for argument, _ in plan.allocated), *last]
    parameters = [*(argument.name for argument in plan.required), *(["*", *optional] if optional else [])]
    allocated = [line for argument, text in plan.allocated for line in _allocated(argument, text)]
    returned = [f"return {', '.join(plan.mutated)}"] if plan.mutated else []
    lines = [f"def launch({', '.join([*parameters, '**meta'])}):", f'    """{doc}"""']
    return "\n".join([*lines, *(f"    {line}" for line in (*opening, *allocated, *closing, *returned))])


def _call(plan: LauncherPlan, called: str) -> str:
    passed = ", ".join(f"{argument.name}={argument.name}" for argument in plan.given)
    return f"{called}({passed}, **meta)"


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


def _allocated(argument: Argument, text: str) -> Iterator[str]:
    yield f"if {argument.name} is None:"
    yield f"    {argument.name} = {text}"


def _mutated(given: Sequence[Argument], result: Result | None) -> tuple[str, ...]:
    """Return the tensors that the kernel writes or updates: all of them where that is not known."""
    known = None if result is None or not result.complete else {*result.writes, *result.atomics}
    memory = [
        m.name for a in given if not a.alias for m in (a.members if a.kind == "tuple" else (a,)) if holds_memory(m)
    ]
    return tuple(name for name in memory if known is None or name in known)


def holds_memory(argument: Argument) -> bool:
    """Tell whether an argument is a tensor, or a descriptor of one."""
    return argument.kind in ("tensor", "descriptor")


def _only_written(given: Sequence[Argument], result: Result | None) -> list[Argument]:
    if result is None or not result.complete:
        return []
    only = set(result.writes) - set(result.reads) - set(result.atomics)
    shared = {name for argument in given if argument.alias for name in (argument.name, argument.alias)}
    return [a for a in given if a.kind == "tensor" and a.name in only - shared]


def _allocation(output: Argument, inputs: Sequence[Argument], launches: Sequence[RecordedLaunch]) -> str:
    """Return the expression that makes an output, or "" where its shape does not follow from the inputs."""
    for source in inputs:
        if _always(launches, output, source, same_layout=True):
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


def _always(launches: Sequence[RecordedLaunch], output: Argument, source: Argument, *, same_layout: bool) -> bool:
    pairs = [(launch.argument(output.name), launch.argument(source.name)) for launch in launches]
    return all(a.shape == b.shape and (not same_layout or a.stride == b.stride) for a, b in pairs)


def _axis_of(launch: RecordedLaunch, name: str, axis: int) -> int | None:
    shape = launch.argument(name).shape
    return shape[axis] if axis < len(shape) else None


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))

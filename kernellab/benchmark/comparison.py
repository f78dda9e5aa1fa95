"""Compare two kernels on the same inputs: source, effects, outputs, and time."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from kernellab.checking.comparison import Check, ExpectedValue, compare
from kernellab.checking.reference import THE_FUNCTION, Reference, ReferenceFunction, call_by_name, reference_of
from kernellab.compile.types import Compiled
from kernellab.display import HOOK, Drawable
from kernellab.errors import KernellabError, UsageError, first_line
from kernellab.explain.predicting import predict_implementation
from kernellab.explain.prediction import Prediction
from kernellab.explain.verbs import device_of
from kernellab.launch.arguments import memory_of
from kernellab.launch.memory import copy_arguments
from kernellab.launch.poison import Poison, pattern_mask
from kernellab.launch.runtime import Runtime
from kernellab.registry import Registry, Session, grid_text, recorded_version, regenerated_inputs, texts_of, values_of
from kernellab.registry.launches_from_store import RecordedVersion, given_arguments
from kernellab.store import Argument, RecordedLaunch, Version
from kernellab.timing.config import NO_CONFIG
from kernellab.timing.launches import Implementation, Launches, launch_on_copies
from kernellab.timing.stopwatch import interval, ratio_interval
from kernellab.timing.timer import gpu_timers

SpeedDifference = Literal["faster", "slower", "no difference"]
_MARGIN = 0.01  # smaller differences count as none
_ROUNDS = 60
_TIMEOUT_S = 60.0
_LINES = 40
_WARM_UP_ROUNDS = 3  # the first ones compile, and load the kernels


@dataclass(frozen=True, slots=True)
class Timing:
    """Interleaved timings, with a flushed L2: medians in milliseconds, and how many times longer the right one takes.

    ``low`` and ``high`` bound that ratio with 99 % confidence. The ``verdict`` is on the right one, beyond a margin of
    1 %. ``note`` says where a time is by another clock than that of the GPU worker.
    """

    left_ms: float
    right_ms: float
    ratio: float
    low: float
    high: float
    verdict: SpeedDifference
    rounds: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class PredictedTimes:
    """The predicted times of both sides on one device, where there was no GPU to time them."""

    left: Prediction
    right: Prediction

    @property
    def ratio(self) -> float:
        """How many times longer the right one takes."""
        return self.right.time_ms / self.left.time_ms

    @property
    def may_tie(self) -> bool:
        """Whether the intervals overlap."""
        return self.left.low_ms <= self.right.high_ms and self.right.low_ms <= self.left.high_ms


@dataclass(frozen=True, slots=True)
class Comparison(Drawable):
    """A comparison of two sides. ``sources`` are their texts, ``effects`` the differences of their effects, in words.

    ``compiled`` has both kernels compiled for the launch, or None for an expression, and for a kernel that does not
    compile. ``failures`` are the errors of a side. ``outputs`` compares the right side's outputs with the left
    one's; ``timing`` is None for the reason in ``why_no_timing``, and without a GPU ``predicted`` has predicted times,
    if the model has some for both. Without ``same_inputs``, each side ran on inputs of
    its own. ``notes`` say which side ran on a grid that it was never launched with; it may fail for that alone.
    """

    names: tuple[str, str]
    sources: tuple[str, str]
    compiled: tuple[Compiled | None, Compiled | None]
    effects: tuple[str, ...]
    outputs: tuple[Check, ...]
    timing: Timing | None
    why_no_timing: str = ""
    failures: tuple[KernellabError | None, KernellabError | None] = (None, None)
    same_inputs: bool = True
    notes: tuple[str, ...] = ()
    predicted: PredictedTimes | None = None

    def __str__(self) -> str:
        """Return the card as text, at most `_LINES` lines of it."""
        lines = HOOK.bundle(self)["text/plain"].splitlines()
        more = [f"... {len(lines) - _LINES + 1} more lines; .source_diff has the source"] if len(lines) > _LINES else []
        return "\n".join([*lines[: _LINES - len(more)], *more])

    __repr__ = __str__

    @property
    def source_diff(self) -> str:
        """The unified diff of the sources; "" where they are the same."""
        old, new = (text.splitlines() for text in self.sources)
        return "\n".join(difflib.unified_diff(old, new, *self.names, lineterm=""))

    @property
    def equal(self) -> bool:
        """Whether both ended well, and all outputs are equal within the tolerance of their dtype."""
        return self.same_inputs and not any(self.failures) and all(check.equal for check in self.outputs)


@dataclass(frozen=True, slots=True)
class ComparedSide:
    """One side of a comparison. ``implementation`` is what is launched and timed, from the arguments by name.

    ``reference`` returns a function's values for the outputs. ``arguments`` are a side's own, where a version has
    other parameters than the other side, or was launched on other sizes only. ``note`` says where the grid comes from,
    if no launch with such sizes is recorded.
    """

    name: str
    source: str
    implementation: Callable[[Mapping[str, Any]], Implementation]
    reference: Callable[[Mapping[str, Any]], Reference] | None = None
    arguments: Mapping[str, Any] | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class _SideOutcome:
    """The result of compiling and launching one side; empty for a function."""

    compiled: Compiled | None = None
    memory: Mapping[str, Any] = field(default_factory=dict)
    poisoned: Poison = field(default_factory=Poison)
    failure: KernellabError | None = None
    grid: tuple[int, int, int] | None = None


def compare_kernels(session: Session, left: str | int, right: str | int | Callable[..., Any]) -> Comparison:
    """Compare two kept kernels, or one with a function of torch, on the inputs of the latest recorded launch.

    A function takes the parameters of the kernel by name, those that it names; it returns a tensor, a tuple of them in
    the order of the kernel's outputs, or a dict of some by name.

    Each kernel runs on the grid of a launch with such inputs, or on that of its grid function. A version that does not
    compile, or fails, is shown with its failure. Versions of one kernel with other parameters, or with an unknown grid
    for these inputs, run on inputs of their own; those without a launch do not run.

    Raises:
        UnknownName: there is no such kernel.
        UsageError: no launch of either kernel is known, their parameters differ, or it is not known which grid one
            takes on the inputs of the other.
    """
    kernels, runtime = session.kernels, session.runtime
    first = kernels.version(left)
    other = None if callable(right) else kernels.version(right)
    is_edited = other is not None and other.name == first.name and other.id != first.id
    try:
        launch = _common_launch(kernels, first, other)
        arguments = regenerated_inputs(launch, runtime.device)
    except UsageError as exc:
        if other is None or not is_edited:
            raise
        names, why = (first.label, other.label), "nothing was run"
        return Comparison(
            names, (_version_text(first), _version_text(other)), (None, None), (), (), None, why, (exc, exc)
        )
    one = _kernel_side(session, first, launch, is_edited=is_edited)
    two = _function_side(right, one) if other is None else _kernel_side(session, other, launch, is_edited=is_edited)
    comparison = _compare_sides(one, two, arguments, runtime)
    return replace(comparison, predicted=_predict_sides(session, comparison, (one, two), arguments))


def _common_launch(kernels: Registry, first: Version, other: Version | None) -> RecordedLaunch:
    """Return the latest launch of the first kernel, if possible one of sizes that the other was launched on, too."""
    versions = [version for version in (first, other) if version is not None]
    launches = [_launches(recorded_version(kernels.store, version)) for version in versions]
    common = [one for one in launches[0] if _launch_of_equal_sizes(launches[-1], one) is not None]
    candidates = common or launches[0] or launches[-1]
    if candidates:
        return candidates[0]
    names = first.label if other is None else f"{first.label} and {other.label}"
    raise UsageError(f"No launch of {names} is kept; launch one, for its inputs.")


def _kernel_side(session: Session, version: Version, shared: RecordedLaunch, *, is_edited: bool) -> ComparedSide:
    """Return a kernel as a side of a comparison, with constexprs and options of its own launches, if any."""
    from kernellab._triton.drivers import gpu_target_of_machine  # keeps `import kernellab` light
    from kernellab._triton.kernel import jit_function

    launches = _launches(recorded_version(session.kernels.store, version))
    own, grid = _own_launch(launches, shared)
    function = jit_function(session.kernels[version.id])
    meta = values_of(own)
    needed = [name for name in function.arg_names if name not in meta]
    missing = set(needed) - {argument.name for argument in shared.arguments}
    if missing and not is_edited:
        raise _missing_parameters_error(version, missing)

    def implementation(arguments: Mapping[str, Any]) -> Implementation:
        if missing - set(arguments):
            raise _missing_parameters_error(version, missing)
        named = {**{name: arguments[name] for name in needed}, **meta}
        gpu = None if session.runtime.is_offline() else gpu_target_of_machine()
        launch = Launches(function, launched_on(named), (), named, gpu or session.runtime.target).of(NO_CONFIG)
        return Implementation(version.label, launch, session.compiler.compile(launch.job))

    if grid is None and not is_edited:
        raise UsageError(
            f"{version.label} was launched on other sizes, and its grid {own.grid} is not known for the sizes of the "
            "other kernel. Launch both on the same sizes, or with a function as the grid."
        )
    is_apart = launches and (missing or grid is None)
    inputs = regenerated_inputs(own, session.runtime.device) if is_apart else None
    launched_on = grid if grid is not None and inputs is None else lambda named: own.grid
    note = "" if inputs is not None else _grid_note(version, launches, shared)
    return ComparedSide(version.label, _version_text(version), implementation, arguments=inputs, note=note)


def _grid_note(version: Version, launches: Sequence[RecordedLaunch], shared: RecordedLaunch) -> str:
    """Say where the grid of a version comes from; "" where it was launched with it on such sizes."""
    if not launches:
        return f"{version.label} was never launched, and runs on the grid {shared.grid} of the other side"
    if _launch_of_equal_sizes(launches, shared) is not None:
        return ""
    formula = grid_text(launches)
    return (
        f"{version.label} was not launched on these sizes: its grid comes from its grid function"
        f"{f', {formula.text}' if formula else ''}; it was last launched with {launches[0].grid}"
    )


def _missing_parameters_error(version: Version, missing: set[str]) -> UsageError:
    return UsageError(f"{version.label} takes {', '.join(sorted(missing))}, which the other kernel does not.")


def _version_text(version: Version) -> str:
    return "\n\n".join(texts_of(version))


def _launches(kept: RecordedVersion) -> list[RecordedLaunch]:
    """Return the launches of a version, the latest first."""
    return [launch for launch in reversed(kept.launches) if launch.grid is not None]


def _own_launch(
    launches: Sequence[RecordedLaunch], shared: RecordedLaunch
) -> tuple[RecordedLaunch, Callable[[Mapping[str, Any]], Any] | None]:
    """Return the launch that sets a kernel's constexprs and options, and its grid for the shared arguments.

    That is the grid of a launch on such sizes, else of a grid function; None where neither is known. A kernel without a
    launch uses the shared one.
    """
    equal_launch = _launch_of_equal_sizes(launches, shared)
    if equal_launch is not None or not launches:
        own = equal_launch or shared
        return own, lambda arguments: own.grid
    formula = grid_text(launches)
    written = formula if formula is not None and not formula.inferred else None
    return launches[0], None if written is None else written.grid_for


def _launch_of_equal_sizes(launches: Sequence[RecordedLaunch], shared: RecordedLaunch) -> RecordedLaunch | None:
    """Return the first launch with the same sizes of tensors and integers as another one."""
    sizes = list(map(_size, given_arguments(shared)))
    return next((launch for launch in launches if list(map(_size, given_arguments(launch))) == sizes), None)


def _size(argument: Argument) -> tuple[Any, ...]:
    number = argument.value if type(argument.value) is int else None
    return argument.kind, argument.shape, number, tuple(map(_size, argument.members))


def _function_side(function: Any, kernel: ComparedSide) -> ComparedSide:
    def reference(arguments: Mapping[str, Any]) -> Reference:
        check = ReferenceFunction(
            THE_FUNCTION, lambda given: call_by_name(function, given, THE_FUNCTION, f"{kernel.name} has")
        )
        return reference_of(check, arguments)

    name = getattr(function, "__name__", "the function")
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):
        source = ""
    name = "the expression" if name == "<lambda>" else name
    implementation = Implementation(name, function=function)
    return ComparedSide(name, source, lambda arguments: implementation, reference)


def _compare_sides(
    left: ComparedSide, right: ComparedSide, arguments: Mapping[str, Any], runtime: Runtime
) -> Comparison:
    names, sources = (left.name, right.name), (left.source, right.source)
    outcomes = _run_side(left, arguments, runtime), _run_side(right, arguments, runtime)
    pair = outcomes[0].compiled, outcomes[1].compiled
    failed = [name for name, outcome in zip(names, outcomes, strict=True) if outcome.failure is not None]
    checks: list[Check] = []
    same_inputs = left.arguments is None and right.arguments is None
    timing, why = None, "there is no GPU"
    if failed:
        why = f"{' and '.join(failed)} failed"
    elif not same_inputs:
        why = "their recorded launches have different arguments, so each ran on its own inputs"
    else:
        checks = _check_outputs(left, right, outcomes, arguments)
        if runtime.device != "cpu":
            timing, why = _time_sides(left, right, arguments, runtime)
    failures = outcomes[0].failure, outcomes[1].failure
    changes, notes = tuple(_effect_changes(pair)), [side.note for side in (left, right) if side.note]
    grids = outcomes[0].grid, outcomes[1].grid
    if same_inputs and None not in grids and grids[0] != grids[1]:
        notes.append(f"{names[0]} ran with the grid {grids[0]}, {names[1]} with {grids[1]}")
    return Comparison(names, sources, pair, changes, tuple(checks), timing, why, failures, same_inputs, tuple(notes))


def _predict_sides(
    session: Session, comparison: Comparison, sides: tuple[ComparedSide, ComparedSide], arguments: Mapping[str, Any]
) -> PredictedTimes | None:
    """Predict the times of two kernels that ran on the same inputs; None with a GPU, and for a function or AMD."""
    ran = comparison.same_inputs and not any(comparison.failures) and None not in comparison.compiled
    if not ran or session.runtime.device != "cpu" or session.target.backend != "cuda":
        return None
    device = device_of(session)
    left, right = (predict_implementation(side.implementation(arguments), device) for side in sides)
    return PredictedTimes(left, right)


def _run_side(side: ComparedSide, shared: Mapping[str, Any], runtime: Runtime) -> _SideOutcome:
    """Compile and launch one side, on copies that hold a pattern wherever a kernel only writes."""
    if side.reference is not None:
        return _SideOutcome()
    compiled = None
    try:
        implementation = side.implementation(shared if side.arguments is None else side.arguments)
        launch, compiled = implementation.kernel_launch, implementation.kernel
        with runtime.observers.own_launches():
            copies, poisoned = launch_on_copies(runtime, launch, compiled.effects, runtime.device, _TIMEOUT_S)
    except KernellabError as exc:
        return _SideOutcome(compiled, failure=exc)
    return _SideOutcome(compiled, memory_of(copies.arguments), poisoned, grid=launch.grid)


def _check_outputs(
    left: ComparedSide, right: ComparedSide, outcomes: tuple[_SideOutcome, _SideOutcome], arguments: Mapping[str, Any]
) -> list[Check]:
    """Compare the outputs of both sides."""
    one, two = outcomes
    mutated = frozenset[str]().union(*(o.compiled.effects.mutated for o in outcomes if o.compiled is not None))
    want = {name: tensor for name, tensor in one.memory.items() if name in mutated}
    if right.reference is not None:
        one.poisoned.lift()
        values = right.reference(arguments).of(want)
        return compare(right.name, values, want, one.poisoned.unwritten, one.poisoned.fills)
    got = {name: tensor for name, tensor in two.memory.items() if name in mutated}
    names = {filled.name for outcome in outcomes for filled in outcome.poisoned.filled}
    never = {name: pattern_mask(got[name]) ^ pattern_mask(want[name]) for name in names & got.keys() & want.keys()}
    return compare(left.name, {name: ExpectedValue(tensor) for name, tensor in want.items()}, got, never)


def _effect_changes(pair: tuple[Compiled | None, Compiled | None]) -> list[str]:
    one, two = pair
    if one is None or two is None:
        return []
    changes = []
    for kind in ("reads", "writes", "atomics"):
        before, after = getattr(one.effects, kind), getattr(two.effects, kind)
        changes += [f"no longer {kind}: {name}" for name in sorted(before - after)]
        changes += [f"now {kind}: {name}" for name in sorted(after - before)]
    return changes


def _time_sides(
    left: ComparedSide, right: ComparedSide, arguments: Mapping[str, Any], runtime: Runtime
) -> tuple[Timing | None, str]:
    """Time both sides in turns, so that drift of the device affects both; or return why that failed."""
    arguments_copy = copy_arguments(arguments)
    try:
        with runtime.observers.own_launches():
            return _time_in_turns(
                [side.implementation(arguments_copy) for side in (left, right)], arguments_copy, runtime
            ), ""
    except KernellabError as exc:
        return None, f"timing them failed: {first_line(exc)}"


def _time_in_turns(pair: list[Implementation], arguments: Mapping[str, Any], runtime: Runtime) -> Timing:
    timer = gpu_timers(runtime, _TIMEOUT_S)(arguments, pair)
    try:
        for implementation in pair:
            timer.try_out(implementation)  # outputs that differ are shown as such, and timed
        for implementation in pair:
            timer.load_in_worker(implementation)
        timer.interleave(pair, _WARM_UP_ROUNDS)
        samples = timer.interleave(pair, _ROUNDS)
        reasons = {implementation.name: timer.why_here(implementation) for implementation in pair}
        clocks = timer.clocks()
    finally:
        timer.close()
    notes = [f"{name} was timed in the notebook's own process: {why}" for name, why in reasons.items() if why]
    notes += [clocks.text] if clocks is not None and clocks.differ else []
    ratio = ratio_interval(samples[1], samples[0])
    medians = [interval(times).median for times in samples]
    verdict: SpeedDifference = "no difference"
    if ratio.low > 1 and ratio.median > 1 + _MARGIN:
        verdict = "slower"
    elif ratio.high < 1 and ratio.median < 1 - _MARGIN:
        verdict = "faster"
    return Timing(medians[0], medians[1], ratio.median, ratio.low, ratio.high, verdict, _ROUNDS, "; ".join(notes))

"""Two kernels side by side, on the same inputs: what they are, what they do, what they give, and which is faster."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from kernellab.benchmark.timer import gpu_timers
from kernellab.compile.types import Compiled
from kernellab.errors import KernellabError, Shown, UsageError, first_line
from kernellab.launch.arguments import memory_of
from kernellab.launch.memory import copied
from kernellab.launch.poison import Poison, held_in
from kernellab.launch.runtime import Runtime
from kernellab.measure.comparison import Check, ExpectedValue, compare
from kernellab.measure.config import NO_CONFIG
from kernellab.measure.launches import Implementation, Launches, launched_on_copies
from kernellab.measure.reference import Reference, bounded_values, called
from kernellab.measure.timing import interval, ratio_interval
from kernellab.registry import Registry, grid_text, made_inputs, recorded_version, texts_of, values_of
from kernellab.store import RecordedLaunch, Version
from kernellab.target import Target

Verdict = Literal["faster", "slower", "no difference"]
_MARGIN = 0.01  # a difference below this is none that anybody would act on
_ROUNDS = 60
_TIMEOUT_S = 60.0
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
    verdict: Verdict
    rounds: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Comparison(Shown):
    """A comparison. ``sources`` are the texts of both sides, ``effects`` what differs in what they do, in words.

    ``compiled`` has both kernels compiled for the launch, or None for an expression, and for a kernel that does not
    compile. ``failures`` tell why one was not compiled or did not end well. ``outputs`` compares what the right one
    writes with what the left one does; ``timing`` is None where ``why_no_timing`` says why. Without ``same_inputs``,
    each ran on inputs of its own.
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

    ``bounded`` returns the outputs of a function with their bounds. ``arguments`` are those of a version that takes
    others than the other side does.
    """

    name: str
    source: str
    implementation: Callable[[Mapping[str, Any]], Implementation]
    bounded: Callable[[Mapping[str, Any]], tuple[ExpectedValue, ...]] | None = None
    arguments: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What became of one side; of a function nothing, which is asked for what it returns."""

    compiled: Compiled | None = None
    memory: Mapping[str, Any] = field(default_factory=dict)
    poisoned: Poison = field(default_factory=Poison)
    failure: KernellabError | None = None


def compare_kernels(
    kernels: Registry, runtime: Runtime, left: str | int, right: str | int | Callable[..., Any]
) -> Comparison:
    """Compare two kept kernels, or one with a function of torch, on the inputs of the latest recorded launch.

    A function takes the parameters of the kernel by name, those that it names; it returns a tensor, or a tuple of them
    in the order of the kernel's outputs.

    A version that does not compile, or fails, is shown with its failure. Versions of one kernel are compared as far as
    that goes: those with other parameters run on inputs of their own, and those without a launch do not run.

    Raises:
        UnknownName: there is no such kernel.
        UsageError: no launch of either kernel is known, or their parameters differ.
    """
    first = kernels.version(left)
    other = None if callable(right) else kernels.version(right)
    is_edited = other is not None and other.name == first.name and other.id != first.id
    try:
        launch = _common_launch(kernels, first, other)
        arguments = made_inputs(launch, runtime.device)
    except UsageError as exc:
        if other is None or not is_edited:
            raise
        names, why = (first.label, other.label), "nothing was run"
        return Comparison(names, (_text(first), _text(other)), (None, None), (), (), None, why, (exc, exc))
    one = _kernel_side(kernels, runtime, first, launch, is_edited=is_edited)
    if other is None:
        two = _function_side(right, one)
    else:
        two = _kernel_side(kernels, runtime, other, launch, is_edited=is_edited)
    return _compared(one, two, arguments, runtime)


def _common_launch(kernels: Registry, first: Version, other: Version | None) -> RecordedLaunch:
    for version in (first, other):
        launch = recorded_version(kernels.store, version).launch if version is not None else None
        if launch is not None and launch.grid is not None:
            return launch
    names = first.label if other is None else f"{first.label} and {other.label}"
    raise UsageError(f"No launch of {names} is kept; launch one, for its inputs.")


def _kernel_side(
    kernels: Registry, runtime: Runtime, version: Version, shared: RecordedLaunch, *, is_edited: bool
) -> ComparedSide:
    """Return a kernel with constexprs and options of its own launches, where it has some."""
    from kernellab._triton.kernel import jit_function  # keeps `import kernellab` light

    kept = recorded_version(kernels.store, version)
    own = kept.launch or shared
    function = jit_function(kernels[version.id])
    meta = values_of(own)
    needed = [name for name in function.arg_names if name not in meta]
    missing = set(needed) - {argument.name for argument in shared.arguments}
    if missing and not is_edited:
        raise _foreign(version, missing)

    def given(arguments: Mapping[str, Any]) -> dict[str, Any]:
        if missing - set(arguments):
            raise _foreign(version, missing)
        return {**{name: arguments[name] for name in needed}, **meta}

    def implementation(arguments: Mapping[str, Any]) -> Implementation:
        named = given(arguments)
        grid = _grid(own, shared, kept.launches, named)
        launch = Launches(function, grid, (), named, _target(runtime)).of(NO_CONFIG)
        return Implementation(version.label, launch, runtime.compiler.compile(launch.job))

    inputs = made_inputs(own, runtime.device) if missing and kept.launch is not None else None
    return ComparedSide(version.label, _text(version), implementation, arguments=inputs)


def _target(runtime: Runtime) -> Target:
    """Return the target of what is launched: that of the GPU, whatever the lab compiles for, if there is one."""
    from kernellab._triton.drivers import gpu_target_of_machine

    found = None if runtime.is_offline() else gpu_target_of_machine()
    return runtime.target if found is None else found


def _foreign(version: Version, missing: set[str]) -> UsageError:
    return UsageError(f"{version.label} takes {', '.join(sorted(missing))}, which the other kernel does not.")


def _text(version: Version) -> str:
    return "\n\n".join(texts_of(version))


def _grid(
    own: RecordedLaunch, shared: RecordedLaunch, launches: tuple[RecordedLaunch, ...], given: Mapping[str, Any]
) -> Any:
    """Return the grid of a kernel on arguments that may be those of another: by formula, else as recorded."""
    if own == shared or not launches:
        return shared.grid
    found = grid_text(launches)
    return own.grid if found is None else found.grid_for(given)


def _function_side(function: Any, kernel: ComparedSide) -> ComparedSide:
    def bounded(arguments: Mapping[str, Any]) -> tuple[ExpectedValue, ...]:
        def taken(given: Mapping[str, Any]) -> Any:
            return called(function, given, "The function", f"{kernel.name} has")

        values = bounded_values(taken, arguments)
        return values if isinstance(values, tuple) else (values,)

    name = getattr(function, "__name__", "the function")
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):
        source = ""
    name = "the expression" if name == "<lambda>" else name
    implementation = Implementation(name, function=function)
    return ComparedSide(name, source, lambda arguments: implementation, bounded)


def _compared(left: ComparedSide, right: ComparedSide, arguments: Mapping[str, Any], runtime: Runtime) -> Comparison:
    names, sources = (left.name, right.name), (left.source, right.source)
    outcomes = _outcome(left, arguments, runtime), _outcome(right, arguments, runtime)
    pair = outcomes[0].compiled, outcomes[1].compiled
    failed = [name for name, outcome in zip(names, outcomes, strict=True) if outcome.failure is not None]
    checks: list[Check] = []
    same_inputs = left.arguments is None and right.arguments is None
    timing, why = None, "there is no GPU"
    if failed:
        why = f"{' and '.join(failed)} did not end well"
    elif not same_inputs:
        why = "they take other arguments, and ran on inputs of their own"
    else:
        checks = _checks(left, right, outcomes, arguments)
        if runtime.device != "cpu":
            timing, why = _timed(left, right, arguments, runtime)
    failures = outcomes[0].failure, outcomes[1].failure
    return Comparison(names, sources, pair, tuple(_effects(pair)), tuple(checks), timing, why, failures, same_inputs)


def _outcome(side: ComparedSide, shared: Mapping[str, Any], runtime: Runtime) -> _Outcome:
    """Compile and launch one side, on copies that hold a pattern wherever a kernel only writes."""
    if side.bounded is not None:
        return _Outcome()
    compiled = None
    try:
        implementation = side.implementation(shared if side.arguments is None else side.arguments)
        launch, compiled = implementation.launch, implementation.kernel
        assert launch is not None, "what has no bounds is a kernel"
        with runtime.observers.withheld():
            copies, poisoned = launched_on_copies(runtime, launch, compiled.effects, runtime.device, _TIMEOUT_S)
    except KernellabError as exc:
        return _Outcome(compiled, failure=exc)
    return _Outcome(compiled, memory_of(copies.arguments), poisoned)


def _checks(
    left: ComparedSide, right: ComparedSide, outcomes: tuple[_Outcome, _Outcome], arguments: Mapping[str, Any]
) -> list[Check]:
    """Compare the outputs of both."""
    one, two = outcomes
    mutated = frozenset[str]().union(*(o.compiled.effects.mutated for o in outcomes if o.compiled is not None))
    want = {name: each for name, each in one.memory.items() if name in mutated}
    if right.bounded is not None:
        one.poisoned.lift()
        values = Reference(right.name, right.bounded(arguments), "").of(want)
        return compare(right.name, values, want, one.poisoned.unwritten, one.poisoned.fills)
    got = {name: each for name, each in two.memory.items() if name in mutated}
    never = {each.name: held_in(got[each.name]) & ~held_in(want[each.name]) for each in two.poisoned.filled}
    return compare(left.name, {name: ExpectedValue(each) for name, each in want.items()}, got, never)


def _effects(pair: tuple[Compiled | None, Compiled | None]) -> list[str]:
    one, two = pair
    if one is None or two is None:
        return []
    found = []
    for kind in ("reads", "writes", "atomics"):
        before, after = getattr(one.effects, kind), getattr(two.effects, kind)
        found += [f"no longer {kind}: {name}" for name in sorted(before - after)]
        found += [f"now {kind}: {name}" for name in sorted(after - before)]
    return found


def _timed(
    left: ComparedSide, right: ComparedSide, arguments: Mapping[str, Any], runtime: Runtime
) -> tuple[Timing | None, str]:
    """Time both in turns, so that what slows the device down for a while slows both; or say why that failed."""
    taken = copied(arguments)
    try:
        with runtime.observers.withheld():
            return _timed_in_turns([side.implementation(taken) for side in (left, right)], taken, runtime), ""
    except KernellabError as exc:
        return None, f"timing them failed: {first_line(exc)}"


def _timed_in_turns(pair: list[Implementation], arguments: Mapping[str, Any], runtime: Runtime) -> Timing:
    timer = gpu_timers(runtime, _TIMEOUT_S)(arguments, pair)
    try:
        for each in pair:
            timer.try_out(each)  # outputs that differ are shown as such, and timed
        for each in pair:
            timer.hand_over(each)
        timer.interleave(pair, _WARM_UP_ROUNDS)
        samples = timer.interleave(pair, _ROUNDS)
        reasons = {each.name: timer.why_here(each) for each in pair}
        clocks = timer.clocks()
    finally:
        timer.close()
    notes = [f"{name} was timed in the notebook's own process: {why}" for name, why in reasons.items() if why]
    notes += [clocks.text] if clocks is not None and clocks.differ else []
    ratio = ratio_interval(samples[1], samples[0])
    medians = [interval(each).median for each in samples]
    verdict: Verdict = "no difference"
    if ratio.low > 1 and ratio.median > 1 + _MARGIN:
        verdict = "slower"
    elif ratio.high < 1 and ratio.median < 1 - _MARGIN:
        verdict = "faster"
    return Timing(medians[0], medians[1], ratio.median, ratio.low, ratio.high, verdict, _ROUNDS, "; ".join(notes))

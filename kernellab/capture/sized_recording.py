"""Symbolic sizes of launches, and the recording with sizes as expressions, which is written at the end.

The tracker of the block gets the expressions behind the grid, the integers and the constants of a launch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sympy
import torch

from kernellab._triton.kernel import Kernel
from kernellab.capture.fake_calls import SYMBOLIC, SymbolicLayout, nested, recorded, symbols_of
from kernellab.capture.seen_tensors import Recording, is_descriptor
from kernellab.capture.size import Guard, Sizes, compiled, sized, text_of
from kernellab.capture.size_tracking import SizeTracker
from kernellab.capture.tape import WINDOW, Seen, Step, TapeDescriptor, TensorLayout, members_of, window_step
from kernellab.errors import UsageError

_OF_USER = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


class LaunchSizes:
    """Launches the kernels of one recording with plain numbers, and tracks the symbolic ones."""

    def __init__(self, tracker: SizeTracker) -> None:
        self.tracker = tracker

    def launch(self, kernel: Kernel, grid: Any, args: tuple[Any, ...], meta: dict[str, Any]) -> Any:
        """Launch a kernel; sizes among its arguments may be symbolic."""
        tracker = self.tracker
        if not tracker.is_following:
            args, meta = nested((args, meta), recorded)
            return kernel.run(*args, grid=grid, warmup=False, **meta)
        with tracker.recorder.working():
            tracker.cover()
            for part in members_of((args, meta)):
                tensor = part if isinstance(part, torch.Tensor) else getattr(part, "base", None)
                if isinstance(tensor, torch.Tensor):
                    tracker.fake_of(tensor)
        given = {**dict(zip(kernel.arg_names, args, strict=False)), **meta}
        asked = _AskedGrid(tracker, grid, given)
        plain_args, plain_meta = nested((args, meta), recorded)
        tracker.is_launching = True
        try:
            handle = kernel.run(*plain_args, grid=asked if callable(grid) else asked(given), warmup=False, **plain_meta)
        finally:
            tracker.is_launching = False
        self._take(kernel, given, asked)
        if any(index not in tracker.arguments for index in tracker.new_steps()):
            tracker.fix_all("hooks of a launch work with sizes")
        tracker.pass_steps()
        return handle

    def _take(self, kernel: Kernel, given: Mapping[str, Any], asked: _AskedGrid) -> None:
        """Track the sizes of the last launch, if it was recorded."""
        tracker = self.tracker
        index = len(tracker.recording.steps) - 1
        if index not in tracker.recording.launched or index in tracker.arguments:
            with tracker.env.because("the grid of a launch is empty"):
                require_constant(tracker, asked.last)
            return
        seen, step = tracker.recording.launched[index], tracker.recording.steps[index]
        name = seen.kernel.__name__
        tracker.arguments[index] = (), {n: given.get(n, v) for n, v in step.kwargs}
        bound = {**{p.name: p.default for p in seen.kernel.params if p.has_default}, **seen.constants, **given}
        tracker.grids[index] = asked.extents(bound)
        if seen.tuning is not None:
            grids = [asked.extents({**bound, **supplied}) for supplied in seen.tuning.supplied]
            tracker.config_grids[index] = tuple(grids)
        with tracker.env.because(f"{name} was compiled for it"):
            for constant, value in {**seen.constants, **seen.options}.items():
                require_constant(tracker, given.get(constant, value))
            for part in members_of(list(given.values())):
                require_constant(tracker, list(getattr(part, "block_shape", ())))
            for number in _numbers(tracker.arguments[index][1]):
                if isinstance(number, torch.SymInt) and number.node.hint == 1:
                    bool(number == 1)  # Triton compiles for the one
                elif isinstance(number, torch.SymFloat | torch.SymBool):
                    tracker.fix(symbols_of(number), f"{name} takes a number that is no integer of it")
        self._require_heuristics(kernel, given, seen)
        _require_told(tracker, index, seen)

    def _require_heuristics(self, kernel: Kernel, given: Mapping[str, Any], seen: Seen) -> None:
        """Run the heuristics of a kernel once more, on symbolic sizes, to get their decisions as guards."""
        tracker = self.tracker
        values = {
            **seen.options,
            **seen.constants,
            **{n: v for n, v in given.items() if n not in seen.constants or isinstance(v, SYMBOLIC)},
        }
        layer: Any = kernel
        while layer is not seen.kernel and layer is not None:
            for name, heuristic in dict(getattr(layer, "values", None) or {}).items():
                with tracker.env.because(f"the heuristic of {name} decides so"):
                    try:
                        with tracker.asking_user():
                            decided = heuristic(values)
                    except _OF_USER:  # it had other values when it was asked first, or takes plain numbers only
                        tracker.fix(tracker.symbols_given(given), f"the heuristic of {name} cannot be asked for others")
                        continue
                    require_constant(tracker, decided)
            if getattr(layer, "early_config_prune", None) or getattr(layer, "perf_model", None):
                tracker.fix(tracker.symbols_given(given), "its configs are chosen by it")
            layer = getattr(layer, "fn", None)


class _AskedGrid:
    """A grid with extents that may be symbolic; a call with the arguments that Triton bound returns plain ones."""

    def __init__(self, tracker: SizeTracker, grid: Any, given: Mapping[str, Any]) -> None:
        self.tracker = tracker
        self.grid = grid
        self.given = given
        self.last: Any = ()

    def __call__(self, bound: Mapping[str, Any]) -> Any:
        return nested(self._asked(bound), recorded)

    def extents(self, bound: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return three extents for these arguments."""
        found = self._asked(bound)
        return (*(found if isinstance(found, list | tuple) else (found,)), 1, 1)[:3]

    def _asked(self, bound: Mapping[str, Any]) -> Any:
        if not callable(self.grid):
            self.last = self.grid
            return self.grid
        symbolic = {
            name: value
            for name, value in self.given.items()
            if any(isinstance(part, SYMBOLIC) for part in members_of(value))
        }
        with self.tracker.asking_user():
            self.last = self.grid({**bound, **symbolic})
        return self.last


def require_constant(tracker: SizeTracker, value: Any) -> None:
    """Add the guard that a constant, which is compiled into a kernel, keeps its recorded value."""
    for part in members_of(value):
        if isinstance(part, torch.SymInt):
            rounded = rounded_up(tracker, part)
            if rounded is None:
                bool(part == part.node.hint)
            else:
                tracker.require(sympy.Le(rounded, part.node.hint))
                tracker.require(sympy.Gt(rounded, part.node.hint // 2))
        elif isinstance(part, torch.SymBool):
            bool(part)
        elif isinstance(part, torch.SymFloat):
            tracker.fix(symbols_of(part), "a constant of a kernel follows from it")


def rounded_up(tracker: SizeTracker, number: Any) -> Any:
    """Return the number that ``triton.next_power_of_2`` rounded up to this one; None for another number."""
    import triton

    bitwise = [p for p in sympy.preorder_traversal(number.node.expr) if type(p).__name__ == "BitwiseFn_bitwise_or"]
    if not bitwise:
        return None
    start = bitwise[-1].args[0] + 1
    hint = tracker.hint_of(start)
    if hint is None or not start.free_symbols:
        return None
    again = triton.next_power_of_2(tracker.env.create_symintnode(start, hint=hint))
    return start if isinstance(again, torch.SymInt) and again.node.expr == number.node.expr else None


def _require_told(tracker: SizeTracker, index: int, seen: Seen) -> None:
    """Fix the sizes that a launch may depend on through untracked integers.

    A size is tracked if an integer argument or the grid depends on it, or is equal to one that is, which is a guard. A
    constant grid that covers a number in blocks of a constexpr holds for as many blocks.
    """
    step, name = tracker.recording.steps[index], seen.kernel.__name__
    given, grid = _numbers(tracker.arguments[index][1]), tracker.grids[index]
    told = symbols_of([*given, *grid])
    layouts = [tracker.layouts[i].numbers for i in step.taken if i in tracker.layouts]
    constants = {n for n in (*given, *grid) if type(n) is int and n > 1}
    compiled = {n for n in seen.constants.values() if type(n) is int and n > 1}
    if constants | compiled:
        shown = ", ".join(map(str, sorted(constants or compiled)))
        reason = f"{name} takes {shown}, which follows from no size"
        untold = _other_than(told, symbols_of(layouts) - told, tracker, name)
        tracker.fix(untold | {s for s in symbols_of(layouts) if tracker.hints.get(s) in constants}, reason)
    if any(isinstance(extent, SYMBOLIC) for extent in grid):
        return
    blocks = [v for v in seen.constants.values() if type(v) is int and v > 1]
    for number in given:
        for block in blocks if isinstance(number, torch.SymInt) else ():
            count = -(-number.node.hint // block)
            if count in grid:
                with tracker.env.because(f"the grid of {name} is {seen.grid}"):
                    bool(number <= count * block)
                    bool(number > (count - 1) * block)


def _other_than(told: set[Any], untold: set[Any], tracker: SizeTracker, name: str) -> set[Any]:
    """Return the untracked sizes that differ from all tracked ones; equal ones get a guard."""
    others = set()
    for symbol in sorted(untold, key=str):
        equal = [other for other in sorted(told, key=str) if tracker.hints[other] == tracker.hints[symbol]]
        if not equal:
            others.add(symbol)
        else:
            with tracker.env.because(f"{name} takes them for one"):
                tracker.require(sympy.Eq(symbol, equal[0]))
    return others


def _numbers(value: Any) -> list[Any]:
    """Return the integers among the arguments of a launch, symbolic ones and those of descriptors included."""
    found = []
    for part in members_of(value):
        if is_descriptor(part):
            found += [*part.shape, *part.strides]
        elif isinstance(part, SYMBOLIC) or (isinstance(part, int) and not isinstance(part, bool)):
            found.append(part)
    return found


def sizes_of(tracker: SizeTracker) -> Sizes:
    """Write the expressions of a tracker into its recording; return the guards and sources, over its own symbols."""
    recording, resized = tracker.recording, _Sizing(tracker)
    for index, layout in tracker.layouts.items():
        known = recording.values[index]
        known.layout = resized.layout(known.layout, layout)
    for index, step in enumerate(recording.steps):
        recording.steps[index] = _window(recording, step) if step.operation == WINDOW else resized.step(index, step)
    for index, grid in tracker.grids.items():
        seen = recording.launched[index]
        recording.launched[index] = resized.launch(seen, grid, tracker.config_grids.get(index, ()))
    for step in recording.steps:
        for index in step.results:
            if index >= 0 and step.operation != WINDOW:
                _storage(recording, index)
    return Sizes(tuple(_guards(tracker)), tuple(tracker.measured.items()), frozenset(tracker.asked))


def _guards(tracker: SizeTracker) -> Iterator[Guard]:
    """Yield the guards, each once, and for each symbol that it is not 0 or 1, which torch treats differently."""
    for guard in list(tracker.env.told):
        _is_written(tracker, guard.condition)
    known = set()
    for guard in tracker.env.told:
        if guard.condition not in known and guard.condition.free_symbols and _has_text(guard.condition):
            known.add(guard.condition)
            yield guard
    for symbol in tracker.measured:
        if tracker.env.replace(symbol).free_symbols:
            yield Guard(sympy.Ge(symbol, 2), reason="0 and 1 are sizes of their own for torch")


def _is_written(tracker: SizeTracker, expression: Any) -> bool:
    """Fix the symbols of an expression that Python cannot express; return whether it can."""
    if _has_text(expression):
        return True
    tracker.fix(expression.free_symbols, "what is computed with it cannot be written down")
    return False


def _has_text(expression: Any) -> bool:
    try:
        compiled(text_of(expression))
    except (UsageError, SyntaxError, NotImplementedError):
        return False
    return True


class _Sizing:
    """Rewrites recorded numbers as sizes, by the expressions of a tracker."""

    def __init__(self, tracker: SizeTracker) -> None:
        self.tracker = tracker

    def number(self, value: Any, symbolic: Any) -> Any:
        """Return a recorded number as a size, where its expression is known."""
        if not isinstance(symbolic, torch.SymInt):
            return value
        expression = self.tracker.env.replace(symbolic.node.expr)
        if not _is_written(self.tracker, expression):
            return value
        return sized(value, expression)

    def launch(self, seen: Seen, grid: Sequence[Any], grids: Sequence[Sequence[Any]]) -> Seen:
        """Return a launch with sizes in its grid, and in those for each config."""
        tuning = seen.tuning
        if tuning is not None:
            of_configs = tuple(tuple(map(self.number, *pair)) for pair in zip(tuning.grids, grids, strict=True))
            tuning = dataclasses.replace(tuning, grids=of_configs)
        return dataclasses.replace(seen, grid=tuple(map(self.number, seen.grid, grid)), tuning=tuning)

    def layout(self, known: TensorLayout, symbolic: SymbolicLayout) -> TensorLayout:
        shape = tuple(map(self.number, known.shape, symbolic.shape))
        stride = tuple(map(self.number, known.stride, symbolic.stride))
        offset = (
            self.number(known.offset, symbolic.offset) if recorded(symbolic.offset) == known.offset else known.offset
        )
        return dataclasses.replace(known, shape=shape, stride=stride, offset=offset)

    def step(self, index: int, step: Step) -> Step:
        """Return a step with sizes among its arguments."""
        args, kwargs = self.tracker.arguments.get(index, ((), {}))
        found = tuple(map(self.value, step.args, args)) if args else step.args
        options = tuple((name, self.value(value, kwargs.get(name, value))) for name, value in step.kwargs)
        return dataclasses.replace(step, args=found, kwargs=options)

    def value(self, value: Any, symbolic: Any) -> Any:
        """Return a recorded argument with sizes in it."""
        if isinstance(value, TapeDescriptor):
            if not hasattr(symbolic, "block_shape"):
                return value
            shape = tuple(map(self.number, value.shape, symbolic.shape))
            return dataclasses.replace(
                value, shape=shape, strides=tuple(map(self.number, value.strides, symbolic.strides))
            )
        if isinstance(value, list | tuple) and isinstance(symbolic, list | tuple) and len(value) == len(symbolic):
            members = [self.value(each, other) for each, other in zip(value, symbolic, strict=True)]
            return type(value)(*members) if hasattr(value, "_fields") else type(value)(members)
        return self.number(value, symbolic)


def _window(recording: Recording, step: Step) -> Step:
    """Return the step that makes a view, for the current layouts."""
    (base, *_), (index,) = step.args, step.results
    values = recording.values
    return dataclasses.replace(
        window_step(base.index, values[base.index].layout, index, values[index].layout), place=step.place
    )


def _storage(recording: Recording, index: int) -> None:
    """Replace the size of a storage by an expression if a value spans all of it."""
    known = recording.values[index]
    whole = (known.layout.offset + known.layout.span) * known.layout.itemsize
    if int(whole) == recording.storages[known.storage]:
        recording.storages[known.storage] = whole

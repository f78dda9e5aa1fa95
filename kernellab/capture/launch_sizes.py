"""What the sizes of a launch follow from: its grid, its integers and its constants, each as the user computed it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy
import torch

from kernellab.capture.fake_calls import nested, parts_of, recorded, symbols_of
from kernellab.capture.size_tracking import SizeTracker
from kernellab.capture.tape import Seen

_OF_USER = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


class LaunchSizes:
    """Sends the launches of one recording on with plain numbers, and tells its tracker what these follow from."""

    def __init__(self, tracker: SizeTracker) -> None:
        self.tracker = tracker

    def launch(self, kernel: Any, grid: Any, args: tuple[Any, ...], meta: dict[str, Any]) -> Any:
        """Launch a kernel; sizes among its arguments may be symbolic."""
        tracker = self.tracker
        if not tracker.is_following:
            args, meta = nested((args, meta), recorded)
            return kernel.run(*args, grid=grid, warmup=False, **meta)
        with tracker.recorder.working():
            tracker.cover()
            for part in parts_of((args, meta)):
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

    def _take(self, kernel: Any, given: Mapping[str, Any], asked: _AskedGrid) -> None:
        """Note what a launch that was recorded follows from, if one was."""
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
            for part in parts_of(list(given.values())):
                require_constant(tracker, list(getattr(part, "block_shape", ())))
            for number in _numbers(tracker.arguments[index][1]):
                if isinstance(number, torch.SymInt) and number.node.hint == 1:
                    bool(number == 1)  # Triton compiles for the one
                elif isinstance(number, torch.SymFloat | torch.SymBool):
                    tracker.fix(symbols_of(number), f"{name} takes a number that is no integer of it")
        self._require_heuristics(kernel, given, seen)
        _require_told(tracker, index, seen)

    def _require_heuristics(self, kernel: Any, given: Mapping[str, Any], seen: Seen) -> None:
        """Ask the heuristics of a kernel once more, with symbolic sizes: what they decide is a guard."""
        tracker = self.tracker
        values = {
            **seen.options,
            **seen.constants,
            **{n: v for n, v in given.items() if n not in seen.constants or _is_symbolic(v)},
        }
        while kernel is not seen.kernel and kernel is not None:
            for name, heuristic in dict(getattr(kernel, "values", None) or {}).items():
                with tracker.env.because(f"the heuristic of {name} decides so"):
                    try:
                        with tracker.asking_user():
                            decided = heuristic(values)
                    except _OF_USER:  # it had other values when it was asked first, or takes plain numbers only
                        tracker.fix(tracker.symbols_given(given), f"the heuristic of {name} cannot be asked for others")
                        continue
                    require_constant(tracker, decided)
            if getattr(kernel, "early_config_prune", None) or getattr(kernel, "perf_model", None):
                tracker.fix(tracker.symbols_given(given), "its configs are chosen by it")
            kernel = getattr(kernel, "fn", None)


class _AskedGrid:
    """A grid whose extents may be symbolic; called with what Triton bound, it returns plain ones."""

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
        symbolic = {name: value for name, value in self.given.items() if any(map(_is_symbolic, parts_of(value)))}
        with self.tracker.asking_user():
            self.last = self.grid({**bound, **symbolic})
        return self.last


def require_constant(tracker: SizeTracker, value: Any) -> None:
    """Add the guard that a constant, which is compiled into a kernel, stays what it was recorded as."""
    for part in parts_of(value):
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
    """Return what a number rounds up by ``triton.next_power_of_2``; None for a number that is none of its."""
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
    """Fix the sizes that a launch was not told of, where it takes numbers of which nobody knows what they follow from.

    A size counts as told where an integer argument or the grid follows from it, or is equal to one of those, which is a
    guard. A constant grid that covers a number in blocks of a constexpr holds where it takes as many blocks.
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
    if any(_is_symbolic(extent) for extent in grid):
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
    """Return the sizes that a launch was not told of and that equal none it was; where they do, that is a guard."""
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
    for part in parts_of(value):
        if hasattr(part, "block_shape") and isinstance(getattr(part, "base", None), torch.Tensor):
            found += [*part.shape, *part.strides]
        elif _is_symbolic(part) or (isinstance(part, int) and not isinstance(part, bool)):
            found.append(part)
    return found


def _is_symbolic(value: Any) -> bool:
    return isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool)

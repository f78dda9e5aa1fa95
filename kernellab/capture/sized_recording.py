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
from kernellab.capture.fake_calls import SYMBOLIC, SymbolicLayout, plain_value, symbols_of
from kernellab.capture.size import Guard, Number, Size, Sizes, compile_expression, size_or_int, text_of
from kernellab.capture.size_tracking import SizeTracker
from kernellab.capture.tape import (
    WINDOW,
    RecordedKernelLaunch,
    Step,
    TapeDescriptor,
    TensorLayout,
    map_nested,
    members_of,
    window_step,
)
from kernellab.capture.tracked_tensors import Recording, is_descriptor
from kernellab.errors import UsageError
from kernellab.source.text import USER_ERRORS


def launch_with_sizes(
    tracker: SizeTracker, kernel: Kernel, grid: Any, args: tuple[Any, ...], meta: dict[str, Any]
) -> Any:
    """Launch a kernel with plain numbers, and track those among its arguments that are symbolic."""
    if not tracker.is_following:
        args, meta = map_nested((args, meta), plain_value)
        return kernel.run(*args, grid=grid, warmup=False, **meta)
    if not tracker.tracks_shapes and not tracker.numbers.known:
        return kernel.run(*args, grid=grid, warmup=False, **meta)
    with tracker.recorder.suspend():
        tracker.fix_unfollowed()
        for part in members_of((args, meta)):
            tensor = part if isinstance(part, torch.Tensor) else getattr(part, "base", None)
            if isinstance(tensor, torch.Tensor):
                tracker.fake_of(tensor)
    arguments = {**dict(zip(kernel.arg_names, args, strict=False)), **meta}
    tracked_grid = _TrackedGrid(tracker, grid, arguments)
    plain_args, plain_meta = map_nested((args, meta), plain_value)
    tracker.is_launching = True
    try:
        handle = kernel.run(
            *plain_args,
            grid=tracked_grid if callable(grid) else tracked_grid(arguments),
            warmup=False,
            **plain_meta,
        )
    finally:
        tracker.is_launching = False
    _track_launch(tracker, kernel, arguments, tracked_grid)
    if any(index not in tracker.arguments for index in tracker.new_steps()):
        tracker.fix_all("hooks of a launch use sizes")
    tracker.mark_followed()
    return handle


def _track_launch(
    tracker: SizeTracker, kernel: Kernel, arguments: Mapping[str, Any], tracked_grid: _TrackedGrid
) -> None:
    """Track the sizes of the last launch, if it was recorded."""
    index = len(tracker.recording.steps) - 1
    if index not in tracker.recording.launches or index in tracker.arguments:
        with tracker.env.because("the grid of a launch is empty"):
            require_constant(tracker, tracked_grid.last)
        return
    record, step = tracker.recording.launches[index], tracker.recording.steps[index]
    name = record.kernel.__name__
    tracker.arguments[index] = (), {n: arguments.get(n, v) for n, v in step.kwargs}
    bound = {**{p.name: p.default for p in record.kernel.params if p.has_default}, **record.constants, **arguments}
    tracker.grids[index] = tracked_grid.extents(bound)
    if record.tuning is not None:
        grids = [tracked_grid.extents({**bound, **supplied}) for supplied in record.tuning.supplied]
        tracker.config_grids[index] = tuple(grids)
    with tracker.env.because(f"{name} was compiled for it"):
        for constant, value in {**record.constants, **dict(record.use.options)}.items():
            require_constant(tracker, arguments.get(constant, value))
        for part in members_of(list(arguments.values())):
            require_constant(tracker, list(getattr(part, "block_shape", ())))
        for number in _numbers(tracker.arguments[index][1]):
            if isinstance(number, torch.SymInt) and number.node.hint == 1:
                bool(number == 1)  # Triton specializes on 1
            elif isinstance(number, torch.SymBool):
                bool(number)  # a guard
            elif isinstance(number, torch.SymFloat) and not symbols_of(number) <= tracker.numbers.known.keys():
                tracker.fix(symbols_of(number), f"{name} takes a number computed from it that is not an integer")
    _require_heuristics(tracker, kernel, arguments, record)
    _pin_untraceable_sizes(tracker, index, record)


def _require_heuristics(
    tracker: SizeTracker, kernel: Kernel, arguments: Mapping[str, Any], record: RecordedKernelLaunch
) -> None:
    """Run the heuristics of a kernel once more, on symbolic sizes, to get their decisions as guards."""
    values = {
        **dict(record.use.options),
        **record.constants,
        **{n: v for n, v in arguments.items() if n not in record.constants or isinstance(v, SYMBOLIC)},
    }
    layer: Any = kernel
    while layer is not record.kernel and layer is not None:
        for name, heuristic in dict(getattr(layer, "values", None) or {}).items():
            with tracker.env.because(f"the heuristic of {name} depends on it"):
                try:
                    with tracker.follow_user_function():
                        decided = heuristic(values)
                except USER_ERRORS:  # it depends on values of its first call, or takes plain numbers only
                    reason = f"the heuristic of {name} cannot run on other sizes"
                    tracker.fix(tracker.symbols_in(arguments), reason)
                    continue
                require_constant(tracker, decided)
        if getattr(layer, "early_config_prune", None) or getattr(layer, "perf_model", None):
            tracker.fix(tracker.symbols_in(arguments), "its configs are chosen by it")
        layer = getattr(layer, "fn", None)


class _TrackedGrid:
    """A grid with extents that may be symbolic; a call with the arguments that Triton bound returns plain ones."""

    def __init__(self, tracker: SizeTracker, grid: Any, arguments: Mapping[str, Any]) -> None:
        self.tracker = tracker
        self.grid = grid
        self.arguments = arguments
        self.last: Any = ()

    def __call__(self, bound: Mapping[str, Any]) -> Any:
        return map_nested(self._evaluate(bound), plain_value)

    def extents(self, bound: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return three extents for these arguments."""
        extents = self._evaluate(bound)
        return (*(extents if isinstance(extents, list | tuple) else (extents,)), 1, 1)[:3]

    def _evaluate(self, bound: Mapping[str, Any]) -> Any:
        if not callable(self.grid):
            self.last = self.grid
            return self.grid
        symbolic = {
            name: value
            for name, value in self.arguments.items()
            if any(isinstance(part, SYMBOLIC) for part in members_of(value))
        }
        with self.tracker.follow_user_function():
            self.last = self.grid({**bound, **symbolic})
        return self.last


def require_constant(tracker: SizeTracker, value: Any) -> None:
    """Add the guard that a constant, which is compiled into a kernel, keeps its recorded value."""
    for part in members_of(value):
        if isinstance(part, torch.SymInt):
            rounded = power_of_2_argument(tracker, part)
            if rounded is None:
                bool(part == part.node.hint)
            else:
                tracker.require(sympy.Le(rounded, part.node.hint))
                tracker.require(sympy.Gt(rounded, part.node.hint // 2))
        elif isinstance(part, torch.SymBool):
            bool(part)
        elif isinstance(part, torch.SymFloat):
            tracker.fix(symbols_of(part), "a constant of a kernel follows from it")


def power_of_2_argument(tracker: SizeTracker, number: Any) -> Any:
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


def _pin_untraceable_sizes(tracker: SizeTracker, index: int, record: RecordedKernelLaunch) -> None:
    """Fix the sizes that a launch may depend on through untracked integers.

    A size is tracked if an integer argument or the grid depends on it, or is equal to one that is, which is a guard. A
    constant grid that covers a number in blocks of a constexpr holds for as many blocks.
    """
    step, name = tracker.recording.steps[index], record.kernel.__name__
    integers, grid = _numbers(tracker.arguments[index][1]), tracker.grids[index]
    tracked = symbols_of([*integers, *grid]) - tracker.numbers.known.keys()
    layouts = [tracker.layouts[i].numbers for i in step.operands if i in tracker.layouts]
    constants = {n for n in (*integers, *grid) if type(n) is int and n > 1}
    compiled_constants = {n for n in record.constants.values() if type(n) is int and n > 1}
    if constants | compiled_constants:
        shown = ", ".join(map(str, sorted(constants or compiled_constants)))
        reason = f"{name} takes {shown}, which was not computed from a size"
        untracked = _untracked_sizes(tracked, symbols_of(layouts) - tracked, tracker, name)
        tracker.fix(untracked | {s for s in symbols_of(layouts) if tracker.hints.get(s) in constants}, reason)
    if any(isinstance(extent, SYMBOLIC) for extent in grid):
        return
    blocks = [v for v in record.constants.values() if type(v) is int and v > 1]
    for number in integers:
        is_size = isinstance(number, torch.SymInt) and not tracker.numbers.is_among(symbols_of(number))
        for block in blocks if is_size else ():
            count = -(-number.node.hint // block)
            if count in grid:
                with tracker.env.because(f"the grid of {name} is {record.use.grid}"):
                    bool(number <= count * block)
                    bool(number > (count - 1) * block)


def _untracked_sizes(tracked: set[Any], untracked: set[Any], tracker: SizeTracker, name: str) -> set[Any]:
    """Return the untracked sizes that differ from all tracked ones; equal ones get a guard."""
    others = set()
    for symbol in sorted(untracked, key=str):
        equal = [other for other in sorted(tracked, key=str) if tracker.hints[other] == tracker.hints[symbol]]
        if not equal:
            others.add(symbol)
        else:
            with tracker.env.because(f"{name} uses them as one size"):
                tracker.require(sympy.Eq(symbol, equal[0]))
    return others


def _numbers(value: Any) -> list[Any]:
    """Return the integers among the arguments of a launch, symbolic ones and those of descriptors included."""
    numbers = []
    for part in members_of(value):
        if is_descriptor(part):
            numbers += [*part.shape, *part.strides]
        elif isinstance(part, SYMBOLIC) or (isinstance(part, int) and not isinstance(part, bool)):
            numbers.append(part)
    return numbers


def sizes_of(tracker: SizeTracker) -> Sizes:
    """Write the expressions of a tracker into its recording; return the guards and sources, over its own symbols."""
    recording, sizing = tracker.recording, _Sizing(tracker)
    for index, layout in tracker.layouts.items():
        known = recording.values[index]
        known.layout = sizing.sized_layout(known.layout, layout)
    for index, step in enumerate(recording.steps):
        recording.steps[index] = (
            _resized_view(recording, step) if step.operation == WINDOW else sizing.step(index, step)
        )
    for index, grid in tracker.grids.items():
        record = recording.launches[index]
        recording.launches[index] = sizing.launch(record, grid, tracker.config_grids.get(index, ()))
    for step in recording.steps:
        for index in step.results:
            if index >= 0 and step.operation != WINDOW:
                _resize_storage(recording, index)
    for symbol, number in tracker.numbers.free():
        step = recording.steps[number.step]
        recorded = Number(number.value, symbol) if isinstance(number.value, float) else Size(number.value, symbol)
        recording.steps[number.step] = dataclasses.replace(step, args=(*step.args[:-1], recorded))
    return Sizes(tuple(_guards(tracker)), tuple(tracker.sources.items()), frozenset(tracker.inspected_storages))


def _guards(tracker: SizeTracker) -> Iterator[Guard]:
    """Yield the guards, each once, and for each symbol that it is not 0 or 1, which torch treats differently."""
    for guard in list(tracker.env.guards_with_places):
        _keep_writable(tracker, guard.condition)
    known = set()
    for guard in tracker.env.guards_with_places:
        if guard.condition not in known and guard.condition.free_symbols and _is_writable(guard.condition):
            known.add(guard.condition)
            yield guard
    for symbol in tracker.sources:
        if tracker.env.replace(symbol).free_symbols:
            yield Guard(sympy.Ge(symbol, 2), reason="0 and 1 are sizes of their own for torch")


def _keep_writable(tracker: SizeTracker, expression: Any) -> bool:
    """Fix the symbols of an expression that Python cannot express; return whether it can."""
    if _is_writable(expression):
        return True
    tracker.fix(expression.free_symbols, "what is computed with it cannot be written down")
    return False


def _is_writable(expression: Any) -> bool:
    try:
        compile_expression(text_of(expression))
    except (UsageError, SyntaxError, NotImplementedError):
        return False
    return True


class _Sizing:
    """Rewrites recorded numbers as sizes, by the expressions of a tracker."""

    def __init__(self, tracker: SizeTracker) -> None:
        self.tracker = tracker

    def number(self, value: Any, symbolic: Any) -> Any:
        """Return a recorded number as a size, where its expression is known."""
        if not isinstance(symbolic, torch.SymInt | torch.SymFloat):
            return value
        expression = self.tracker.env.replace(symbolic.node.expr)
        if not _keep_writable(self.tracker, expression):
            return value
        if isinstance(symbolic, torch.SymFloat):
            return Number(value, expression) if expression.free_symbols else value
        return size_or_int(value, expression)

    def launch(
        self, record: RecordedKernelLaunch, grid: Sequence[Any], grids: Sequence[Sequence[Any]]
    ) -> RecordedKernelLaunch:
        """Return a launch with sizes in its grid, and in those for each config."""
        tuning = record.tuning
        if tuning is not None:
            of_configs = tuple(tuple(map(self.number, *pair)) for pair in zip(tuning.grids, grids, strict=True))
            tuning = dataclasses.replace(tuning, grids=of_configs)
        use = dataclasses.replace(record.use, grid=tuple(map(self.number, record.use.grid, grid)))
        return dataclasses.replace(record, use=use, tuning=tuning)

    def sized_layout(self, known: TensorLayout, symbolic: SymbolicLayout) -> TensorLayout:
        shape = tuple(map(self.number, known.shape, symbolic.shape))
        stride = tuple(map(self.number, known.stride, symbolic.stride))
        layout = dataclasses.replace(known, shape=shape, stride=stride)
        if plain_value(symbolic.offset) != known.offset:
            return layout
        return dataclasses.replace(layout, offset=self.number(known.offset, symbolic.offset))

    def step(self, index: int, step: Step) -> Step:
        """Return a step with sizes among its arguments."""
        args, kwargs = self.tracker.arguments.get(index, ((), {}))
        sized_args = tuple(map(self.value, step.args, args)) if args else step.args
        options = tuple((name, self.value(value, kwargs.get(name, value))) for name, value in step.kwargs)
        return dataclasses.replace(step, args=sized_args, kwargs=options)

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
            members = [self.value(member, other) for member, other in zip(value, symbolic, strict=True)]
            return type(value)(*members) if hasattr(value, "_fields") else type(value)(members)
        return self.number(value, symbolic)


def _resized_view(recording: Recording, step: Step) -> Step:
    """Return the step that makes a view, for the current layouts."""
    (base, *_), (index,) = step.args, step.results
    values = recording.values
    return dataclasses.replace(
        window_step(base.index, values[base.index].layout, index, values[index].layout), place=step.place
    )


def _resize_storage(recording: Recording, index: int) -> None:
    """Replace the size of a storage by an expression if a value spans all of it."""
    known = recording.values[index]
    whole = (known.layout.offset + known.layout.span) * known.layout.itemsize
    if int(whole) == recording.storages[known.storage]:
        recording.storages[known.storage] = whole

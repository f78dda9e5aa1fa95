"""Symbolic sizes while a program is recorded: Python computes with expressions in place of sizes.

A mode for functions of torch gives the user sizes of tensors as integers of torch's `ShapeEnv`. A computation with them
is an expression, and a decision a guard; a use that needs a plain number fixes a size, by a guard as well.

Each call of torch gets the recorded numbers, and is repeated on fake tensors of symbolic shapes. Where both run the
same operations with equal numbers, the arguments and layouts of the recorded ones get the expressions. Where they do
not, the sizes that could matter are fixed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import sympy
import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.weak import WeakTensorKeyDictionary

from kernellab._triton.tracing import keep_from_compiling
from kernellab.capture.fake_calls import (
    SYMBOLIC,
    FakeCall,
    FakeCalls,
    FakeMismatch,
    SymbolicLayout,
    expression_of,
    gives_numbers,
    layout_of_fake,
    plain_layout,
    plain_value,
    symbolic_argument,
    symbols_of,
)
from kernellab.capture.function_recorder import SET_DATA, decides_by_data, is_internal_call, run_higher_order
from kernellab.capture.recorder import OperationRecorder
from kernellab.capture.size import SizeSource
from kernellab.capture.symbols import DataNumbers, SizeEnv
from kernellab.capture.tape import READ, WINDOW, Step, TensorLayout, map_nested, members_of
from kernellab.capture.tracked_tensors import tensors_in
from kernellab.source.text import USER_ERRORS

# Results of these are not sizes: values of elements, which are fixed, and addresses.
_DATA_READS = frozenset({"item", "__bool__", "__float__", "__int__", "__index__", "data_ptr", "__contains__"})
_NOT_REPEATED = frozenset({"register_hook", "register_post_accumulate_grad_hook", "__repr__", "__format__", "__str__"})


class SizeTracker(TorchFunctionMode):
    """Tracks the symbolic sizes of one recording; see the module.

    ``layouts`` has the symbolic layouts of values by index, ``arguments`` the args and kwargs of steps, ``grids`` and
    ``config_grids`` the grids of launches. ``sources`` has the source of each symbol.
    `finish` fixes what could not be followed. Without ``tracks_shapes``, sizes are plain numbers, and the only
    symbols are ``numbers`` that a block reads from tensors.
    """

    def __init__(self, recorder: OperationRecorder, *, tracks_shapes: bool = True) -> None:
        super().__init__()
        self.tracks_shapes = tracks_shapes
        self.numbers = DataNumbers(self)
        self.recorder = recorder
        self.recording = recorder.recording
        self.env = SizeEnv()
        self.fakes = FakeTensorMode(shape_env=self.env, allow_non_fake_inputs=True)
        self.layouts: dict[int, SymbolicLayout] = {}
        self.arguments: dict[int, tuple[Any, Any]] = {}
        self.grids: dict[int, tuple[Any, ...]] = {}
        self.config_grids: dict[int, tuple[tuple[Any, ...], ...]] = {}
        self.hints: dict[Any, int | float] = {}
        self.sources: dict[Any, SizeSource] = {}
        self.inspected_storages: set[int] = set()
        self.is_launching = False
        self._is_in_user_function = False
        self._tensors = WeakTensorKeyDictionary()
        self._followed_steps = 0

    @property
    def is_following(self) -> bool:
        """Whether this thread runs the user's code, and not the lab's or the inside of an operation."""
        return self._is_in_user_function or not (self.is_launching or self.recorder.is_own_work)

    @contextmanager
    def follow_user_function(self) -> Iterator[None]:
        """Follow a function of the user, such as a grid, though the lab calls it."""
        before, self._is_in_user_function = self._is_in_user_function, True
        try:
            yield
        finally:
            self._is_in_user_function = before

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if decides_by_data(func) and self.is_following:
            with self:
                return run_higher_order(func, args, kwargs)
        is_item = func is torch.Tensor.item
        if not (self.tracks_shapes or self.numbers.known or is_item):
            return func(*args, **kwargs)
        plain = map_nested((args, kwargs), plain_value)
        if (
            not self.is_following
            or (is_internal_call() and not self._is_in_user_function)
            or _has_functorch_tensor((args, kwargs))
        ):
            return func(*plain[0], **plain[1])
        with self.recorder.suspend():
            self.fix_unfollowed()
        if is_item:
            return self.numbers.read(func, plain)
        if not self.tracks_shapes and not self._takes_symbols((args, kwargs)):
            result = func(*plain[0], **plain[1])
            self.mark_followed()
            return result
        constants = len(self.recording.constants)
        with self.recorder.suspend():
            fakes = None if func == SET_DATA else map_nested((args, kwargs), self._with_fake)
        result = func(*plain[0], **plain[1])
        with self.recorder.suspend():
            if len(self.recording.constants) > constants:
                self.fix(symbols_of((args, kwargs)), "a tensor is made of it as data")
            user_result = self._follow(func, (args, kwargs), fakes, result)
            if self.tracks_shapes and (self.new_steps() or gives_numbers(func, user_result)):
                self._note_inspected((args, kwargs))
            self.mark_followed()
        return user_result

    def _takes_symbols(self, arguments: Any) -> bool:
        """Whether arguments are symbolic, or tensors with layouts that follow from a number of data."""
        for part in members_of(arguments):
            known = self._tensors.get(part) if isinstance(part, torch.Tensor) else None  # type: ignore[no-untyped-call]
            if isinstance(part, SYMBOLIC) or (known is not None and symbols_of(known)):
                return True
        return False

    def _note_inspected(self, arguments: Any) -> None:
        """Note the tensors with layouts that the block inspects: a program takes them, used or not, to check these."""
        for tensor in tensors_in(arguments):
            self.inspected_storages.add(self.recording.values[self.recorder.value_of(tensor)].storage)

    def _follow(self, func: Any, arguments: Any, fakes: Any, result: Any) -> Any:
        """Repeat a call on fake tensors and take over its symbolic sizes; return the result for the user."""
        name = getattr(func, "__name__", str(func))
        steps = self.new_steps()
        if fakes is None:
            self.fix_all("a tensor gets other memory")
            return result
        if name in _NOT_REPEATED:
            return result
        try:
            calls, fake = self._repeat(func, fakes)
            return self._take_over(steps, calls, result, fake)
        except (*USER_ERRORS, FakeMismatch):
            if not steps and (name in _DATA_READS or result is None):
                return result
            self._fix_steps(name, steps, fakes)
            for tensor in tensors_in(arguments):  # its fake tensor may be half changed
                self._tensors.pop(tensor, None)  # type: ignore[no-untyped-call]
            return result

    def _fix_steps(self, name: str, steps: Sequence[int], fakes: Any) -> None:
        """Fix the sizes that recorded steps may depend on."""
        reason = f"what {name} does with other sizes is not known"
        if len(steps) > 1 or "backward" in name or name == "grad":
            self.fix_all(reason)
        else:
            operands = [ref for index in steps for ref in self.recording.steps[index].operands]
            self.fix(symbols_of([fakes, [self.layouts[i].numbers for i in operands if i in self.layouts]]), reason)
        for index in steps:
            self.arguments.setdefault(index, ((), {}))
            for value in self.recording.steps[index].results:
                if value >= 0:
                    self.layouts.setdefault(value, plain_layout(self.recording.values[value].layout))

    def _repeat(self, func: Any, fakes: Any) -> tuple[list[FakeCall], Any]:
        """Call a function on fake tensors.

        If torch's own decomposition takes plain numbers only, the one in Python may take symbolic ones.
        """
        name = str(getattr(func, "__name__", ""))
        is_repeatable = not name.endswith("_") and "out" not in fakes[1]  # a second call would change a tensor twice
        try:
            return self._run_on_fakes(func, fakes, nullcontext(), FakeCalls(gives_plain=not is_repeatable))
        except (*USER_ERRORS, FakeMismatch):
            if not is_repeatable:
                raise
            return self._run_on_fakes(func, fakes, enable_python_dispatcher(), FakeCalls())

    def _run_on_fakes(
        self, func: Any, fakes: Any, context: AbstractContextManager[Any], log: FakeCalls
    ) -> tuple[list[FakeCall], Any]:
        args, kwargs = fakes
        with torch._C.DisableTorchFunction(), _disable_current_modes(), _silence(), self.fakes, log, context:
            result = func(*args, **kwargs)
        return log.calls, result

    def _take_over(self, steps: Sequence[int], calls: Sequence[FakeCall], result: Any, fake: Any) -> Any:
        """Take arguments and layouts from operations on fake tensors, which have to be those of the recorded steps."""
        wanted = [self.recording.steps[index] for index in steps]
        if not _are_same_operations(wanted, calls):
            calls = [call for call in calls if not call.is_identity]
        if not _are_same_operations(wanted, calls):
            raise FakeMismatch("the operations differ")
        measured: dict[Any, Any] = {}
        for index, step, call in zip(steps, wanted, calls, strict=True):
            args = symbolic_argument(step.args, call.args)
            kwargs = {name: symbolic_argument(value, call.kwargs.get(name, value)) for name, value in step.kwargs}
            for number, layout in zip(step.results, call.results, strict=False):
                if number >= 0 and layout is not None:
                    self._take_layout(number, self._with_measured_symbols(number, layout, measured))
            self.arguments[index] = args, kwargs
        return self._result(result, fake, measured)

    def _take_layout(self, index: int, layout: SymbolicLayout) -> None:
        """Take over the layout of a value; its numbers have to be the recorded ones, but for the offset of an input."""
        known = self.recording.values[index].layout
        numbers = tuple(map(plain_value, layout.numbers))
        if numbers[:-1] != (*known.shape, *known.stride):
            raise FakeMismatch(f"{numbers[:-1]} is not the layout {(known.shape, known.stride)}")
        self.layouts[index] = layout
        self.numbers.are_in_layouts |= self.numbers.is_among(symbols_of(layout.numbers))

    def _with_measured_symbols(self, index: int, layout: SymbolicLayout, measured: dict[Any, Any]) -> SymbolicLayout:
        """Return a data-dependent layout with symbols of its own, which each run measures."""
        unknown = {s for number in layout.numbers for s in symbols_of(number) if s not in self.hints}
        if not unknown:
            return layout
        known = self.recording.values[index].layout
        for axis, size in enumerate(layout.shape):
            expression = size.node.expr if isinstance(size, torch.SymInt) else None
            if expression in unknown and expression not in measured:
                measured[expression] = self._new_symbol(known.shape[axis], SizeSource(index, axis))
        if unknown - measured.keys():
            raise FakeMismatch("a size of data is not that of a result")
        return layout.with_numbers(lambda number: self._replace_symbols(number, measured))

    def _replace_symbols(self, number: Any, measured: Mapping[Any, Any]) -> Any:
        if not isinstance(number, torch.SymInt) or not symbols_of(number) & measured.keys():
            return number
        expression = number.node.expr.xreplace({s: expression_of(size) for s, size in measured.items()})
        hint = self.hint_of(expression)
        if not expression.free_symbols:
            return hint
        return self.env.create_symintnode(expression, hint=hint)

    def _new_symbol(self, hint: int, where: SizeSource) -> Any:
        """Return a new symbol with its recorded number; 0 and 1 stay numbers, as torch treats them differently."""
        if not self.tracks_shapes:
            return hint
        source = ConstantSource(f"{'stride' if where.is_stride else 'size'}_{where.axis}_of_{where.value}")
        symbol = self.env.create_symbol(hint, source, dynamic_dim=DimDynamic.DYNAMIC)
        if not symbol.free_symbols:
            return hint
        self.hints[symbol] = hint
        self.sources[symbol] = where
        return self.env.create_symintnode(symbol, hint=hint, source=source)

    def _result(self, result: Any, fake: Any, measured: Mapping[Any, Any]) -> Any:
        """Note the fake tensors of a call's results; return symbolic numbers where the result is numbers."""
        leaves, fake_leaves = list(members_of(result)), list(members_of(fake))
        if len(leaves) != len(fake_leaves):
            raise FakeMismatch("the results differ")
        tensors = [pair for pair in zip(leaves, fake_leaves, strict=True) if isinstance(pair[0], torch.Tensor)]
        for real, other in tensors:
            if not isinstance(other, torch.Tensor):
                raise FakeMismatch("the results differ")
            self._note_fake(real, other, measured)
        if tensors:
            return result
        if [plain_value(number) for number in fake_leaves] != leaves:
            raise FakeMismatch("the numbers differ")
        return fake if any(isinstance(number, SYMBOLIC) for number in fake_leaves) else result

    def _note_fake(self, real: Any, fake: Any, measured: Mapping[Any, Any]) -> None:
        """Note the fake tensor of a tensor; a data-dependent one is replaced by one with symbols of its own."""
        layout = layout_of_fake(fake)
        if any(symbols_of(number) - self.hints.keys() for number in layout.numbers):
            fake = self._new_fake(real, layout.with_numbers(lambda number: self._replace_symbols(number, measured)))
        self._tensors[real] = fake

    def _with_fake(self, part: Any) -> Any:
        return self.fake_of(part) if isinstance(part, torch.Tensor) else part

    def fake_of(self, tensor: Any) -> Any:
        """Return the fake tensor of a tensor; a new tensor becomes an input with symbols of its own."""
        known = self._tensors.get(tensor)  # type: ignore[no-untyped-call]
        index = self.recorder.value_of(tensor)
        layout = self.recording.values[index].layout
        now = (*layout.shape, *layout.stride)
        if known is not None and tuple(map(plain_value, (*known.shape, *known.stride()))) == now:
            own = layout_of_fake(known)
            others = self.layouts.setdefault(index, own).numbers[:-1]
            if list(map(expression_of, own.numbers[:-1])) != list(map(expression_of, others)):
                self.fix(symbols_of([own.numbers, others]), "two views of one memory have these sizes")
            return known
        if index not in self.layouts:
            self.layouts[index] = self._first_layout(index)
        fake = self._tensors[tensor] = self._new_fake(tensor, self.layouts[index])
        return fake

    def _first_layout(self, index: int) -> SymbolicLayout:
        """Return the layout of a value that is not a result of a call: an input, or a view from before the block."""
        known = self.recording.values[index]
        layout, same = known.layout, [i for i in self.recorder.memory.of_storage[known.storage] if i != index]
        for other in same:
            self.fix(symbols_of(self.layouts.get(other, plain_layout(layout)).numbers), "views of it are used")
        if same or index not in self.recording.samples:
            return plain_layout(layout)
        shape = tuple(self._new_symbol(size, SizeSource(index, axis)) for axis, size in enumerate(layout.shape))
        return SymbolicLayout(shape, self._strides(index, layout, shape), 0)

    def _strides(self, index: int, layout: TensorLayout, shape: Sequence[Any]) -> tuple[Any, ...]:
        """Return the strides of an input: products of sizes for dense axes, symbols for others."""
        strides: dict[int, Any] = {}
        inner, expected = 1, 1
        for axis in sorted(range(len(shape)), key=lambda axis: (layout.stride[axis], layout.shape[axis], -axis)):
            step = layout.stride[axis]
            if step == expected:
                strides[axis] = inner
            else:
                strides[axis] = self._new_symbol(step, SizeSource(index, axis, is_stride=True)) if step > 1 else step
            inner, expected = strides[axis] * shape[axis], step * layout.shape[axis]
        return tuple(strides[axis] for axis in range(len(shape)))

    def _new_fake(self, tensor: Any, layout: SymbolicLayout) -> Any:
        options = {"dtype": tensor.dtype, "device": tensor.device}
        with torch._C.DisableTorchFunction(), _disable_current_modes(), self.fakes:
            fake = torch.empty_strided(layout.shape, layout.stride, **options)
            return fake.requires_grad_() if tensor.requires_grad else fake

    def new_steps(self) -> list[int]:
        """Return the recorded steps that do not count as followed yet, but for views and reads."""
        steps = range(self._followed_steps, len(self.recording.steps))
        return [index for index in steps if self.recording.steps[index].operation not in (WINDOW, READ)]

    def fix_unfollowed(self) -> None:
        """Fix all sizes if steps were recorded outside of followed calls."""
        steps = [i for i in self.new_steps() if i not in self.arguments]
        if steps and (self.tracks_shapes or self.numbers.are_in_layouts):
            self.fix_all(f"what {self.recording.steps[steps[0]].words} does with other sizes is not known")
        self.mark_followed()

    def mark_followed(self) -> None:
        """Count the steps so far as followed."""
        self._followed_steps = len(self.recording.steps)

    def symbols_in(self, arguments: Mapping[str, Any]) -> set[Any]:
        """Return the symbols of the arguments of a launch, those in the layouts of tensors included."""
        fakes = [self.fake_of(tensor) for tensor in tensors_in(dict(arguments))]
        return symbols_of(list(arguments.values())) | symbols_of(fakes)

    def hint_of(self, expression: Any) -> int | None:
        """Return the recorded value of an expression, or None where a symbol of it has none."""
        value = expression.xreplace({s: sympy.Integer(h) for s, h in self.hints.items()})
        return int(value) if value.is_number else None

    def require(self, condition: Any) -> None:
        """Add a condition on symbols, which holds for the recorded ones, as a guard."""
        self.env.evaluate_expr(condition)

    def finish(self) -> None:
        """Fix what could not be followed, after the last step."""
        with self.recorder.suspend():
            self.fix_unfollowed()
            if not self.tracks_shapes:
                return
            for index, known in enumerate(self.recording.values):
                tensor = known.tensor()
                if index not in self.layouts and tensor is not None and self.recorder.value_of(tensor) == index:
                    self.fake_of(tensor)
            for step in self.recording.steps:
                for index in (*step.operands, *step.results):
                    is_given = index in self.recording.samples or index in self.recording.constants
                    if index >= 0 and index not in self.layouts and not is_given and step.operation != WINDOW:
                        self.fix_all(f"the layout of what {step.words} takes or gives is not known for other sizes")

    def fix(self, symbols: set[Any], reason: str) -> None:
        """Restrict the program to the recorded values of some symbols."""
        with self.env.because(reason):
            for symbol in sorted(symbols & self.hints.keys(), key=str):
                if self.env.replace(symbol).free_symbols:
                    self.env.evaluate_expr(sympy.Eq(symbol, self.hints[symbol], evaluate=False))

    def fix_all(self, reason: str) -> None:
        """Restrict the program to the recorded sizes, and to the numbers of data that layouts follow from."""
        others = set() if self.numbers.are_in_layouts else self.numbers.known.keys()
        self.fix(self.hints.keys() - others, reason)

    def is_fixed(self, symbol: Any) -> bool:
        """Whether a guard restricts a symbol to one value."""
        if not self.env.replace(symbol).free_symbols:
            return True
        conditions = [guard.condition for guard in self.env.guards_with_places]
        return any(isinstance(c, sympy.Eq) and symbol in c.args and not c.free_symbols - {symbol} for c in conditions)

    @property
    def has_symbols(self) -> bool:
        """Whether something in the block may be symbolic."""
        return self.tracks_shapes or bool(self.numbers.known)

    @property
    def has_free_symbols(self) -> bool:
        """Whether the program holds for other numbers than the recorded ones."""
        return self.tracks_shapes or not all(map(self.is_fixed, self.numbers.known))


keep_from_compiling(SizeTracker.__torch_function__)


def _are_same_operations(steps: Sequence[Step], calls: Sequence[FakeCall]) -> bool:
    """Whether calls are the operations of some steps; ``_unsafe_view`` is torch's other name of ``view``."""
    own, others = ([item.operation.replace("_unsafe_view", "view") for item in items] for items in (steps, calls))
    return own == others


def _has_functorch_tensor(arguments: Any) -> bool:
    """Whether an argument is a wrapped tensor of `torch.func`, as inside of ``vmap``; steps there fix sizes."""
    is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor
    return any(map(is_wrapped, tensors_in(arguments)))


@contextmanager
def _silence() -> Iterator[None]:
    """Silence torch's log of failures on fake tensors, which fix sizes and are not errors of the user."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before

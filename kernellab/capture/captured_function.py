"""A captured function: one program for each set of guards that its calls met.

Arguments other than tensors have to be as at the capture of the program. Tensors that the function finds elsewhere
(parameters of a module, globals) are looked up by name in each call.
"""

from __future__ import annotations

import functools
import inspect
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from kernellab._triton.kernel import nonlocals_of
from kernellab._triton.tracing import is_traced
from kernellab.capture.naming import name_in, named_tensors
from kernellab.capture.node_functions import ChangedValueError
from kernellab.capture.program import Program
from kernellab.capture.recorder import OperationRecorder
from kernellab.capture.tape import inputs_problem
from kernellab.errors import UsageError

if TYPE_CHECKING:
    from kernellab.capture.block import Capture

Scope = Callable[[], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class _Result:
    """The return value of a function; ``leaves`` are positions among the outputs of its program, or fixed values."""

    structure: Any
    leaves: tuple[tuple[bool, Any], ...]

    def of(self, outputs: Sequence[Any]) -> Any:
        """Return the same structure with these outputs."""
        return pytree.tree_unflatten(
            [outputs[value] if is_output else value for is_output, value in self.leaves], self.structure
        )


@dataclass(frozen=True, slots=True)
class _CallKey:
    """The part of a call that a program fixes: the arguments that are not tensors, and the modes of torch."""

    structure: Any
    others: tuple[Any, ...]
    modes: tuple[Any, ...]

    def is_like(self, call: _CallKey) -> bool:
        """Whether a program for one call holds for another; objects without an equality have to be identical."""
        if (self.structure, self.modes) != (call.structure, call.modes):
            return False
        pairs = zip(self.others, call.others, strict=True)
        return all(one is other or (type(one) is type(other) and (one == other) is True) for one, other in pairs)


@dataclass(frozen=True, slots=True)
class _CapturedProgram:
    """A program, and the calls that it holds for.

    ``reason`` is why it was captured. ``sources`` has for each input the position of an argument, or the name of a
    tensor from elsewhere; ``shared`` is their `_memory_sharing`.
    """

    program: Program
    reason: str
    call: _CallKey
    sources: tuple[int | str, ...]
    shared: tuple[Any, ...]
    result: _Result


class CapturedFunction:
    """A function that `Lab.capture` makes programs of; a call returns what the function returns.

    A call runs the program whose guards hold for it, or runs the function and captures it once more. At most
    ``max_programs`` are kept; the least recently used one is dropped first. Results take no part in autograd.
    """

    def __init__(
        self, function: Callable[..., Any], capture: Callable[[Scope], Capture], max_programs: int = 8
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.max_programs = max_programs
        self._capture = capture
        self._entries: list[_CapturedProgram] = []

    def __repr__(self) -> str:
        name = getattr(self.function, "__name__", type(self.function).__name__)
        return f"<CapturedFunction {name}: {len(self._entries)} of {self.max_programs} programs>"

    @property
    def programs(self) -> tuple[Program, ...]:
        """The programs that are kept, the one that ran last first."""
        return tuple(entry.program for entry in self._entries)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why each of the programs was captured: the guard of another one that did not hold, "" for the first."""
        return tuple(entry.reason for entry in self._entries)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run a program for these arguments, or capture one.

        Raises:
            UsageError: the function cannot be captured, or reads other values of a tensor than in the recording after
                it has changed an argument, so that the call cannot begin anew.
        """
        leaves, structure = pytree.tree_flatten((args, kwargs))
        if _is_recorded_or_traced(leaves):
            return self.function(*args, **kwargs)
        variables, reason = _bound_variables(self.function), ""
        call, scope = _call_of(leaves, structure, variables), _scope_of(self.function, args, kwargs, variables)
        for entry in tuple(self._entries):
            inputs, problem = _inputs_of(entry, call, leaves, scope)
            if problem:
                reason = reason or problem
                continue
            try:
                with _restore_generators(entry.program):
                    outputs = entry.program.run(**inputs)
            except ChangedValueError as exc:
                if entry.program.tape.changes_inputs_before_reading:
                    raise
                reason = reason or str(exc)
                continue
            self._move_to_front(entry)
            return entry.result.of(tuple(outputs.values()))
        return self._capture_again(args, kwargs, leaves, call, scope, reason)

    def _move_to_front(self, captured: _CapturedProgram) -> None:
        """Move a program to the front, and drop those beyond the limit."""
        others = [entry for entry in self._entries if entry is not captured]
        self._entries = [captured, *others][: self.max_programs]

    def _capture_again(
        self, args: Any, kwargs: Any, leaves: Sequence[Any], call: _CallKey, scope: Mapping[str, Any], reason: str
    ) -> Any:
        block = self._capture(lambda: scope)
        with block as program:
            returned = self.function(*args, **kwargs)
            result = _choose_outputs(program, returned)
        sources = tuple(_source(tensor, leaves, scope) for tensor in block.inputs)
        shared = _memory_sharing([*_tensors(leaves), *block.inputs])
        self._move_to_front(_CapturedProgram(program, reason, call, sources, shared, result))
        return pytree.tree_map(_without_history, returned)


@contextmanager
def _restore_generators(program: Program) -> Iterator[None]:
    """Restore the generators of random numbers if a run ends because it reads another value."""
    is_random = any(step.is_random for step in program.tape.steps)
    gpus = [torch.device(name) for name in program.tape.gpus if is_random]
    states = [torch.cuda.get_rng_state(gpu) for gpu in gpus]
    state = torch.get_rng_state() if is_random else None
    try:
        yield
    except ChangedValueError:
        for gpu, known in zip(gpus, states, strict=True):
            torch.cuda.set_rng_state(known, gpu)
        if state is not None:
            torch.set_rng_state(state)
        raise


def _tensors(leaves: Sequence[Any]) -> list[Any]:
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _is_recorded_or_traced(leaves: Sequence[Any]) -> bool:
    """Whether torch traces a call, or a block around it records it; then the function itself has to run."""
    if torch.compiler.is_compiling() or is_traced(tuple(leaves), {}):
        return True
    return any(isinstance(mode, OperationRecorder) for mode in _get_current_dispatch_mode_stack())


def _call_of(leaves: Sequence[Any], structure: Any, variables: Mapping[str, Any]) -> _CallKey:
    for leaf in leaves:
        if hasattr(leaf, "__array_interface__"):
            raise UsageError(f"An argument is a {type(leaf).__name__}, which can change unseen; pass a tensor.")
    modules = [module for module in variables.values() if isinstance(module, torch.nn.Module)]
    training = [part.training for module in modules for part in module.modules()]
    grads = [leaf.requires_grad for leaf in _tensors(leaves)]
    autocast = [torch.get_autocast_dtype(d) for d in ("cpu", "cuda") if torch.is_autocast_enabled(d)]
    modes = (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype())
    return _CallKey(
        structure,
        tuple(None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves),
        (*modes, autocast, grads, training),
    )


def _bound_variables(function: Any) -> dict[str, Any]:
    """Return the object that a function is bound to as ``self``, and the variables of enclosing functions."""
    owner = getattr(function, "__self__", None if inspect.isfunction(function) else function)
    inner = inspect.unwrap(getattr(function, "__func__", function))
    return ({} if owner is None else {"self": owner}) | (nonlocals_of(inner) if inspect.isfunction(inner) else {})


def _scope_of(function: Any, args: Any, kwargs: Any, variables: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the variables of a function: arguments, those of its object and enclosing functions, and globals."""
    inner = inspect.unwrap(getattr(function, "__func__", function))
    try:
        arguments = dict(inspect.signature(function).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError):  # the call itself says what is wrong with it
        arguments = dict(kwargs)
    return ChainMap(arguments, dict(variables), getattr(inner, "__globals__", {}))


def _inputs_of(
    captured: _CapturedProgram, call: _CallKey, leaves: Sequence[Any], scope: Mapping[str, Any]
) -> tuple[dict[str, Any], str]:
    """Return the inputs of a program for a call, and why it does not hold for them, or ""."""
    if not captured.call.is_like(call):
        return {}, "its arguments other than tensors, or the modes of torch, differ from those of the recording"
    tensors_by_name = dict(named_tensors(scope)) if any(isinstance(s, str) for s in captured.sources) else {}
    tensors = [leaves[s] if isinstance(s, int) else tensors_by_name.get(s) for s in captured.sources]
    if missing := [source for source, tensor in zip(captured.sources, tensors, strict=True) if tensor is None]:
        return {}, f"{missing[0]} is not a tensor any more"
    if _memory_sharing([*_tensors(leaves), *tensors]) != captured.shared:
        return {}, "its tensors share memory differently"
    inputs = dict(zip(captured.program.inputs, tensors, strict=True))
    return inputs, inputs_problem(captured.program.tape, inputs)


def _memory_sharing(tensors: Sequence[Any]) -> tuple[Any, ...]:
    """Return for each tensor the first one in its storage, and its offset in bytes if there are several."""
    storages = [tensor.untyped_storage()._cdata for tensor in tensors]
    first = [storages.index(storage) for storage in storages]
    begins = [tensor.storage_offset() * tensor.element_size() for tensor in tensors]
    return tuple((i, begin if first.count(i) > 1 else 0) for i, begin in zip(first, begins, strict=True))


def _source(tensor: Any, leaves: Sequence[Any], scope: Mapping[str, Any]) -> int | str:
    """Return the position or the name by which another call finds an input; raise `UsageError` without one."""
    position = next((index for index, leaf in enumerate(leaves) if leaf is tensor), None)
    if position is not None:
        return position
    if tensor is None:
        raise UsageError(
            "The function uses memory that belongs to no single tensor: arguments overlap and neither contains the "
            "other, or a tensor was deleted. Pass one tensor, and make the others in the function."
        )
    name = name_in(scope, tensor)
    if not name:
        raise UsageError(
            f"The function takes a tensor of shape {tuple(tensor.shape)} that is not an argument and has no name in "
            "the function or around it, so another call could not find it. Pass it as an argument."
        )
    return name


def _choose_outputs(program: Program, value: Any) -> _Result:
    """Choose the tensors that a function returns as outputs of its program; sizes that it returns are fixed."""
    leaves, structure = pytree.tree_flatten(value)
    plain = [leaf if isinstance(leaf, torch.Tensor) else _plain(leaf) for leaf in leaves]
    numbers = [program.add_output(leaf) if isinstance(leaf, torch.Tensor) else -1 for leaf in plain]
    order = list(dict.fromkeys(number for number in numbers if number >= 0))
    places = [(False, leaf) if n < 0 else (True, order.index(n)) for leaf, n in zip(plain, numbers, strict=True)]
    return _Result(structure, tuple(places))


def _plain(value: Any) -> Any:
    kinds = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
    return kinds[type(value)](value) if type(value) in kinds else value


def _without_history(leaf: Any) -> Any:
    """Return a result as a run of the program would give it: detached from autograd, and with plain numbers."""
    if isinstance(leaf, torch.Tensor):
        return leaf if leaf.grad_fn is None else leaf.detach()
    return _plain(leaf)

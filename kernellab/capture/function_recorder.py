"""Calls of torch that are not operations: reads of Python, memory that it hands out, operators that take functions."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import HigherOrderOperator
from torch.overrides import TorchFunctionMode

from kernellab._triton.tracing import keep_from_compiling
from kernellab.capture.naming import is_printing, place_of_user
from kernellab.errors import UsageError

if TYPE_CHECKING:
    from kernellab.capture.recorder import OperationRecorder

_MEMORY_EXPORTS = {
    torch.Tensor.numpy: "numpy()",
    torch.Tensor.__array__: "numpy.asarray",
    torch.Tensor.__dlpack__: "DLPack",
    torch.Tensor.untyped_storage: "untyped_storage()",
}
# A call of the user may pass through these modules.
_FORWARDING_MODULES = ("torch.", "kernellab.capture.size_tracking.", "kernellab.capture.captured_function.")
_READS = {torch.Tensor.tolist, torch.equal, torch.Tensor.equal}
SET_DATA = vars(torch.Tensor.__base__)["data"].__set__


class FunctionRecorder(TorchFunctionMode):
    """Reports calls of one thread that are not torch operations to its recorder."""

    def __init__(self, recorder: OperationRecorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if self.recorder.is_own_work or is_internal_call():
            return result
        if func in _READS and not is_printing():
            self.recorder.record_read(result, args)
        elif func in _MEMORY_EXPORTS and not is_printing():
            how = f"{place_of_user()} hands it out by {_MEMORY_EXPORTS[func]}"
            self.recorder.record_exposure(args[0], how, is_read=func is not torch.Tensor.untyped_storage)
        elif func == SET_DATA:
            self.recorder.note_new_memory(args[0])
        return result


keep_from_compiling(FunctionRecorder.__torch_function__)


def is_internal_call() -> bool:
    """Whether the lab or Triton made this call, and not the user; calls of Triton's descriptors count as the user's."""
    frame: Any = sys._getframe(2)
    while frame is not None and f"{frame.f_globals.get('__name__', '')}.".startswith(_FORWARDING_MODULES):
        frame = frame.f_back
    name = "" if frame is None else f"{frame.f_globals.get('__name__', '')}."
    return not name or (name.startswith(("kernellab.", "triton.")) and not name.startswith("triton.tools."))


_TRITON_OPERATORS = {"triton_kernel_wrapper_mutation", "triton_kernel_wrapper_functional"}


def run_higher_order(operator: HigherOrderOperator, args: Any, kwargs: Any) -> Any:
    """Run an operator of torch that takes functions, step by step, so that its steps are recorded.

    Of a ``cond`` it runs the branch that the data decides, of a ``while_loop`` as many rounds: what decides is read, as
    by an ``if`` of Python.

    Raises:
        UsageError: it is another operator than these and those that launch a Triton kernel.
    """
    name: str = operator.name()  # type: ignore[no-untyped-call]
    if name in _TRITON_OPERATORS:
        return operator.py_kernels[torch._C.DispatchKey.CompositeExplicitAutograd](*args, **kwargs)
    if name in _DECISIONS:
        return _DECISIONS[name](*args, **kwargs)
    raise UsageError(
        f"{place_of_user()} calls {name} of torch, which a program cannot record. Write it out with "
        "operations of torch (a loop of Python, scaled_dot_product_attention), or call it outside."
    )


def _run_branch(pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
    return (true_fn if _is_true(pred) else false_fn)(*operands)


def _run_loop(cond_fn: Any, body_fn: Any, carried_inputs: Any, additional_inputs: Any = ()) -> Any:
    carried = tuple(carried_inputs)
    while _is_true(cond_fn(*carried, *additional_inputs)):
        carried = tuple(body_fn(*carried, *additional_inputs))
    return carried


def _is_true(pred: Any) -> bool:
    """Whether a condition holds; of a tensor it is read by an operation that a recorder knows as a read."""
    return bool(torch.ops.aten._local_scalar_dense.default(pred) if isinstance(pred, torch.Tensor) else pred)


def decides_by_data(function: Any) -> bool:
    """Whether a function of torch is ``cond`` or ``while_loop``."""
    return isinstance(function, HigherOrderOperator) and function.name() in _DECISIONS  # type: ignore[no-untyped-call]


_DECISIONS = {"cond": _run_branch, "while_loop": _run_loop}

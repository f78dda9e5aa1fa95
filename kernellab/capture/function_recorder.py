"""Recording of calls of torch that are not operations: what Python reads of tensors, and memory that it hands out."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kernellab._triton.tracing import keep_from_compiling
from kernellab.capture.naming import is_printing, place_of_user
from kernellab.capture.recorder import OperationRecorder

_MEMORY_EXPORTS = {
    torch.Tensor.numpy: "numpy()",
    torch.Tensor.__array__: "numpy.asarray",
    torch.Tensor.__dlpack__: "DLPack",
    torch.Tensor.untyped_storage: "untyped_storage()",
}
_FORWARDING_MODULES = (
    "torch.",
    "kernellab.capture.size_tracking.",
    "kernellab.capture.captured_function.",
)  # a call of the user may pass through these modules
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

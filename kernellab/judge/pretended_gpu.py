"""A GPU as a candidate sees it in a process without one: its answers are those of an H100.

Candidates ask for ``device="cuda"``, check ``x.is_cuda``, and read the number of SMs. In their process, all memory lies
on the CPU, no kernel runs, and a recorded program has no device: the judge runs it where it likes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import torch
import torch._dynamo  # here, since torch imports it at the first call under a mode, in each candidate's process
from torch.overrides import TorchFunctionMode

from kernellab._triton.drivers import OfflineDriver
from kernellab.capture.function_recorder import FunctionRecorder
from kernellab.target import parse_target

_PROCESSORS = 132
_MEMORY_BYTES = 80 << 30
_GPU = torch.device("cuda", 0)
_CPU = torch.device("cpu")
_MODES = (FunctionRecorder.__module__, __name__)  # through whose frames a question of the candidate passes


@contextmanager
def pretended_gpu(target: str, module: str) -> Iterator[None]:
    """Pretend inside a with statement that there is a GPU, to the code of ``module``."""
    driver: Any = OfflineDriver(parse_target(target), lambda *launch: None)
    driver.get_active_torch_device = lambda: _GPU
    driver.activate()
    _answer_questions()
    with _CudaOnCpu(module):
        yield


class _CudaOnCpu(TorchFunctionMode):
    """Makes tensors on the CPU where a GPU is asked for, and says to one module that tensors lie on a GPU."""

    def __init__(self, module: str) -> None:
        super().__init__()
        self.module = module

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _ON_GPU and self._is_asked_by_module():
            return _ON_GPU[func]
        if func is torch.Tensor.cuda:
            return args[0]
        is_move = func is torch.Tensor.to
        args = (*args[:1], *(_cpu_in_place_of(value, is_move) for value in args[1:])) if is_move else args
        options = kwargs or {}
        return func(*args, **{n: _cpu_in_place_of(v, True) if n == "device" else v for n, v in options.items()})

    def _is_asked_by_module(self) -> bool:
        frame: Any = sys._getframe(1)
        while frame is not None and frame.f_globals.get("__name__") in _MODES:
            frame = frame.f_back
        return frame is not None and frame.f_globals.get("__name__") == self.module


_ON_GPU: dict[Any, Any] = {
    torch.Tensor.device.__get__: _GPU,
    torch.Tensor.is_cuda.__get__: True,  # type: ignore[attr-defined]
    torch.Tensor.is_cpu.__get__: False,  # type: ignore[attr-defined]
    torch.Tensor.get_device: 0,
}


def _cpu_in_place_of(value: Any, is_device: bool) -> Any:
    """Return the CPU in place of a device that is a GPU, by name or, where a device is asked for, number."""
    if isinstance(value, torch.device):
        return _CPU if value.type == "cuda" else value
    is_name = isinstance(value, str) and value.partition(":")[0] == "cuda"
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return _CPU if is_device and (is_name or is_number) else value


def _answer_questions() -> None:
    """Answer questions about the GPU as an H100 would: kernels that fill a device ask for its SMs."""
    properties: Any = SimpleNamespace(
        name="NVIDIA H100",
        major=9,
        minor=0,
        multi_processor_count=_PROCESSORS,
        total_memory=_MEMORY_BYTES,
        shared_memory_per_block_optin=232448,
        shared_memory_per_multiprocessor=233472,
        regs_per_multiprocessor=65536,
        max_threads_per_multi_processor=2048,
        warp_size=32,
        L2_cache_size=50 << 20,
    )
    answers: dict[str, Any] = {
        "get_device_properties": properties,
        "get_device_capability": (9, 0),
        "get_device_name": properties.name,
        "get_arch_list": ["sm_90"],
        "is_available": True,
        "is_bf16_supported": True,
        "is_current_stream_capturing": False,
        "device_count": 1,
        "current_device": 0,
        "current_stream": PretendedStream(),
        "default_stream": PretendedStream(),
        "mem_get_info": (_MEMORY_BYTES, _MEMORY_BYTES),
        "memory_allocated": 0,
        "max_memory_allocated": 0,
        **dict.fromkeys(("init", "set_device", "set_stream", "synchronize", "empty_cache")),
        **dict.fromkeys(("manual_seed", "manual_seed_all", "reset_peak_memory_stats")),
    }
    for name, value in answers.items():
        setattr(torch.cuda, name, lambda *args, value=value, **kwargs: value)
    for name in ("device", "device_of", "stream"):
        setattr(torch.cuda, name, lambda *args, **kwargs: nullcontext())
    torch.cuda.Stream = PretendedStream  # type: ignore[misc,assignment]
    torch.cuda.Event = PretendedEvent  # type: ignore[misc,assignment]


class _IdleQueue:
    """The common part of streams and events: nothing runs, so all work is done."""

    device = _GPU

    def __init__(self, *args: Any, **options: Any) -> None:
        pass

    def synchronize(self) -> None:
        """Wait for nothing."""

    def query(self) -> bool:
        """Whether all work is done, which it is."""
        return True


class PretendedStream(_IdleQueue):
    """A stream in a process in which launches and operations are recorded one after the other."""

    cuda_stream = 0
    device_index = 0
    priority = 0

    def __enter__(self) -> PretendedStream:
        return self

    def __exit__(self, *raised: object) -> None:
        pass

    def wait_stream(self, stream: object) -> None:
        """Order nothing: a recorded program has one order."""

    def wait_event(self, event: object) -> None:
        """Order nothing, as `wait_stream`."""

    def record_event(self, event: Any = None) -> Any:
        """Return an event."""
        return PretendedEvent() if event is None else event


class PretendedEvent(_IdleQueue):
    """An event of a `PretendedStream`; all times between events are 0 ms."""

    cuda_event = 0

    def record(self, stream: object = None) -> None:
        """Note no time."""

    def wait(self, stream: object = None) -> None:
        """Order nothing."""

    def elapsed_time(self, end_event: object) -> float:
        """Return 0 ms."""
        return 0.0

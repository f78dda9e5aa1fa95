"""A stand-in for the CUDA driver: what the host does in a launch can be timed where there is no GPU.

It is a ``libcuda.so.1`` whose functions succeed at once. Triton's own driver of NVIDIA GPUs and its launchers in C run
on top of it as they do on a GPU, with tensors in the memory of the CPU. Needs a C compiler.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import subprocess
import sysconfig
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import triton

from kernellab._triton.bound import bound_copy
from kernellab._triton.launcher import Switch
from kernellab.launch.calls import evaluated_grid


def use_stand_in() -> None:
    """Build the stand-in, and make Triton's driver of NVIDIA GPUs over it the active one; once in a process, first."""
    folder = Path(tempfile.mkdtemp(prefix="cuda-stand-in-"))
    library = folder / "libcuda.so.1"
    source = Path(__file__).with_suffix(".c")
    flags = ["-O2", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-I", sysconfig.get_paths()["include"]]
    subprocess.run(["cc", *flags, "-o", str(library), str(source)], check=True)
    (folder / "libcuda.so").symlink_to(library)
    os.environ |= {"TRITON_LIBCUDA_PATH": str(folder), "TRITON_CACHE_DIR": str(folder / "cache")}
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)  # who asks for libcuda.so.1 now gets this one
    from triton.backends.nvidia.driver import CudaDriver
    from triton.runtime.driver import driver

    functions = _extension(folder / "libcuda.so")
    vars(torch._C).setdefault("_cuda_getCurrentRawStream", functions.current_stream)
    stand_in = CudaDriver()
    stand_in.get_current_device, stand_in.get_current_stream = functions.current_device, functions.current_stream
    stand_in.get_device_capability = lambda device=0: (9, 0)
    stand_in.get_active_torch_device = lambda: torch.device("cpu")
    stand_in.get_benchmarker = lambda: _times_nothing
    driver.set_active(stand_in)


def _times_nothing(call: Any, *, quantiles: tuple[float, ...] = (0.5,), **_: Any) -> list[float]:
    call()
    return [1.0] * len(quantiles)


def _extension(library: Path) -> Any:
    spec = importlib.util.spec_from_file_location("cuda_stand_in", library)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    assert spec.loader is not None
    spec.loader.exec_module(module)
    return module


@dataclass
class Binding:
    """Binds kernels to a lab of little: plain Triton compiles, and of several configs the last is the best."""

    switch: Switch = field(default_factory=Switch)

    def bind(self, kernel: Any) -> Any:
        return bound_copy(kernel, self)  # type: ignore[arg-type]

    def compiled_files(self, src: Any, target: Any, options: Mapping[str, Any]) -> tuple[Mapping[str, str], str]:
        compiled = triton.compile(src, target=target, options=options)
        return compiled.metadata_group, compiled.hash

    def launch(self, kernel: Any, args: tuple[Any, ...], meta: dict[str, Any], grid: Any, warmup: bool) -> Any:
        handle, arguments = kernel.resolve(args, meta, warmup)
        kernel.call_hooks(args, meta)
        if not warmup:
            kernel.launch_compiled(handle, arguments, evaluated_grid(kernel, grid, arguments))
        return handle

    def launch_error(self, kernel: Any, args: tuple[Any, ...], meta: dict[str, Any], exc: Exception) -> Exception:
        return exc

    def is_offline(self) -> bool:
        return False

    def interprets(self) -> bool:
        return False

    def best_config(self, kernel: Any, args: tuple[Any, ...], meta: dict[str, Any]) -> Any:
        return kernel.configs[-1]

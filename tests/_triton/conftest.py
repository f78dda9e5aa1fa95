"""A runtime that compiles nothing: what it hands back for a specialization carries the hash of that specialization."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

import kernellab
from kernellab._triton.bound import bound_copy
from kernellab._triton.drivers import OfflineDriver
from kernellab._triton.launch_key import CallingConvention, convention_of
from kernellab._triton.launcher import Switch
from kernellab._triton.specialize import specialize
from kernellab.compile.entries import triton_files
from kernellab.launch.calls import evaluated_grid
from kernellab.target import parse_target
from tests import samples

TARGET = parse_target("cuda:90")


def outcome(call: Any) -> str:
    """Return the result of a call as text, or that it raised."""
    try:
        return str(call())
    except Exception:  # noqa: BLE001 - whatever it is, the launch path must raise as well
        return "refused"


def digest(signature: Any, constants: Any, attributes: Any, options: Mapping[str, Any]) -> str:
    """Return a hash that tells types apart: 1, 1.0 and True are three constants."""
    typed = sorted((path, type(value).__name__, repr(value)) for path, value in constants.items())
    hints = sorted((path, repr(hint)) for path, hint in attributes.items() if hint)
    text = repr((list(signature.items()), typed, hints, sorted((name, repr(value)) for name, value in options.items())))
    return hashlib.sha256(text.encode()).hexdigest()


def expected(kernel: Any, args: tuple[Any, ...], meta: Mapping[str, Any]) -> str:
    """Return the hash of what a fresh Triton would choose for these arguments."""
    special = specialize(kernel, TARGET, args, meta)
    return digest(special.signature, special.constants, special.attributes, special.options)


@dataclass
class Recording:
    """Counts the launches that went the slow way, and keeps what the launcher was called with."""

    files: Mapping[str, str]
    switch: Switch = field(default_factory=Switch)
    slow: int = 0
    launched: list[tuple[Mapping[str, Any], tuple[int, int, int]]] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)

    def compiled_files(self, src: Any, target: Any, options: Mapping[str, Any]) -> tuple[Mapping[str, str], str]:
        return self.files, digest(src.signature, src.constants, src.attrs, options)

    def launch(self, kernel: Any, args: tuple[Any, ...], meta: dict[str, Any], grid: Any, warmup: bool) -> Any:
        self.slow += not warmup
        handle, arguments = kernel.resolve(args, meta, warmup)
        kernel.call_hooks(args, meta)
        if not warmup:
            kernel.launch_compiled(handle, arguments, evaluated_grid(kernel, grid, arguments))
        return handle

    def launch_error(self, kernel: Any, args: tuple[Any, ...], meta: dict[str, Any], exc: Exception) -> Exception:
        self.failures.append(exc)
        return exc

    def is_offline(self) -> bool:
        return True

    def interprets(self) -> bool:
        return True

    def interpret(self, function: Any, arguments: Mapping[str, Any], grid: tuple[int, int, int]) -> None:
        self.launched.append((arguments, grid))


Bind = Callable[[Any], tuple[Any, Recording]]


class _Direct:
    """A launcher as Triton's own of NVIDIA GPUs, above a function that records what it is called with."""

    global_scratch_size = profile_scratch_size = 0
    launch_cooperative_grid = launch_pdl = False
    arg_annotations = kernel_signature = None

    def __init__(self, interpreted: Any, launch: Callable[..., None]) -> None:
        self._interpreted = interpreted
        self.launch = launch

    def __call__(self, *given: Any) -> None:
        self._interpreted(*given)


class DirectDriver(OfflineDriver):
    """An offline driver that the launch path takes for Triton's own of NVIDIA GPUs, with tensors on the CPU.

    ``direct`` are the arguments of the function under the launcher, which raises ``failure`` if there is one;
    ``stream`` is the current one.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.direct: list[tuple[Any, ...]] = []
        self.stream = 0
        self.failure: Exception | None = None

    def launcher_cls(self, src: Any, metadata: Any) -> Any:
        launcher = _Direct(super().launcher_cls(src, metadata), self._launch)
        type(launcher).__module__, type(launcher).__name__ = _NVIDIA, "CudaLauncher"
        return launcher

    def _launch(self, *given: Any) -> None:
        if self.failure is not None:
            raise self.failure
        self.direct.append(given)

    def get_current_stream(self, device: int | None = None) -> int:
        return self.stream

    @property
    def parameters(self) -> list[Any]:
        """What the kernel was given at the last launch that went to the function under the launcher."""
        given = self.direct[-1]
        return list(given[13:] if convention_of(self) is CallingConvention.FLAT else given[-1])


_NVIDIA = "triton.backends.nvidia.driver"
DirectDriver.__module__, DirectDriver.__name__ = _NVIDIA, "CudaDriver"


@pytest.fixture
def direct(lab: kernellab.Lab) -> Iterator[tuple[Bind, DirectDriver]]:
    """Return a function that binds a kernel to a fresh runtime, and the driver that it launches on."""
    files = triton_files(lab.compile(samples.add_kernel, *[torch.zeros(64)] * 3, 64, BLOCK=64, target="cuda:90"))
    driver = DirectDriver(TARGET, lambda *given: None)

    def bind(kernel: Any) -> tuple[Any, Recording]:
        runtime = Recording(files)
        return bound_copy(kernel, runtime), runtime

    driver.activate()
    yield bind, driver
    driver.deactivate()


@pytest.fixture(scope="module")
def binding(lab: kernellab.Lab) -> Iterator[Bind]:
    """Return a function that binds a kernel to a fresh runtime."""
    x = torch.zeros(64)
    compiled = lab.compile(samples.add_kernel, x, x, x, 64, BLOCK=64, target="cuda:90")
    runtimes: list[Recording] = []
    driver = OfflineDriver(TARGET, lambda *given: runtimes[-1].interpret(*given))  # noqa: PLW0108 - the last one changes

    def bind(kernel: Any) -> tuple[Any, Recording]:
        driver.activate()
        runtimes.append(Recording(triton_files(compiled)))
        return bound_copy(kernel, runtimes[-1]), runtimes[-1]

    yield bind
    driver.deactivate()

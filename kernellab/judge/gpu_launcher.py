"""Launches of a candidate's kernels on a GPU, by a lab: compiled from their checked text, tried between redzones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernellab._triton.drivers import descriptor
from kernellab._triton.loading import LoadedClosure, load
from kernellab.errors import KernellabError, OutOfBounds
from kernellab.judge.cpu_launcher import FailedLaunch, UnsafeLaunch
from kernellab.judge.program import LaunchVariant
from kernellab.judge.replay import DescriptorArgument
from kernellab.launch.memory import with_members
from kernellab.source import Closure

if TYPE_CHECKING:
    from kernellab.lab import Lab


@dataclass(slots=True)
class GpuLauncher:
    """Launches on the current GPU; with ``is_checked``, each launch is tried between redzones first."""

    lab: Lab
    is_checked: bool = True
    _loaded: dict[str, tuple[LoadedClosure, Any]] = field(default_factory=dict)

    def __call__(self, closure: Closure, variant: LaunchVariant, arguments: Mapping[str, Any]) -> None:
        """Launch a kernel.

        Raises:
            UnsafeLaunch: it wrote outside of its arguments, or faulted.
            FailedLaunch: it does not compile, or cannot run on this GPU.
        """
        launch = self.launch_of(closure, variant, arguments)
        if not self.is_checked:
            launch()
            return
        try:
            with self.lab.checking(nan=False, bounds=True):
                launch()
        except OutOfBounds as exc:
            line = None if exc.place is None else exc.place.line
            raise UnsafeLaunch(
                closure.name, "out_of_bounds", f"reaches beyond its memory: {exc.message}", line
            ) from exc
        except KernellabError as exc:
            raise FailedLaunch(exc.message, None if exc.place is None else exc.place.line) from exc

    def launch_of(self, closure: Closure, variant: LaunchVariant, arguments: Mapping[str, Any]) -> Callable[[], Any]:
        """Return the launch as a function, with descriptors made and constexprs loaded."""
        loaded, bound = self._kernel(closure)
        constants = loaded.arguments(variant.constants)
        own = {name: value for name, value in arguments.items() if name.isidentifier()}  # not what addresses reach
        named = {name: with_members(name, value, _with_descriptor) for name, value in own.items()}
        options = {name: value for name, value in variant.options if value is not None}
        on_grid = bound[variant.grid]
        return lambda: on_grid(**named, **constants, **options)

    def _kernel(self, closure: Closure) -> tuple[LoadedClosure, Any]:
        key = closure.compile_digest
        if key not in self._loaded:
            loaded = load(closure)
            self._loaded[key] = loaded, self.lab.bind(loaded.kernel)
        return self._loaded[key]


def _with_descriptor(name: str, value: Any) -> Any:
    if isinstance(value, DescriptorArgument):
        return descriptor(value.base, list(value.shape), list(value.strides), list(value.block_shape), value.padding)
    return value

"""The verbs of a lab over what is kept: kernels, launches and measurements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernellab.calls import verbs
from kernellab.compile import Compiled
from kernellab.registry.listing import Loaded
from kernellab.registry.shelf import define
from kernellab.registry.table import Registry

if TYPE_CHECKING:
    from kernellab.comparing import Comparison
    from kernellab.export.write import Exported


@verbs
class Keeping(ABC):
    """What a lab does with its side table, ``kernels``."""

    kernels: Registry

    @property
    @abstractmethod
    def _device(self) -> str:
        """``cuda``, or ``cpu`` where there is no GPU."""

    @abstractmethod
    def compile(self, kernel: Any, /, *args: Any, target: str | None = None, **meta: Any) -> Compiled:
        """Compile a kernel for these arguments."""

    def compare(self, left: str | int, right: str | int | Callable[..., Any], /) -> Comparison:
        """Compare two kept kernels, or one with a function of torch, on the inputs of the latest recorded launch.

        A function takes parameters of the kernel by name, and returns what its outputs are to hold. Times are taken
        on a GPU only, in turns.

        Raises:
            UnknownName, UsageError: there is no such kernel or launch, or the parameters differ.
        """
        from kernellab.comparing import Bench, compare_kernels

        return compare_kernels(self.kernels, Bench(self.compile, self._device), left, right)

    def frame(self, table: str) -> Any:
        """Return ``kernels``, ``launches`` or ``measurements`` of the whole history as a DataFrame.

        Raises:
            UsageError: there is no such table.
        """
        from kernellab.export.tables import frame

        return frame(self.kernels.store, table)

    def export(self, kernel: str | int, /, to: str | Path | None = None, *, kind: str | None = None) -> Exported:
        """Write a kept kernel, by name, ``name@version`` or id, as a file that needs nothing of the lab.

        Without a ``kind``, it is a module with the decorators that the kernel was launched with. Else it is ``module``
        (with the configs that were chosen in place of ``@triton.autotune``), ``autotune`` (with that), ``torch-op``,
        ``report`` (a page with all that is known of it), or ``bundle`` (for ``%triton_load`` on another machine).
        A kernel that this session did not launch is not executed for it: the file lacks what only that tells.

        Raises:
            UnknownName, UsageError: there is no such kernel or kind, or the kernel cannot be written so.
        """
        from kernellab.export.write import Bench, export

        return export(self.kernels, Bench(self.compile, self._device), kernel, to, kind)

    def export_measurements(self, kernel: str | int | None, path: str | Path, /) -> int:
        """Write what was measured of a version, of all versions of a name, or (None) of all kernels, as JSON lines.

        Returns how many measurements the file has. Each names device model, driver and Triton.

        Raises:
            UnknownName, UsageError: there is no such kernel, or the file cannot be written.
        """
        from kernellab.registry.exchange import write_measurements

        return write_measurements(self.kernels, kernel, Path(path))

    def import_measurements(self, path: str | Path, /) -> int:
        """Enter the measurements of such a file, kernels included; return how many are new.

        Tunings on a device of the same model, driver and Triton take them for their own; others stay in the history.

        Raises:
            StoreError, UsageError: a line is broken, or the file cannot be read; then nothing is entered.
        """
        from kernellab.registry.exchange import read_measurements

        return read_measurements(self.kernels.store, Path(path))

    def load(self, kernel: str | int | Path, /, namespace: dict[str, Any], *, name: str | None = None) -> Loaded:
        """Define a kept kernel, or that of a bundle (a path that ends with ``.zip``), in a namespace again.

        It comes with its decorators, and with those of its helpers whose names are free there.

        Raises:
            UnknownName, UsageError: there is no such kernel, or the file is no bundle.
        """
        if str(kernel).endswith(".zip"):
            from kernellab.export.bundle import read_bundle

            kernel = read_bundle(self.kernels.store, Path(str(kernel))).id
        return define(self.kernels, str(kernel), namespace, name)

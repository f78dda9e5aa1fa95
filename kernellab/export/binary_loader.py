"""The loader of exported binaries: launches by the CUDA driver, without Triton.

Its text is copied into each export; it needs torch and ``libcuda.so.1``. A launch is specialized as Triton does it
(types, divisibility by 16, ones, None, constexprs, options), and the binary of that specialization is launched as
Triton's own launcher would. Triton is imported only for a target or a specialization that has no binary.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import json
import pathlib
import sys
import threading
from collections.abc import Callable
from typing import Any

from kernellab.export.binary_driver import CudaDriver, cdiv
from kernellab.export.binary_launch import (
    MOST_KEPT,
    argument_form,
    defined_function,
    integer_width,
    launch_source,
    packing_function,
)
from kernellab.launch.arguments import TRITON_NAMES

MANIFEST_SCHEMA = 1


class LazyModule:
    """A module that is imported when something of it is used that is not given here."""

    def __init__(self, name: str, **known: Any) -> None:
        vars(self).update(known, _name=name)

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)


class Dtype(str):
    """A dtype of Triton by its name, such as fp16."""

    __slots__ = ()


@dataclasses.dataclass
class TensorDescriptor:
    """A tensor with the blocks that a kernel loads of it, as Triton's class of this name."""

    base: Any
    shape: list[int]
    strides: list[int]
    block_shape: list[int]
    padding: str = "zero"
    round_f32_to_tf32: bool = False

    @staticmethod
    def from_tensor(tensor: Any, block_shape: list[int]) -> TensorDescriptor:
        """Return the descriptor of a whole tensor."""
        return TensorDescriptor(tensor, list(tensor.shape), list(tensor.stride()), block_shape)


def next_power_of_2(size: int) -> int:
    """Return the least power of 2 that is not smaller."""
    return 1 << (size - 1).bit_length() if size > 0 else 0


triton = LazyModule("triton", cdiv=cdiv, next_power_of_2=next_power_of_2)
tl = LazyModule("triton.language", dtype=Dtype)


def constant_text(value: Any) -> str:
    """Return a constant as text, which differs for 1, 1.0 and True."""
    if type(value).__name__ == "constexpr":
        return constant_text(value.value)
    if isinstance(value, tuple | list):
        return f"({', '.join(map(constant_text, value))})"
    if isinstance(value, Dtype) or type(value).__name__ == "dtype":
        return str(value)
    return repr(value)


def argument_key(value: Any, parameter: dict[str, Any]) -> tuple[Any, ...]:
    """Return the type of an argument and whether 16 divides it; the text of a constant; a tuple of these for a tuple.

    As Triton specializes it: ``specialize_impl`` in its ``specialize.cc``.
    """
    if parameter["is_constexpr"] or value is None:
        return "constexpr", constant_text(value)
    if isinstance(value, tuple):
        return tuple(argument_key(member, parameter) for member in value)
    annotation = parameter["type"]
    if hasattr(value, "block_shape"):
        blocks = ", ".join(map(str, value.block_shape))
        return f"tensordesc<{_element_type(value.base)}[{blocks}]>", False
    is_aligned = parameter["specialize"] and parameter["align"]
    if hasattr(value, "data_ptr"):
        return f"*{'k' * parameter['is_const']}{_element_type(value)}", is_aligned and value.data_ptr() % 16 == 0
    if isinstance(value, int) and not isinstance(value, bool):
        if annotation:
            return annotation, is_aligned and annotation[:1] in "iu" and annotation != "u1" and value % 16 == 0
        if value == 1 and parameter["specialize"]:
            return "constexpr", "1"
        return integer_width(value), is_aligned and value % 16 == 0
    kind = {bool: "u1", float: "fp32"}.get(type(value), type(value).__name__)
    return annotation or kind, False


def _element_type(tensor: Any) -> str:
    name = str(tensor.dtype).removeprefix("torch.")
    return TRITON_NAMES.get(name, name)


_MISSING: Any = object()


class BinaryKernel:
    """A kernel as compiled binaries: ``kernel[grid](...)`` launches the one of its arguments, or Triton's.

    ``accepted`` are further versions of Triton that may be installed, next to the one that compiled the binaries.
    """

    def __init__(self, name: str, folder: str, digest: str, heuristics: dict[str, Any], interprets: bool) -> None:
        self.name, self.folder, self.digest = name, pathlib.Path(folder), digest
        self.heuristics, self.interprets = heuristics, interprets
        self.accepted: set[str] = set()
        self.driver = CudaDriver()
        self.lock = threading.Lock()
        self.functions: dict[tuple[str, int], Any] = {}  # of cubins, by file and device
        self.packers: dict[tuple[Any, ...], Any] = {}  # by device, target, keys and options
        self.runs: dict[Any, Any] = {}  # the same by the keys of the launch function

    def __getitem__(self, grid: Any) -> Any:
        return functools.partial(self.launch, grid)

    @functools.cached_property
    def manifest(self) -> dict[str, Any]:
        """The table of binaries; raises RuntimeError unless all files are those of the export."""
        content = self._read(f"{self.name}.json", self.digest)
        manifest: dict[str, Any] = json.loads(content)
        if manifest["schema"] != MANIFEST_SCHEMA:
            raise RuntimeError(
                f"{self.name}.json has schema {manifest['schema']}; expected {MANIFEST_SCHEMA}. Export again."
            )
        for binary in manifest["binaries"]:
            binary["image"] = self._read(binary["file"], binary["sha256"])
        installed = installed_triton()
        if installed and installed not in {manifest["triton"], *self.accepted}:
            raise RuntimeError(
                f"The binaries of {self.name} were compiled by Triton {manifest['triton']} and Triton {installed} is "
                "installed, which would compile whatever they lack. Export them under that version, or add it to "
                f"{self.name}.accepted before the first launch."
            )
        return manifest

    def _read(self, file: str, digest: str) -> bytes:
        path = self.folder / file
        try:
            content = path.read_bytes()
        except OSError as exc:
            raise RuntimeError(f"{path}, a file of the exported {self.name}, cannot be read: {exc.strerror}.") from exc
        if hashlib.sha256(content).hexdigest() != digest:
            raise RuntimeError(
                f"{path} is not the file that {self.name} was exported with: its SHA-256 differs. Export it again."
            )
        return content

    @functools.cached_property
    def binaries(self) -> dict[Any, dict[str, Any]]:
        """The binaries by target, keys of the arguments and options."""
        return {
            (binary["target"], _as_tuple(binary["arguments"]), _as_tuple(sorted(binary["options"].items()))): binary
            for binary in self.manifest["binaries"]
        }

    @functools.cached_property
    def launch(self) -> Callable[..., None]:
        """Launches the binary of its arguments, after the grid; without one, the kernel through Triton."""
        parameters = self.manifest["parameters"]
        plain = {float, bool, type(None)}
        defaults = {f"default_{p['name']}": p["default"] for p in parameters if "default" in p}
        launch: Callable[..., None] = defined_function(
            "launch",
            launch_source(parameters, self.forms, list(self.heuristics)),
            current_device=(lambda: 0) if self.interprets else self.driver.current_device,
            prepare=self._interpret if self.interprets else self._prepare,
            address=self.driver.address,
            runs=self.runs,
            missing=_MISSING,
            heuristics=self.heuristics,
            argument_key=argument_key,
            width=integer_width,
            text=constant_text,
            constants={int, bool, str, type(None), Dtype},
            plain=plain,
            annotated=plain | {int},
            **{f"parameter_{parameter['name']}": parameter for parameter in parameters},
            **defaults,
        )
        return launch

    @functools.cached_property
    def names(self) -> list[str]:
        """The parameters of the kernel."""
        return [parameter["name"] for parameter in self.manifest["parameters"]]

    @functools.cached_property
    def forms(self) -> list[str]:
        """How the launch function reads each parameter."""
        rows = [_as_tuple(binary["arguments"]) for binary in self.manifest["binaries"]]
        return list(map(argument_form, self.manifest["parameters"], zip(*rows, strict=True)))

    def _prepare(self, grid: Any, call: Any, values: dict[str, Any], options: dict[str, Any]) -> Any:
        """Return the packing function of a call, which is kept under its key; or launch by Triton and return None."""
        device = self.driver.current_device()
        target = self.driver.target(device)
        missing = [name for name, value in values.items() if value is _MISSING]
        if missing:
            raise TypeError(f"{self.name} is launched without {', '.join(missing)}.")
        keys = tuple(map(argument_key, values.values(), self.manifest["parameters"]))
        specialization = target, keys, self._options(target, options)
        binary = self.binaries.get(specialization)
        if binary is None:
            self._launch_by_triton(grid, {**values, **options}, target, keys)
            return None
        with self.lock:
            place = device, *specialization
            if place not in self.packers:
                self.packers[place] = self._packer(binary, device, keys)
            if call is not None:
                if len(self.runs) >= MOST_KEPT:
                    self.runs.clear()
                self.runs[call] = self.packers[place]
        return self.packers[place]

    def _packer(self, binary: dict[str, Any], device: int, keys: tuple[Any, ...]) -> Callable[..., None]:
        file = binary["file"], device
        if file not in self.functions:
            self.functions[file] = self.driver.load(binary, device)
        return packing_function(self.driver, binary, self.functions[file], keys, self.names, self.forms)

    def _options(self, target: str, options: dict[str, Any]) -> tuple[Any, ...]:
        """Return the options of a launch that differ from the defaults of the target."""
        defaults = self.manifest["defaults"].get(target, {})
        others = ((n, v) for n, v in options.items() if v is not None and (n not in defaults or v != defaults[n]))
        return tuple(sorted((name, _as_tuple(value)) for name, value in others))

    def _interpret(self, grid: Any, call: Any, values: dict[str, Any], options: dict[str, Any]) -> None:
        """Launch by Triton's interpreter."""
        passed = {name: value for name, value in values.items() if value is not _MISSING}
        self._launch_by_triton(grid, {**passed, **options}, "cpu", ())

    def _launch_by_triton(self, grid: Any, named: dict[str, Any], target: str, keys: tuple[Any, ...]) -> None:
        if not installed_triton():
            known = ", ".join(sorted({binary["target"] for binary in self.manifest["binaries"]}))
            words = ", ".join(f"{name}: {_key_text(key)}" for name, key in zip(self.names, keys, strict=False))
            raise RuntimeError(
                f"{self.name} has no binary for {target} with {words}, and Triton is not installed to compile it. "
                f"Its binaries are for {known}; export it for this target and these arguments as well."
            )
        self.triton_kernel[grid](**{name: _for_triton(value) for name, value in named.items()})

    @functools.cached_property
    def triton_kernel(self) -> Any:
        """The kernel of the module next to the binaries, which needs Triton."""
        name = f"{self.name}_triton"
        spec = importlib.util.spec_from_file_location(name, self.folder / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return getattr(module, self.name)


def installed_triton() -> str:
    """Return the version of the installed Triton, without importing it; "" if there is none."""
    if "triton" in sys.modules:
        return str(getattr(sys.modules["triton"], "__version__", ""))
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        spec = importlib.util.find_spec("triton")
        return "" if spec is None else str(importlib.import_module("triton").__version__)


def _for_triton(value: Any) -> Any:
    """Return an argument as Triton's own class where it is one of this file."""
    if isinstance(value, tuple):
        return tuple(map(_for_triton, value))
    if isinstance(value, Dtype):
        return importlib.import_module("triton.language").dtype(str(value))
    if isinstance(value, TensorDescriptor):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        if not fields["round_f32_to_tf32"]:  # older versions lack it
            del fields["round_f32_to_tf32"]
        return importlib.import_module("triton.tools.tensor_descriptor").TensorDescriptor(**fields)
    return value


def _as_tuple(value: Any) -> Any:
    return tuple(map(_as_tuple, value)) if isinstance(value, list | tuple) else value


def _key_text(key: tuple[Any, ...]) -> str:
    if key and isinstance(key[0], tuple):
        return f"({', '.join(map(_key_text, key))})"
    return str(key[1]) if key[0] == "constexpr" else f"{key[0]}{' divisible by 16' * key[1]}"

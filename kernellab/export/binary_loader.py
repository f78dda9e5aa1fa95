"""The loader of exported binaries: launches by the CUDA driver, without Triton.

Its text is copied into each export; it needs torch and ``libcuda.so.1``. A launch is specialized as Triton does it
(types, divisibility by 16, ones, None, constexprs, options), and the binary of that specialization is launched as
Triton's own launcher would. Triton is imported only for a target or a specialization that has no binary.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import json
import pathlib
import struct
import sys
from typing import Any

from kernellab.export.binary_driver import MAP_BYTES, CudaDriver, cdiv
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
        kind = "i32" if -(2**31) <= value < 2**31 else "i64" if value < 2**63 else "u64"
        return kind, is_aligned and value % 16 == 0
    kind = {bool: "u1", float: "fp32"}.get(type(value), type(value).__name__)
    return annotation or kind, False


def _element_type(tensor: Any) -> str:
    name = str(tensor.dtype).removeprefix("torch.")
    return TRITON_NAMES.get(name, name)


def run_time_values(value: Any, key: tuple[Any, ...]) -> list[tuple[str, Any]]:
    """Return the type and value of each part of an argument that is not a constant."""
    if key and isinstance(key[0], tuple):
        return [part for member, of in zip(value, key, strict=True) for part in run_time_values(member, of)]
    return [] if not key or key[0] == "constexpr" else [(key[0], value)]


def number_bytes(kind: str, value: Any, size: int) -> bytes:
    """Return a number as the bytes of a parameter of this type and size."""
    if kind == "fp16":
        return struct.pack("<e", value)
    if kind == "bf16":
        return bytes(ctypes.c_float(value))[2:]
    if kind in ("fp32", "fp64"):
        return bytes(ctypes.c_float(value) if size == 4 else ctypes.c_double(value))
    return (int(value) % (1 << 8 * size)).to_bytes(size, "little")


class BinaryKernel:
    """A kernel as compiled binaries: ``kernel[grid](...)`` launches the one of its arguments, or Triton's.

    ``accepted`` are further versions of Triton that may be installed, next to the one that compiled the binaries.
    """

    def __init__(self, name: str, folder: str, digest: str, heuristics: dict[str, Any], interprets: bool) -> None:
        self.name, self.folder, self.digest = name, pathlib.Path(folder), digest
        self.heuristics, self.interprets = heuristics, interprets
        self.accepted: set[str] = set()
        self.driver = CudaDriver()
        self.functions: dict[tuple[str, int], Any] = {}

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

    def launch(self, grid: Any, *args: Any, **named: Any) -> None:
        """Launch the binary of these arguments; without one, the kernel through Triton."""
        parameters = self.manifest["parameters"]
        named = {**dict(zip((p["name"] for p in parameters), args, strict=False)), **named}
        for name, heuristic in self.heuristics.items():
            named[name] = heuristic(named)
        if self.interprets:
            return self._launch_by_triton(grid, named, "cpu", ())
        device = self.driver.current_device()
        target = self.driver.target(device)
        missing = [p["name"] for p in parameters if p["name"] not in named and "default" not in p]
        if missing:
            raise TypeError(f"{self.name} is launched without {', '.join(missing)}.")
        values = [named[p["name"]] if p["name"] in named else p["default"] for p in parameters]
        keys = tuple(map(argument_key, values, parameters))
        binary = self.binaries.get((target, keys, self._options(target, named)))
        if binary is None:
            return self._launch_by_triton(grid, named, target, keys)
        if callable(grid):
            grid = grid({**{p["name"]: value for p, value in zip(parameters, values, strict=True)}, **named})
        extents = (*((grid,) if isinstance(grid, int) else grid), 1, 1)[:3]
        if 0 not in extents:
            parts = [part for value, key in zip(values, keys, strict=True) for part in run_time_values(value, key)]
            self._launch_binary(binary, extents, device, parts)
        return None

    def _options(self, target: str, named: dict[str, Any]) -> tuple[Any, ...]:
        """Return the options of a launch that differ from the defaults of the target."""
        own = {parameter["name"] for parameter in self.manifest["parameters"]}
        defaults = self.manifest["defaults"].get(target, {})
        options = {name: value for name, value in named.items() if name not in own and value is not None}
        return tuple(sorted((n, _as_tuple(v)) for n, v in options.items() if n not in defaults or v != defaults[n]))

    def _launch_binary(
        self, binary: dict[str, Any], grid: tuple[int, int, int], device: int, parts: list[tuple[str, Any]]
    ) -> None:
        self.driver.enter_context(device)
        place = binary["file"], device
        if place not in self.functions:
            self.functions[place] = self.driver.load(binary["image"], binary["symbol"], binary["shared_bytes"], device)
        programs = grid[0] * grid[1] * grid[2] * binary["num_ctas"]
        scratch = [self.driver.allocate(size * programs, device) if size else None for size in binary["scratch_bytes"]]
        values = self._parameters(binary, [*parts, *(("*", memory) for memory in scratch)])
        self.driver.launch(self.functions[place], grid, self.driver.current_stream(device), values, binary)

    def _parameters(self, binary: dict[str, Any], parts: list[tuple[str, Any]]) -> list[bytes]:
        """Return the parameters of a binary as bytes."""
        sizes = binary["parameter_bytes"]
        maps = iter(binary["tensor_maps"])
        values: list[bytes] = []
        for kind, value in parts:
            if kind.startswith("*"):
                values.append(struct.pack("<Q", 0 if value is None else self.driver.device_pointer(value)))
            elif kind.startswith("tensordesc"):
                layout = [*map(int, value.shape), *map(int, value.strides)]
                if sizes[len(values)] == MAP_BYTES:
                    values.append(self.driver.tensor_map(value, next(maps)))
                else:
                    values.append(struct.pack("<Q", self.driver.device_pointer(value.base)))
                    values += [struct.pack("<q", number) for number in layout]
                    flags = [value.padding == "nan", getattr(value, "round_f32_to_tf32", False)]
                    values += [bytes([flag]) for flag in flags[: 1 + (sizes[len(values) + 1] == 1)]]
                for number in layout:
                    values.append(number_bytes("", number, sizes[len(values)]))
            else:
                values.append(number_bytes(kind, value, sizes[len(values)]))
        return values

    def _launch_by_triton(self, grid: Any, named: dict[str, Any], target: str, keys: tuple[Any, ...]) -> None:
        if not installed_triton():
            known = ", ".join(sorted({binary["target"] for binary in self.manifest["binaries"]}))
            names = [parameter["name"] for parameter in self.manifest["parameters"]]
            words = ", ".join(f"{name}: {_key_text(key)}" for name, key in zip(names, keys, strict=False))
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
        found = importlib.util.find_spec("triton")
        return "" if found is None else str(importlib.import_module("triton").__version__)


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

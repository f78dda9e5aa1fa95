"""What a kernel asks of its device: the options of the launch, special registers, the functions of its math library.

A program is said to run on the multiprocessor of its number, in turns. Clocks tell nanoseconds of this machine: they
only grow, and what they measure is the interpreter.

Of CUDA's libdevice, and of AMD's, there are the functions that numpy and the standard library can compute. CUDA Math
API: the names are ``__nv_`` + the C name, with ``f`` for float32; AMD's are ``__ocml_`` + name + ``_f32``.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from triton.runtime import interpreter as upstream

from kernellab.interpreter.faults import Unsupported
from kernellab.interpreter.values import Array
from kernellab.target import MULTIPROCESSORS

# The registers of PTX, https://docs.nvidia.com/cuda/parallel-thread-execution/#special-registers, and AMD's counter.
_MOVE = re.compile(r"mov\.[ub](?:32|64)\s+\$0\s*,\s*%(\w+)\s*;?")
_AMD_COUNTERS = ("s_memrealtime", "MSG_RTN_GET_REALTIME")
_CLOCKS = frozenset({"globaltimer", "globaltimer_lo", "clock", "clock64"})


@dataclass(frozen=True, slots=True)
class InterpretedDevice:
    """What is told of the device. ``warps`` of a program are None where nobody knows."""

    warps: int | None = None
    multiprocessors: int = MULTIPROCESSORS


class DeviceOptions(upstream.InterpreterOptions):  # type: ignore[misc]
    """The options of a launch, as Triton's language asks the builder for them."""

    def __init__(self, device: InterpretedDevice) -> None:
        # device_assert is checked; overflow is found here, at a fraction of the cost of Triton's 64-bit shadow sums.
        # tl.dot computes in float32 whatever is asked for; which precisions a target has is the compiler's to say.
        precisions = tuple(name.lower() for name in upstream._ir.INPUT_PRECISION.__members__)
        super().__init__(debug=True, sanitize_overflow=False, arch="", allowed_dot_input_precisions=precisions)
        object.__setattr__(self, "device", device)

    @property
    def num_warps(self) -> int:
        """The warps of a program.

        Raises:
            Unsupported: the options of the launch are not known.
        """
        device: InterpretedDevice = self.device
        if device.warps is None:
            raise Unsupported("num_warps and num_threads here, where the options of the launch are not known")
        return device.warps


def register_value(assembly: str, program: int, device: InterpretedDevice) -> int:
    """Return what inline assembly gives that reads a special register, in the program of a number.

    Raises:
        Unsupported: it does anything else.
    """
    found = _MOVE.fullmatch(assembly.strip())
    register = found[1] if found else ""
    if register in _CLOCKS or any(word in assembly for word in _AMD_COUNTERS):
        return time.monotonic_ns()
    if register in {"smid", "nsmid"}:
        return program % device.multiprocessors if register == "smid" else device.multiprocessors
    raise Unsupported("inline assembly")


External = Callable[..., Array]


def _each(function: Callable[..., float]) -> External:
    """Return a function of Python floats as one of arrays, computed in float64."""

    def guarded(*values: float) -> float:
        try:
            return function(*map(float, values))
        except OverflowError:
            return math.inf
        except ValueError:
            return math.nan

    vectorised = np.vectorize(guarded, otypes=[np.float64])
    return lambda *arrays: vectorised(*arrays).astype(arrays[0].dtype)


def _in_double(function: Callable[..., Array]) -> External:
    return lambda *arrays: function(*(array.astype(np.float64) for array in arrays)).astype(arrays[0].dtype)


def _leading_zeros(values: Array) -> Array:
    bits = values.itemsize * 8
    unsigned = values.view(f"u{values.itemsize}")
    counted: Array = np.vectorize(lambda v: bits - int(v).bit_length(), otypes=[np.int32])(unsigned)
    return counted


_NUMPY_NAMES = (
    "exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh sqrt cbrt floor ceil trunc rint fmod hypot "
    "copysign nextafter ldexp"
)
_FUNCTIONS: dict[str, External] = {
    **{name: getattr(np, name) for name in _NUMPY_NAMES.split()},
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "pow": np.power,
    "powi": lambda x, n: np.power(x.astype(np.float64), n).astype(x.dtype),
    "fabs": np.abs,
    "abs": np.abs,
    "fmax": np.fmax,
    "fmin": np.fmin,
    "max": np.maximum,
    "min": np.minimum,
    "umax": np.maximum,
    "umin": np.minimum,
    "nearbyint": np.rint,
    "round": _in_double(lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x)),
    "exp10": _in_double(lambda x: np.power(10.0, x)),
    "rsqrt": _in_double(lambda x: 1 / np.sqrt(x)),
    "rcbrt": _in_double(lambda x: 1 / np.cbrt(x)),
    "fma": _in_double(lambda x, y, z: x * y + z),
    "fdim": _in_double(lambda x, y: np.where(x > y, x - y, 0.0)),
    "sinpi": _in_double(lambda x: np.sin(np.pi * x)),
    "cospi": _in_double(lambda x: np.cos(np.pi * x)),
    "saturate": lambda x: np.clip(np.nan_to_num(x, nan=0.0), 0, 1).astype(x.dtype),
    "remainder": _each(math.remainder),
    "erf": _each(math.erf),
    "erfc": _each(math.erfc),
    "tgamma": _each(math.gamma),
    "lgamma": _each(math.lgamma),
    "isnan": lambda x: np.isnan(x).astype(np.int32),
    "isinf": lambda x: np.isinf(x).astype(np.int32),
    "finite": lambda x: np.isfinite(x).astype(np.int32),
    "isfinited": lambda x: np.isfinite(x).astype(np.int32),
    "signbit": lambda x: np.signbit(x).astype(np.int32),
    "popc": lambda x: np.bitwise_count(x.view(f"u{x.itemsize}")).astype(np.int32),
    "clz": _leading_zeros,
    "mulhi": lambda x, y: (x.astype(np.int64) * y.astype(np.int64) >> 32).astype(x.dtype),
    "umulhi": lambda x, y: (x.astype(np.uint64) * y.astype(np.uint64) >> np.uint64(32)).astype(x.dtype),
    "float_as_int": lambda x: x.view(np.int32),
    "int_as_float": lambda x: x.view(np.float32),
    "ilogb": lambda x: (np.frexp(x)[1] - 1).astype(np.int32),
    "divide": np.divide,
    "fdivide": np.divide,
    "div": np.divide,
    "mul": np.multiply,
    "add": np.add,
    "sub": np.subtract,
    "rcp": lambda x: (1 / x).astype(x.dtype),
}
_INTEGER_SUFFIX = {"popcll": "popc", "clzll": "clz", "llmax": "max", "llmin": "min", "llabs": "abs"}


def external_function(symbol: str) -> External | None:
    """Return what a library function computes, on arrays, or None where it is not known."""
    cuda = re.fullmatch(r"__nv_(\w+)", symbol)
    if cuda:
        return _cuda(cuda[1])
    amd = re.fullmatch(r"__ocml_(\w+)_f(?:16|32|64)", symbol)
    return _FUNCTIONS.get(amd[1]) if amd else None


def _cuda(name: str) -> External | None:
    if name in _INTEGER_SUFFIX:
        return _FUNCTIONS[_INTEGER_SUFFIX[name]]
    to_nearest = re.fullmatch("[df]?(div|mul|add|sub|sqrt|rcp|fma)_rn", name)
    plain = to_nearest[1] if to_nearest else name.removeprefix("fast_")
    return _FUNCTIONS.get(plain) or _FUNCTIONS.get(plain.removesuffix("f"))

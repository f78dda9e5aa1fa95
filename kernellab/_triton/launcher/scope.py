"""What a launch function refers to, and the circumstances that it holds under."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from triton import knobs
from triton._C.libtriton import native_specialize_impl
from triton.knobs import HookChain
from triton.runtime.driver import driver as drivers

from kernellab._triton.launcher.captured import Capture
from kernellab._triton.launcher.chain import MISSING, Chain
from kernellab._triton.launcher.code import Slot
from kernellab._triton.launcher.features import argument_feature, constant_feature, layout_type


@dataclass(frozen=True, slots=True)
class Context:
    """What a launch function was made under: the driver, and what the kernel takes from outside itself."""

    driver: Any
    captures: tuple[Capture, ...]

    def is_now(self, other: Context) -> bool:
        """Tell whether another context is the same; a kernel holds on to its captures as long as none changes."""
        return self.driver is other.driver and self.captures is other.captures


def context_of(function: Any) -> Context:
    return Context(drivers._active, function.captures())


def scope_of(chain: Chain, **own: Any) -> dict[str, Any]:
    import torch  # a launch needs it anyway

    active = drivers.active
    enter, leave = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
    backend = type(chain.function.device_caches[active.get_current_device()][3])
    return {
        "_kl_missing": MISSING,
        **{f"_kl_{name}": value for name, value in own.items()},
        "_kl_kernel": chain.function,
        "_kl_tuner": chain.tuner,
        "_kl_drivers": drivers,
        "_kl_runtime": knobs.runtime,
        "_kl_compilation": knobs.compilation,
        "_kl_device": _current_device(active),
        "_kl_current_stream": active.get_current_stream,
        "_kl_enter_chain": enter if isinstance(enter, HookChain) else HookChain(),
        "_kl_leave_chain": leave if isinstance(leave, HookChain) else HookChain(),
        "_kl_tensors": frozenset({torch.Tensor, torch.nn.Parameter}),
        "_kl_native": lambda value: native_specialize_impl(backend, value, False, True, True),
        "_kl_feature": lambda value: argument_feature(backend, value),
        "_kl_constant": constant_feature,
        "_kl_foreign": (RuntimeError, TypeError, ValueError),
        "_kl_type": type,
        "_kl_tuple": tuple,
        "_kl_list": list,
        "_kl_int": int,
        "_kl_len": len,
        "_kl_map": map,
        "_kl_callable": callable,
    }


def by_slot(chain: Chain, slots: tuple[Slot, ...], values: tuple[Any, ...]) -> dict[str, Any]:
    scope: dict[str, Any] = {}
    for slot, value, parameter in zip(slots, values, chain.function.params, strict=True):
        scope[f"_kl_type_{slot.name}"] = layout_type(value)
        if parameter.has_default:
            scope[f"_kl_default_{slot.name}"] = parameter.default
    return scope


def by_context(context: Context) -> dict[str, Any]:
    scope = {"_kl_driver": context.driver}
    for i, capture in enumerate(context.captures):
        scope[f"_kl_scope{i}"], scope[f"_kl_global{i}"] = capture.scope, capture.value
    return scope


def _current_device(active: Any) -> Any:
    """Return the function that tells the current device; of torch's own, the part after its check for a first use."""
    import torch

    direct = getattr(torch._C, "_cuda_getDevice", None)
    is_torchs = active.get_current_device is torch.cuda.current_device
    return direct if is_torchs and direct is not None else active.get_current_device

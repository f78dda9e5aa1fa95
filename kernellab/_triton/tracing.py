"""Launches of bound kernels under the tracers of torch: `make_fx`, `torch.export`, functionalisation, `torch.compile`.

A launch whose arguments are fake, functional or symbolic, or that a proxy mode follows, is no launch: it becomes a node
of torch's own operator for Triton kernels, the one that `torch.library.wrap_triton` gives, with the bound kernel in
torch's side table. That operator has the rules of all tracers; what it mutates is hidden from autograd.

dynamo takes a bound kernel for a Triton kernel, as it is one, but only where torch finds a GPU, and one with heuristics
nowhere. There it traces through ``kernel[grid]``, for which `traced_on_grid` stands in.
"""

from __future__ import annotations

import copy
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

from triton.runtime import JITFunction
from triton.runtime.autotuner import Autotuner, Config, Heuristics, autotune

from kernellab._triton.kernel import jit_function
from kernellab._triton.opaque import grid_among, launch_opaquely, needs_opaque
from kernellab.errors import LaunchError

_Marked = TypeVar("_Marked", bound=Callable[..., Any])
_NOT_BY_KEYWORD = "num_ctas"  # torch's operator takes this from a config alone


def is_traced(args: tuple[Any, ...], meta: Mapping[str, Any]) -> bool:
    """Tell whether a launch with these arguments is to become a node of a graph."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    if torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is not None:
        return True
    return any(_is_symbolic(torch, value) for value in _leaves((args, dict(meta))))


def traced_launch(kernel: Any, args: tuple[Any, ...], grid: Any, meta: Mapping[str, Any]) -> None:
    """Add a launch to the graph that torch makes.

    Raises:
        LaunchError: torch cannot trace launches of such a kernel, or with such arguments.
    """
    from torch._higher_order_ops.triton_kernel_wrap import TraceableTritonKernelWrapper

    kernel, args, meta = _plain(kernel, args, dict(meta))
    if _NOT_BY_KEYWORD in meta and not isinstance(kernel, Autotuner):
        kernel = autotune(configs=[Config({}, num_ctas=meta.pop(_NOT_BY_KEYWORD))], key=[])(kernel)
    if needs_opaque(kernel, args, meta):
        launch_opaquely(kernel, args, grid, meta)
        return
    try:
        TraceableTritonKernelWrapper(kernel, None, None)[grid](*args, **meta)
    except RuntimeError as exc:
        name = jit_function(kernel).__name__
        raise LaunchError(f"torch cannot trace this launch of {name}: {exc}", kernel=name) from exc


def traced_on_grid(kernel: Any, grid: Any) -> Any:
    """Return what stands for ``kernel[grid]`` where dynamo traces through it."""
    return partial(_launch_in_dynamo, kernel, grid)


def _launch_in_dynamo(kernel: Any, grid: Any, *args: Any, **meta: Any) -> None:
    """Stand for a launch in code that dynamo traces; it knows this code, and of the kernel a number alone."""
    if isinstance(kernel, Heuristics):
        named = dict(zip(kernel.arg_names, args, strict=False))
        for name, heuristic in kernel.values.items():
            meta[name] = heuristic({**named, **meta})
        kernel.fn[grid](*args, **meta)
        return
    import torch

    number = kernel.side_table_number()
    named = {**dict(zip(kernel.arg_names, args, strict=False)), **meta}
    if callable(grid):
        configs = [config.kwargs for config in kernel.configs] if isinstance(kernel, Autotuner) else [{}]
        grids = [grid({**named, **config}) for config in configs]
    else:
        grids = [grid]
    in_graph = (torch.Tensor, int, float, str, type(None), tuple, list)
    constants = {
        name: value.number if isinstance(value, HeldConstant) else _number_of_constant(value)
        for name, value in named.items()
        if isinstance(value, HeldConstant) or not isinstance(value, in_graph)
    }
    _launch_in_graph(number, grids, {n: value for n, value in named.items() if n not in constants}, constants)


def side_table_number(kernel: Any) -> Callable[[], int]:
    """Return a function that gives the number of a kernel in torch's side table.

    dynamo calls it once, while it traces, and takes the result for a constant; it passes no objects to such functions.
    """
    held = weakref.ref(kernel)

    def number() -> int:
        import torch
        from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

        torch.compiler.allow_in_graph(_launch_in_graph)  # type: ignore[no-untyped-call]
        found: Any = held()
        return int(kernel_side_table.add_kernel(found))

    return while_tracing(number)


def while_tracing(function: _Marked) -> _Marked:
    """Mark a function as one that dynamo calls while it traces, as `torch.compiler.assume_constant_result` does."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


@while_tracing
def _number_of_constant(value: Any) -> int:
    """Return the number in torch's side table of what a graph cannot hold: a dtype, a function."""
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    return int(kernel_side_table.add_constant_args({"value": value}))


class HeldConstant(NamedTuple):
    """A constant in torch's side table, by its number, where dynamo could not hold it: a kernel, on some versions."""

    number: int


def held_in_dynamo(constants: Mapping[str, Any]) -> dict[str, Any]:
    """Return constants with kernels among them by number where dynamo knows no Triton, and so holds none."""
    from torch.utils._triton import has_triton

    if has_triton():
        return dict(constants)
    number = _number_of_constant
    return {n: HeldConstant(number(v)) if isinstance(v, JITFunction) else v for n, v in constants.items()}


class DescriptorParts(NamedTuple):
    """A tensor descriptor as a graph of dynamo can hold it where dynamo knows none: without a GPU that has them."""

    base: Any
    shape: Any
    strides: Any
    block_shape: Any
    padding: str

    def built(self) -> Any:
        """Return the descriptor."""
        from triton.tools.tensor_descriptor import TensorDescriptor

        options = {} if self.padding == "zero" else {"padding": self.padding}
        return TensorDescriptor(self.base, list(self.shape), list(self.strides), list(self.block_shape), **options)


@while_tracing
def knows_descriptors() -> bool:
    """Tell whether dynamo knows tensor descriptors here."""
    from torch.utils._triton import has_triton_tensor_descriptor_host_tma

    return bool(has_triton_tensor_descriptor_host_tma())


def _launch_in_graph(number: int, grids: list[Any], arguments: dict[str, Any], constants: dict[str, int]) -> None:
    """Launch a kernel of torch's side table: a node of dynamo's graph, which torch traces through later on.

    ``grids`` has one grid, or one for each config of an autotuned kernel.
    """
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    kernel: Any = kernel_side_table.get_kernel(number)
    held = {name: kernel_side_table.get_constant_args(index)["value"] for name, index in constants.items()}
    given = {n: value.built() if isinstance(value, DescriptorParts) else value for n, value in arguments.items()}
    kernel[grid_among(kernel, grids)](**given, **held)


def _plain(kernel: Any, args: tuple[Any, ...], meta: dict[str, Any]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return a launch with what heuristics and defaults give, for a kernel without heuristics.

    Heuristics under a tuner become values of its configs. What stands for a number is fixed there, with a guard.
    """
    while isinstance(kernel, Heuristics):
        meta |= _given_by(kernel, {**dict(zip(kernel.arg_names, args, strict=False)), **meta})
        kernel = kernel.fn
    function = jit_function(kernel)
    known = {*function.arg_names[: len(args)], *meta}
    if isinstance(kernel, Autotuner):
        named = {**dict(zip(kernel.arg_names, args, strict=False)), **meta}
        kernel = _without_inner_heuristics(kernel, named)
        known |= {name for config in kernel.configs for name in config.all_kwargs()}
    meta |= {p.name: p.default for p in function.params if p.has_default and p.name not in known}
    return kernel, args, meta


def _without_inner_heuristics(tuner: Any, named: Mapping[str, Any]) -> Any:
    """Return a tuner whose configs have what the heuristics under it give for the arguments of a launch."""
    if not isinstance(tuner.fn, Heuristics):
        return tuner
    configs = copy.deepcopy(tuner.configs)
    inner = tuner.fn
    while isinstance(inner, Heuristics):
        for config in configs:
            config.kwargs |= _given_by(inner, {**named, **config.kwargs})
        inner = inner.fn
    pruned = {name: getattr(tuner, name) for name in ("perf_model", "early_config_prune")}
    return autotune(configs=configs, key=[], prune_configs_by={**pruned, "top_k": tuner.configs_top_k})(inner)


def _given_by(kernel: Any, named: dict[str, Any]) -> dict[str, Any]:
    """Return the values that heuristics give, one after the other."""
    from torch.fx.experimental.symbolic_shapes import guard_scalar

    found: dict[str, Any] = {}
    for name, heuristic in kernel.values.items():
        value = heuristic({**named, **found})
        found[name] = guard_scalar(value) if _is_symbol(value) else value
    return found


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple | list):
        for member in value:
            yield from _leaves(member)
    elif isinstance(value, dict):
        yield from _leaves(tuple(value.values()))
    else:
        base = getattr(value, "base", None) if hasattr(value, "block_shape") else None
        yield value if base is None else base


def _is_symbolic(torch: Any, value: Any) -> bool:
    """Tell whether a value stands for others: a fake or functional tensor, a number that is a symbol."""
    if not isinstance(value, torch.Tensor):
        return _is_symbol(value)
    if type(value) is torch.Tensor or type(value) is torch.nn.Parameter:
        return bool(torch._is_functional_tensor(value))
    from torch._subclasses.fake_tensor import FakeTensor
    from torch._subclasses.functional_tensor import FunctionalTensor

    return isinstance(value, FakeTensor | FunctionalTensor) or value.device.type == "meta"


def _is_symbol(value: Any) -> bool:
    import torch

    return isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool)

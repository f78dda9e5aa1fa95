"""Launches of bound kernels under the tracers of torch: `make_fx`, `torch.export`, functionalisation, `torch.compile`.

A launch whose arguments are fake, functional or symbolic, or that a proxy mode follows, becomes a node of torch's own
operator for Triton kernels, the one of `torch.library.wrap_triton`, with the bound kernel in torch's side table. dynamo
takes a bound kernel for a Triton kernel only where torch finds a GPU, and one with heuristics nowhere; there it traces
through ``kernel[grid]``, for which `traced_on_grid` stands in.

Torch's operator takes no tuples, descriptors and symbolic truth values, and Inductor makes code of it for GPUs only.
For these there is ``kernellab::launch``, which every backend calls as it is; kernel and constants are in the side
table, by number. What either operator mutates is hidden from autograd.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeVar

from triton.runtime import JITFunction
from triton.runtime.autotuner import Autotuner, Config, Heuristics, autotune

from kernellab._triton.kernel import Bound, Kernel, jit_function, with_heuristics
from kernellab.errors import LaunchError

_Marked = TypeVar("_Marked", bound=Callable[..., Any])
_NOT_BY_KEYWORD = "num_ctas"  # torch's operator takes this from a config alone


def is_traced(args: tuple[Any, ...], meta: Mapping[str, Any]) -> bool:
    """Whether a launch with these arguments becomes a node of a torch graph."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    return _is_followed_by_proxies(torch) or any(_is_symbolic(torch, value) for value in _leaves((args, dict(meta))))


def traced_launch(kernel: Kernel, args: tuple[Any, ...], grid: Any, meta: Mapping[str, Any]) -> Any:
    """Add a launch to the graph that torch makes; one of tensors with contents is made, with the values of its symbols.

    Raises:
        LaunchError: torch cannot trace launches of such a kernel, or with such arguments.
    """
    import torch

    try:
        tensors = [leaf for leaf in _leaves((args, dict(meta))) if isinstance(leaf, torch.Tensor)]
        if not _is_followed_by_proxies(torch) and not any(_is_symbolic(torch, tensor) for tensor in tensors):
            return kernel[grid](*_with_values(args), **_with_values(dict(meta)))
        return _add_to_graph(*_plain(kernel, args, dict(meta)), grid)
    except RuntimeError as exc:
        name = jit_function(kernel).__name__
        raise LaunchError(f"torch cannot trace this launch of {name}: {exc}", kernel=name) from exc


def _is_followed_by_proxies(torch: Any) -> bool:
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is not None


def _add_to_graph(kernel: Any, args: tuple[Any, ...], meta: dict[str, Any], grid: Any) -> None:
    from torch._higher_order_ops.triton_kernel_wrap import TraceableTritonKernelWrapper

    if _needs_opaque(kernel, args, meta):
        _launch_opaquely(kernel, args, grid, meta)
        return
    names = jit_function(kernel).arg_names
    meta = {name: value if name in names else _with_values(value) for name, value in meta.items()}
    if _NOT_BY_KEYWORD in meta and not isinstance(kernel, Autotuner):
        kernel = autotune(configs=[Config({}, num_ctas=meta.pop(_NOT_BY_KEYWORD))], key=[])(kernel)
    TraceableTritonKernelWrapper(kernel, None, None)[grid](*args, **meta)


def _with_values(value: Any) -> Any:
    """Nested arguments with each symbol replaced by its value, which adds a guard to the trace."""
    from torch.fx.experimental.symbolic_shapes import guard_scalar
    from torch.utils._pytree import tree_map

    return tree_map(lambda leaf: guard_scalar(leaf) if _is_symbol(leaf) else leaf, value)


def traced_on_grid(kernel: Bound, grid: Any) -> Any:
    """The stand-in for ``kernel[grid]`` where dynamo traces through it."""
    return partial(_launch_in_dynamo, kernel, grid)


def _launch_in_dynamo(kernel: Bound, grid: Any, *args: Any, **meta: Any) -> None:
    """Stand for a launch in code that dynamo traces; it knows this code, and of the kernel a number alone."""
    if isinstance(kernel, Heuristics):
        kernel.fn[grid](*args, **with_heuristics(kernel, args, meta))
        return
    import torch

    number = kernel.side_table_number()
    named = {**dict(zip(kernel.arg_names, args, strict=False)), **meta}
    grids = _grids_of(kernel, grid, named)
    in_graph = (torch.Tensor, int, float, str, type(None), tuple, list)
    constants = {
        name: value.number if isinstance(value, HeldConstant) else _number_of_constant(value)
        for name, value in named.items()
        if isinstance(value, HeldConstant) or not isinstance(value, in_graph)
    }
    _launch_in_graph(number, grids, {n: value for n, value in named.items() if n not in constants}, constants)


def while_tracing(function: _Marked) -> _Marked:
    """Mark a function as one that dynamo calls while it traces, as `torch.compiler.assume_constant_result` does."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def skip_in_dynamo(*functions: Any) -> None:
    """Let dynamo neither trace nor compile these functions: after a graph break it compiles all that is called."""
    for function in functions:
        function._torchdynamo_disable = True
        keep_from_compiling(function)


def keep_from_compiling(function: Any) -> None:
    """Let dynamo compile neither a function that runs outside of its graphs nor what that calls."""
    torch_dynamo = getattr(getattr(sys.modules.get("torch"), "_C", None), "_dynamo", None)
    frames: Any = getattr(torch_dynamo, "eval_frame", None)
    if hasattr(frames, "set_code_exec_strategy"):
        strategy = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.SKIP)
        frames.set_code_exec_strategy(function.__code__, strategy)


@while_tracing
def side_table_number(kernel: Kernel) -> int:
    """The number of a kernel in torch's side table; each bound kernel has this as a method.

    dynamo calls it once, while it traces, and takes the result for a constant; it passes no objects to such functions.
    """
    import torch
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    torch.compiler.allow_in_graph(_launch_in_graph)  # type: ignore[no-untyped-call]
    keep_from_compiling(_launch_in_graph)
    return int(kernel_side_table.add_kernel(kernel))


@while_tracing
def _number_of_constant(value: Any) -> int:
    """The number in torch's side table of a constant that no graph holds: a dtype, a function."""
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

    def descriptor(self) -> Any:
        """The descriptor."""
        from triton.tools.tensor_descriptor import TensorDescriptor

        return TensorDescriptor(self.base, list(self.shape), list(self.strides), list(self.block_shape), self.padding)


@while_tracing
def knows_descriptors() -> bool:
    """Whether dynamo knows tensor descriptors here."""
    from torch.utils._triton import has_triton_tensor_descriptor_host_tma

    return bool(has_triton_tensor_descriptor_host_tma())


def _launch_in_graph(number: int, grids: list[Any], arguments: dict[str, Any], constants: dict[str, int]) -> None:
    """Launch a kernel of torch's side table: a node of dynamo's graph, which torch traces through later on.

    ``grids`` has one grid, or one for each config of an autotuned kernel.
    """
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    kernel: Kernel = kernel_side_table.get_kernel(number)
    held = {name: kernel_side_table.get_constant_args(index)["value"] for name, index in constants.items()}
    plain = {n: value.descriptor() if isinstance(value, DescriptorParts) else value for n, value in arguments.items()}
    kernel[_grid_among(kernel, grids)](**plain, **held)


def _plain(kernel: Kernel, args: tuple[Any, ...], meta: dict[str, Any]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """A launch without heuristics: their values, and the defaults, are among its arguments.

    Heuristics under a tuner become values of its configs. A symbol is fixed there, with a guard.
    """
    while isinstance(kernel, Heuristics):
        meta = dict(with_heuristics(kernel, args, meta))
        kernel = kernel.fn
    function = jit_function(kernel)
    known = {*function.arg_names[: len(args)], *meta}
    if isinstance(kernel, Autotuner):
        named = {**dict(zip(kernel.arg_names, args, strict=False)), **meta}
        tuner = kernel = _without_inner_heuristics(kernel, named)
        known |= {name for config in tuner.configs for name in config.all_kwargs()}
    meta |= {p.name: p.default for p in function.params if p.has_default and p.name not in known}
    return kernel, args, meta


def _without_inner_heuristics(tuner: Any, named: Mapping[str, Any]) -> Any:
    """A tuner with the values of the heuristics under it in its configs."""
    if not isinstance(tuner.fn, Heuristics):
        return tuner
    configs = copy.deepcopy(tuner.configs)
    inner = tuner.fn
    while isinstance(inner, Heuristics):
        for config in configs:
            values = with_heuristics(inner, (), {**named, **config.kwargs})
            config.kwargs |= {name: _with_values(values[name]) for name in inner.values}
        inner = inner.fn
    pruned = {name: getattr(tuner, name) for name in ("perf_model", "early_config_prune")}
    return autotune(configs=configs, key=[], prune_configs_by={**pruned, "top_k": tuner.configs_top_k})(inner)


def _leaves(value: Any) -> list[Any]:
    from torch.utils._pytree import tree_leaves

    return [getattr(leaf, "base", leaf) if hasattr(leaf, "block_shape") else leaf for leaf in tree_leaves(value)]


def _is_symbolic(torch: Any, value: Any) -> bool:
    """Whether a value is a fake or functional tensor, or a symbolic number."""
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


_SCHEMA = (
    "(int kernel, int constants, Tensor(a!)[] changed, Tensor[] read, SymInt[] integers, Scalar[] numbers, "
    "SymInt[] grid) -> ()"
)


_LISTS = ("changed", "read", "integers", "numbers")


@dataclass(frozen=True, slots=True)
class _Place:
    """The position of an argument, or of a member of one, in the operator's lists."""

    among: str
    index: int
    is_truth_value: bool = False


@dataclass(slots=True)
class _Arguments:
    """The arguments of the operator, as they are collected; ``mutated`` names parameters, None stands for all."""

    mutated: frozenset[str] | None
    lists: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in _LISTS})

    def with_places(self, name: str, value: Any) -> Any:
        """An argument with a `_Place` for each tensor and symbol; all else is a constant."""
        from torch.utils._pytree import tree_map

        return tree_map(lambda leaf: self._with_place(name, leaf), value)

    def _with_place(self, name: str, value: Any) -> Any:
        import torch

        if hasattr(value, "block_shape") and isinstance(getattr(value, "base", None), torch.Tensor):
            shape, strides = self.with_places(name, (tuple(value.shape), tuple(value.strides)))
            base, padding = self._with_place(name, value.base), getattr(value, "padding", "zero")
            return DescriptorParts(base, shape, strides, tuple(value.block_shape), padding)
        if isinstance(value, torch.Tensor):
            is_changed = self.mutated is None or name in self.mutated or any(value is t for t in self.lists["changed"])
            return self._place_of("changed" if is_changed else "read", value)
        if isinstance(value, torch.SymBool):  # Inductor takes none
            integer = torch.sym_ite(value, 1, 0)  # type: ignore[no-untyped-call]
            return replace(self._place_of("integers", integer), is_truth_value=True)
        if isinstance(value, torch.SymInt):
            return self._place_of("integers", value)
        return self._place_of("numbers", value) if isinstance(value, torch.SymFloat) else value

    def _place_of(self, among: str, value: Any) -> _Place:
        members = self.lists[among]
        if all(member is not value for member in members):
            members.append(value)
        return _Place(among, next(index for index, member in enumerate(members) if member is value))


def _needs_opaque(kernel: Kernel, args: tuple[Any, ...], meta: Mapping[str, Any]) -> bool:
    """Whether torch's own operator cannot carry a launch, or `torch.compile` could not run its code."""
    import torch
    from torch._guards import TracingContext

    values = [*args, *meta.values()]
    if any(isinstance(leaf, torch.SymBool) for leaf in _leaves(values)):
        return True
    tensors = [leaf for leaf in _leaves(values) if isinstance(leaf, torch.Tensor)]
    if any(isinstance(value, tuple) or hasattr(value, "block_shape") for value in values):
        return bool(tensors)
    if TracingContext.try_get() is None or torch.compiler.is_exporting():
        return False
    return {tensor.device.type for tensor in tensors} == {"cpu"}


def _launch_opaquely(kernel: Kernel, args: tuple[Any, ...], grid: Any, meta: Mapping[str, Any]) -> None:
    """Call the operator for a launch; tensors of parameters that may be written count as changed."""
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    named = {**dict(zip(kernel.arg_names, args, strict=False)), **meta}
    number = kernel_side_table.add_kernel(kernel)
    arguments = _Arguments(_mutated_parameters(kernel, named))
    ordered = sorted(named, key=lambda name: arguments.mutated is not None and name not in arguments.mutated)
    with_places = {name: arguments.with_places(name, named[name]) for name in ordered}
    constants = kernel_side_table.add_constant_args({name: with_places[name] for name in named})
    extents = [extent for sizes in _grids_of(kernel, grid, named) for extent in (*sizes, 1, 1)[:3]]
    _operator()(number, constants, *arguments.lists.values(), extents)


def _grids_of(kernel: Kernel, grid: Any, named: Mapping[str, Any]) -> list[Any]:
    """The grid of a launch; for a grid function, that of each config of an autotuned kernel."""
    if not callable(grid):
        return [grid]
    configs = [config.kwargs for config in kernel.configs] if isinstance(kernel, Autotuner) else [{}]
    return [grid({**named, **config}) for config in configs]


def _mutated_parameters(kernel: Kernel, named: Mapping[str, Any]) -> frozenset[str] | None:
    """The parameters that a kernel writes through, by torch's analysis.

    None where that is unknown, as for a constexpr that is a symbol: what the kernel does may depend on its value.
    """
    import torch
    from torch._higher_order_ops.triton_kernel_wrap import get_mutated_tensors, kernel_side_table

    constexprs = {parameter.name for parameter in jit_function(kernel).params if parameter.is_constexpr}
    if any(isinstance(value, tuple) or hasattr(value, "block_shape") for value in named.values()):
        return None
    if any(_is_symbol(value) for name, value in named.items() if name in constexprs):
        return None
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        # What stands for a tensor may have no address, which torch's analysis asks for.
        tensors = {n: torch.empty(2, dtype=v.dtype) for n, v in named.items() if isinstance(v, torch.Tensor)}
        symbols = {n: 2 for n, v in named.items() if _is_symbol(v)}  # what torch puts in their places
        others = {n: v for n, v in named.items() if n not in tensors and n not in symbols}
        rest = kernel_side_table.add_constant_args(others)
        mutated = get_mutated_tensors(kernel_side_table.add_kernel(kernel), rest, {**tensors, **symbols}, {})
    return frozenset(mutated)


def _launch(number: int, constants: int, *lists_and_grid: Sequence[Any]) -> None:
    """Launch a kernel: what the operator does where its tensors have contents."""
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    *lists, extents = lists_and_grid
    parts_by_list = dict(zip(_LISTS, lists, strict=True))
    kernel: Any = kernel_side_table.get_kernel(number)
    named = {n: _value(part, parts_by_list) for n, part in kernel_side_table.get_constant_args(constants).items()}
    grids = [tuple(extents[start : start + 3]) for start in range(0, len(extents), 3)]
    ordered = {name: named[name] for name in jit_function(kernel).arg_names if name in named}
    kernel[_grid_among(kernel, grids)](**{**ordered, **named})


def _grid_among(kernel: Any, grids: Sequence[Any]) -> Any:
    """The only grid of a launch, or a function of the config of an autotuned kernel, which has one for each."""
    if len(grids) == 1:
        return grids[0]
    configs = [config.kwargs.items() for config in kernel.configs]
    pairs = list(zip(configs, grids, strict=True))
    return lambda meta: next(grid for config, grid in pairs if all(meta.get(name) == v for name, v in config))


def _value(part: Any, parts_by_list: Mapping[str, Sequence[Any]]) -> Any:
    """An argument of the kernel with the operator's arguments in their places."""
    from torch.utils._pytree import tree_map

    def value_of(leaf: Any) -> Any:
        if isinstance(leaf, DescriptorParts):
            return DescriptorParts(*tree_map(value_of, tuple(leaf))).descriptor()
        if not isinstance(leaf, _Place):
            return leaf
        value = parts_by_list[leaf.among][leaf.index]
        return bool(value) if leaf.is_truth_value else value

    return tree_map(value_of, part, is_leaf=lambda member: isinstance(member, DescriptorParts))


@lru_cache(maxsize=1)
def _library() -> Any:
    """Return torch's library of the operator, which is registered once in a process.

    It has no part in autograd, and raises no version of what it changes, as a launch of Triton's.
    """
    import torch
    from torch._subclasses.functional_tensor import FunctionalTensorMode

    library: Any = torch.library.Library("kernellab", "DEF")  # type: ignore[no-untyped-call]
    library.define("launch" + _SCHEMA, tags=(torch.Tag.pt2_compliant_tag,))
    library.impl("launch", _launch, "CompositeExplicitAutograd")
    library.impl("launch", torch.library.fallthrough_kernel, "Autograd")
    torch.library.register_fake("kernellab::launch", lambda *given: None, lib=library)
    torch.ops.kernellab.launch.default.py_impl(FunctionalTensorMode)(_functionalise)
    return library


def _functionalise(mode: Any, *given: Any) -> None:
    """Functionalise the operator as torch does any other, and hide from autograd what it changes."""
    mode.__torch_dispatch__(_operator(), (), given, {})
    bases = {id(base): base for tensor in given[2] for base in [tensor if tensor._base is None else tensor._base]}
    for base in bases.values():
        if hasattr(base, "mark_mutation_hidden_from_autograd"):
            base.mark_mutation_hidden_from_autograd()


def _operator() -> Any:
    import torch

    _library()
    return torch.ops.kernellab.launch.default

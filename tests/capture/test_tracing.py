"""Launches of bound kernels and of programs under torch's tracers: the nodes of `wrap_triton`, and equal results."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch._higher_order_ops import triton_kernel_wrap
from torch.fx.experimental.proxy_tensor import make_fx

import kernellab
from kernellab.errors import UsageError
from tests import samples
from tests.capture.test_descriptors import recorded
from tests.tables import every

# torch warns of its own code where it copies an exported program, and where Inductor is imported.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning"),
]

MUTATION = triton_kernel_wrap.triton_kernel_wrapper_mutation
FUNCTIONAL = triton_kernel_wrap.triton_kernel_wrapper_functional
MODES = ("real", "fake", "symbolic")

Function = Callable[..., Any]


@triton.jit
def unannotated(x_ptr, out_ptr, n, BLOCK: tl.constexpr):  # Inductor writes annotations out, without their imports
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) * 3.0, mask=offsets < n)


def launches(module: Any, target: Any) -> list[dict[str, Any]]:
    """Return what a graph gives to the launches in it, without the numbers of its constants."""
    nodes = [node for node in module.graph.nodes if node.target is target]
    kept = ("kernel_idx", "grid", "kwargs", "tensors_to_clone")
    return [{name: str(node.kwargs[name]) for name in kept if name in node.kwargs} for node in nodes]


def scaled_by(kernel: Any) -> Function:
    def function(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        kernel[(1,)](x, out, x.numel(), BLOCK=128)
        return out * 2

    return function


def tuned_by(kernel: Any) -> Function:
    def function(x: torch.Tensor) -> torch.Tensor:
        out, n = torch.empty_like(x), x.numel()
        kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n)
        return out * 2

    return function


def recompiled(function: Function, backend: str = "aot_eager", **options: Any) -> Function:
    torch._dynamo.reset()
    compiled: Function = torch.compile(function, fullgraph=True, backend=backend, **options)
    return compiled


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_bound_kernel_is_traced_to_the_node_of_wrap_triton(lab: kernellab.Lab, mode: str) -> None:
    kernel, x = lab.bind(samples.scale_kernel), torch.arange(100.0)
    own = scaled_by(kernel)
    wanted = own(x)
    own(x)  # a known launch is no less traced than a new one
    module = make_fx(own, tracing_mode=mode)(x)
    wrapped = make_fx(scaled_by(torch.library.wrap_triton(kernel)), tracing_mode=mode)(x)
    assert launches(module, MUTATION) == launches(wrapped, MUTATION)
    assert len(launches(module, MUTATION)) == 1
    torch.testing.assert_close(module(x), wanted)


@pytest.mark.slow
def test_functionalisation_sees_what_a_launch_changes_and_nothing_else(lab: kernellab.Lab) -> None:
    kernel, x = lab.bind(samples.scale_kernel), torch.arange(100.0)
    module = make_fx(torch.func.functionalize(scaled_by(kernel)))(x)
    (found,) = launches(module, FUNCTIONAL)
    assert found["tensors_to_clone"] == "['out_ptr']"
    assert not launches(module, MUTATION)
    torch.testing.assert_close(module(x), scaled_by(kernel)(x))


@pytest.mark.slow
def test_heuristics_and_configs_are_traced_for_sizes_that_are_symbols(lab: kernellab.Lab) -> None:
    function, x = tuned_by(lab.bind(samples.tuned_kernel)), torch.arange(300.0)
    module = make_fx(function, tracing_mode="symbolic")(x)
    (found,) = launches(module, MUTATION)
    assert found["grid"].count("floordiv") == 2, "one grid for each config"
    torch.testing.assert_close(module(x), function(x))


@pytest.mark.slow
@pytest.mark.parametrize("strict", [False, True])
def test_export_takes_a_bound_kernel(lab: kernellab.Lab, strict: bool) -> None:
    class Scaled(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return function(x)

    function, x = scaled_by(lab.bind(samples.scale_kernel)), torch.arange(100.0)
    exported = torch.export.export(Scaled(), (x,), strict=strict)
    assert len(launches(exported.graph_module, MUTATION)) == 1
    torch.testing.assert_close(exported.module()(x), function(x))
    if not strict:
        functional = exported.run_decompositions()
        assert len(launches(functional.graph_module, FUNCTIONAL)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_compiled_functions_launch_bound_kernels_in_one_graph(lab: kernellab.Lab, backend: str) -> None:
    x = torch.arange(300.0)
    for function in (scaled_by(lab.bind(samples.scale_kernel)), tuned_by(lab.bind(samples.tuned_kernel))):
        torch.testing.assert_close(recompiled(function, backend)(x[:100]), function(x[:100]))


@pytest.mark.slow
def test_a_compiled_function_takes_other_sizes(lab: kernellab.Lab) -> None:
    function = tuned_by(lab.bind(samples.tuned_kernel))
    compiled = recompiled(function, dynamic=True)
    for size in (300, 128, 77):
        x = torch.arange(float(size))
        torch.testing.assert_close(compiled(x), function(x))


@triton.jit
def multiplied(x_ptr, out_ptr, factor, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets) * factor)


@pytest.mark.slow
def test_a_compiled_function_gives_a_launch_what_it_reads_of_a_tensor(lab: kernellab.Lab) -> None:
    kernel, x = lab.bind(multiplied), torch.arange(8.0)

    def function(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        kernel[(1,)](x, out, x.max().item(), BLOCK=8)
        return out

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        torch.testing.assert_close(recompiled(function)(x), x * 7)


@pytest.mark.slow
def test_a_mutated_input_is_hidden_from_autograd(lab: kernellab.Lab) -> None:
    kernel = lab.bind(samples.scale_kernel)

    def function(x: torch.Tensor, weight: torch.Tensor, scratch: torch.Tensor) -> torch.Tensor:
        kernel[(1,)](x, scratch, x.numel(), BLOCK=128)
        return (scratch * weight).sum()

    x, weight, scratch = torch.arange(100.0), torch.ones(100, requires_grad=True), torch.zeros(100)
    recompiled(function)(x, weight, scratch).backward()
    torch.testing.assert_close(scratch, 3 * x + 3)
    torch.testing.assert_close(weight.grad, scratch)


def increments(lab: kernellab.Lab) -> Any:
    kernel = lab.bind(samples.scale_kernel)

    def increment(memory: torch.Tensor) -> torch.Tensor:
        kernel[(1,)](memory, memory, memory.numel(), BLOCK=128)
        return memory.sum()

    return increment


@pytest.mark.slow
@pytest.mark.parametrize("backend", every(3, ["aot_eager", "eager", "inductor"]))
def test_what_a_launch_changes_may_be_saved_for_backward_before(lab: kernellab.Lab, backend: str) -> None:
    increment = increments(lab)

    def function(memory: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        product = memory * weight
        increment(memory)
        return product.sum()

    def gradient(function: Function) -> torch.Tensor:
        weight = torch.ones(8, requires_grad=True)
        function(torch.arange(8.0), weight).backward()
        assert weight.grad is not None
        return weight.grad

    torch.testing.assert_close(gradient(recompiled(function, backend)), gradient(function))


@pytest.mark.slow
@pytest.mark.parametrize("backend", every(2, ["eager", "inductor"]))
def test_a_compiled_launch_raises_no_version_of_what_it_changes(lab: kernellab.Lab, backend: str) -> None:
    memory, weight = torch.arange(8.0), torch.ones(8, requires_grad=True)
    loss = (memory * weight).sum()
    recompiled(increments(lab), backend)(memory)
    assert memory._version == 0
    loss.backward()
    torch.testing.assert_close(weight.grad, 3 * torch.arange(8.0) + 3)


@pytest.mark.slow
def test_tuples_are_traced_to_an_opaque_operator(lab: kernellab.Lab) -> None:
    pair = lab.bind(samples.sum_of_pair)

    def function(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty(64)
        pair[(1,)]((x, x[64:]), out, BLOCK=64)
        return out

    x = torch.arange(128.0)
    module = make_fx(function, tracing_mode="fake")(x)
    assert [node.target for node in module.graph.nodes].count(torch.ops.kernellab.launch.default) == 1
    torch.testing.assert_close(module(x), x[:64] + x[64:])
    torch.testing.assert_close(recompiled(function)(x), x[:64] + x[64:])


def chained(lab: kernellab.Lab) -> Any:
    """Return a program that changes a part of its input, with options and a function among its constants."""
    scale, apply = lab.bind(samples.scale_kernel), lab.bind(samples.apply_kernel)
    x = torch.arange(64.0)
    with lab.capture() as program:
        out = torch.empty_like(x)
        scale[(1,)](x, out, x.numel(), BLOCK=64, num_warps=2)
        squares = torch.empty_like(x)
        apply[(1,)](out, squares, samples.squared, tl.float32, BLOCK=64)
        scale[(1,)](squares, x[32:], 32, BLOCK=32)
    return program


def same_as(graph: Any, traced: Any) -> None:
    """Run both on fresh inputs; outputs and inputs must agree afterwards."""
    one, other = torch.linspace(0, 1, 64), torch.linspace(0, 1, 64)
    wanted, found = graph(one), traced(other)
    assert list(found) == list(wanted)
    for name, tensor in wanted.items():
        torch.testing.assert_close(found[name], tensor)
    torch.testing.assert_close(other, one)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_the_graph_of_a_program_is_traced(lab: kernellab.Lab, mode: str) -> None:
    program = chained(lab)
    for graph in (program.graph, program.functionalise().graph):
        module = make_fx(graph, tracing_mode=mode)(torch.zeros(64))
        assert len(launches(module, MUTATION)) == 3
        same_as(graph, module)


@pytest.mark.slow
def test_the_graph_of_a_program_is_functionalised_and_exported(lab: kernellab.Lab) -> None:
    program = chained(lab)
    for graph in (program.graph, program.functionalise().graph):
        module = make_fx(torch.func.functionalize(graph))(torch.zeros(64))
        assert len(launches(module, FUNCTIONAL)) == 3
        same_as(graph, module)
        same_as(graph, torch.export.export(graph, (torch.zeros(64),)).run_decompositions().module())


@pytest.mark.slow
@pytest.mark.parametrize("is_functional", [False, True])
def test_the_graph_of_a_program_is_compiled_in_one_graph(lab: kernellab.Lab, is_functional: bool) -> None:
    program = chained(lab)
    graph = (program.functionalise() if is_functional else program).graph
    same_as(graph, recompiled(graph))
    same_as(graph, recompiled(copy.deepcopy(graph), "eager"))


@pytest.mark.slow
def test_a_program_leaves_the_config_of_an_autotuned_kernel_open_where_it_is_traced(lab: kernellab.Lab) -> None:
    tuned = lab.bind(samples.tuned_kernel)
    x = torch.arange(64.0)
    with lab.capture() as program:
        out = torch.empty_like(x)
        tuned[lambda meta: (triton.cdiv(64, meta["BLOCK"]),)](x, out, 64)
    assert out.shape == x.shape
    for graph in (program.graph, program.functionalise().graph):
        module = make_fx(graph, tracing_mode="fake")(torch.zeros(64))
        (found,) = launches(module, MUTATION)
        assert found["grid"] == "[(1, 1, 1), (1, 1, 1)]", "one for each config"
        same_as(graph, module)
        same_as(graph, recompiled(graph))


@pytest.mark.slow
def test_views_of_another_dtype_are_traced(lab: kernellab.Lab) -> None:
    memory = torch.arange(16, dtype=torch.uint8)
    left, right = memory[:8].view(torch.float32), memory[8:].view(torch.int16)
    with lab.capture() as program:
        one, other = left + 1, right + 1
    for traced in (
        make_fx(program.graph, tracing_mode="fake")(memory),
        make_fx(torch.func.functionalize(program.graph))(memory),
        recompiled(program.graph),
    ):
        found = traced(memory)
        torch.testing.assert_close((found["one"], found["other"]), (one, other))


@pytest.mark.slow
def test_constants_and_overlapping_inputs_are_traced(lab: kernellab.Lab) -> None:
    memory = torch.arange(30.0)
    left, right = memory[:10], memory[5:15]
    with lab.capture() as program:
        factors = torch.tensor([1.0, 2.0]).repeat(5)
        out = left * factors + right
    for each in (program, program.functionalise()):
        (name,) = each.inputs
        given = each.make_inputs()[name]
        for traced in (make_fx(each.graph)(given), recompiled(each.graph)):
            torch.testing.assert_close(traced(given)["out"], each(given)[-1])
    assert out.shape == (10,)


def selected(lab: kernellab.Lab, *, dynamic: bool) -> Any:
    x = torch.arange(-3.0, 5.0)
    with lab.capture(dynamic=dynamic) as program:
        program.returns(scaled_by(lab.bind(samples.scale_kernel))(x[x > 0]))
    return program


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True])
def test_what_data_decides_is_asked_in_the_runs_of_what_was_traced(lab: kernellab.Lab, dynamic: bool) -> None:
    program, x = selected(lab, dynamic=dynamic), torch.arange(-3.0, 5.0)
    words = "x_1_size_0 >= 2" if dynamic else r"gives another shape than \(4,\)"
    for mode in ("fake", "symbolic"):
        module = make_fx(program.graph, tracing_mode=mode)(x)
        torch.testing.assert_close(next(iter(module(x).values())), program(x))
        with pytest.raises(RuntimeError, match=words):
            module(-X_ONE)
    with pytest.raises(RuntimeError, match="Runtime assertion failed"):
        torch.export.export(program.graph, (x,)).module()(-X_ONE)


X_ONE = torch.tensor([-1.0, *([1.0] * 7)])


@pytest.mark.slow
def test_a_program_that_reads_values_is_refused_by_tracers_with_the_line(lab: kernellab.Lab) -> None:
    x = torch.arange(1.0, 5.0)
    with lab.capture() as program:
        y = x * x.max().item()
    for mode in MODES:
        with pytest.raises(UsageError, match=r"test_tracing.py, line \d+ reads values.* tracers cannot check"):
            make_fx(program.graph, tracing_mode=mode)(x)
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"test_tracing.py, line \d+ reads values"):
        recompiled(program.graph)(x)
    assert y.shape == x.shape


@pytest.mark.slow
def test_constants_of_a_block_are_traced_on_fake_tensors(lab: kernellab.Lab) -> None:
    x = torch.arange(4.0)
    with lab.capture() as program:
        y = x.clone()
        y[1] = 7.0
        y += torch.tensor([1.0, 2.0, 3.0, 4.0])
    for mode in MODES:
        torch.testing.assert_close(make_fx(program.graph, tracing_mode=mode)(x)(x)["y"], y)


@pytest.mark.slow
def test_a_tuned_launch_of_a_dynamic_program_is_traced_for_sizes_that_are_symbols(lab: kernellab.Lab) -> None:
    x = torch.arange(300.0)
    with lab.capture(dynamic=True) as program:
        y = tuned_by(lab.bind(samples.tuned_kernel))(x)
    module = make_fx(program.graph, tracing_mode="symbolic")(x)
    (found,) = launches(module, MUTATION)
    assert found["grid"].count("floordiv") == 2
    torch.testing.assert_close(module(x)["y"], y)


@pytest.mark.slow
def test_descriptors_of_a_program_are_traced(lab: kernellab.Lab) -> None:
    program = recorded(lab, in_place=True)
    x = torch.rand(32, 16)
    for each in (program, program.functionalise()):
        module = make_fx(each.graph, tracing_mode="fake")(x)
        assert [node.target for node in module.graph.nodes].count(torch.ops.kernellab.launch.default) == 2
        torch.testing.assert_close(module(x.clone())[program.outputs[-1]], 4 * x)
        for backend in ("eager", "aot_eager"):
            torch.testing.assert_close(recompiled(each.graph, backend)(x.clone())[program.outputs[-1]], 4 * x)


@pytest.mark.gpu
def test_dynamo_gives_a_bound_kernel_the_node_that_it_gives_a_plain_one() -> None:
    graphs: list[Any] = []

    def kept(module: Any, example: Any) -> Any:
        graphs.append(module)
        return module.forward

    x = torch.arange(100.0, device="cuda")
    with kernellab.Lab(store=":memory:") as lab:
        bound = lab.bind(unannotated)
        for kernel in (bound, unannotated):
            torch._dynamo.reset()
            torch.compile(scaled_by(kernel), fullgraph=True, backend=kept)(x)
        own, plain = ([{**each, "kernel_idx": ""} for each in launches(g, MUTATION)] for g in graphs)
        assert own == plain
        assert len(own) == 1
        torch.testing.assert_close(recompiled(scaled_by(bound), "inductor")(x), scaled_by(bound)(x))


@pytest.mark.gpu
@pytest.mark.parametrize("is_functional", [False, True])
def test_inductor_compiles_the_graph_of_a_program_on_a_gpu(is_functional: bool) -> None:
    with kernellab.Lab(store=":memory:") as lab:
        tuned, scale = lab.bind(samples.tuned_kernel), lab.bind(unannotated)
        x = torch.arange(300.0, device="cuda")
        with lab.capture() as program:
            out = torch.empty_like(x)
            tuned[lambda meta: (triton.cdiv(300, meta["BLOCK"]),)](x, out, 300)
            scale[(1,)](out, x[128:], 128, BLOCK=128, num_warps=2)
            result = out.exp() + x
        assert result.shape == x.shape
        graph = (program.functionalise() if is_functional else program).graph
        one, other = torch.linspace(0, 1, 300, device="cuda"), torch.linspace(0, 1, 300, device="cuda")
        wanted, found = graph(one), recompiled(graph, "inductor")(other)
        for name, tensor in wanted.items():
            torch.testing.assert_close(found[name], tensor)
        torch.testing.assert_close(other, one)

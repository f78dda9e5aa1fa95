"""Symbolic integers, floats and truth values at each door of a launch: no mode of torch freezes or mistakes one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

import kernellab
from kernellab.errors import LaunchError, UsageError
from tests.capture.symbol_doors import SIZES, Door, Function, data, doors
from tests.tables import every

# torch warns of its own code where it copies an exported program, and where Inductor is imported.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning"),
]

RECORDED = SIZES[0]


@pytest.fixture(scope="module")
def wanted(lab: kernellab.Lab) -> dict[tuple[Door, int], torch.Tensor]:
    """What each function gives in eager mode."""
    return {(door, n): function(data(n)) for door, function in doors(lab).items() for n in SIZES}


def unequal(wanted: dict[tuple[Door, int], torch.Tensor], door: Door, run: Function, refusal: Any = ()) -> list[str]:
    """Return what a function gives another result for than in eager mode; one that it refuses is none."""
    found = []
    for n in SIZES:
        try:
            result = run(data(n))
        except refusal:
            continue
        if not torch.equal(result, wanted[door, n]):
            found.append(f"{door} for {n}: {result.tolist()}, and {wanted[door, n].tolist()} in eager mode")
    return found


@pytest.mark.slow
@pytest.mark.parametrize(  # every fifth door is another one, with the next kind of number
    ("backend", "step"),
    every(5, [("aot_eager", 5), ("inductor", 5), ("inductor", 1), ("aot_eager", 1), ("eager", 1)]),
)
def test_compiled_functions_give_what_they_give_in_eager_mode(
    lab: kernellab.Lab, wanted: Any, backend: str, step: int
) -> None:
    found = []
    with torch._dynamo.config.patch(capture_scalar_outputs=True, recompile_limit=64):
        for door, function in [*doors(lab).items()][::step]:
            torch._dynamo.reset()
            run = torch.compile(function, dynamic=True, backend=backend, fullgraph=True)
            found += unequal(wanted, door, run)
    assert not found


class OfSymbolicSize(torch.Tensor):
    """A tensor with contents whose shape is a symbol."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            if func == torch.Tensor.shape.__get__:  # type: ignore[attr-defined]
                return (symbol(args[0].size(0)),)
            return func(*args, **(kwargs or {}))


def symbol(value: int) -> Any:
    from torch._dynamo.source import ConstantSource  # dynamo takes a second, in each process of tests

    env = ShapeEnv()
    named = env.create_symbol(value, source=ConstantSource("n"), dynamic_dim=DimDynamic.DYNAMIC)
    return env.create_symintnode(named, hint=value)


@pytest.mark.slow
def test_launches_on_tensors_with_contents_take_the_values_of_symbols(lab: kernellab.Lab, wanted: Any) -> None:
    found = []
    for door, function in doors(lab).items():

        def run(x: torch.Tensor, function: Function = function) -> torch.Tensor:
            return function(x.as_subclass(OfSymbolicSize)).as_subclass(torch.Tensor)

        found += unequal(wanted, door, run)
    assert not found


@pytest.mark.slow
def test_a_symbol_without_a_value_is_refused_on_tensors_with_contents(lab: kernellab.Lab) -> None:
    kernel, x = lab.bind(store_choice), torch.zeros(8)
    with pytest.raises(LaunchError, match="cannot trace this launch of store_choice"):
        kernel[(1,)](x, x, ShapeEnv().create_unbacked_symint(), BLOCK=8)


@pytest.mark.slow
def test_what_make_fx_traces_gives_the_same_where_its_guards_hold(lab: kernellab.Lab, wanted: Any) -> None:
    found = []
    for door, function in doors(lab, reads=False).items():
        for mode in ("real", "fake"):
            module = make_fx(function, tracing_mode=mode)(data(RECORDED))
            assert torch.equal(module(data(RECORDED)), wanted[door, RECORDED])
        module = make_fx(function, tracing_mode="symbolic")(data(RECORDED))
        values = [node.meta["val"] for node in module.graph.nodes if node.op == "placeholder"]

        def run(x: torch.Tensor, module: Any = module, values: Any = values) -> torch.Tensor:
            env = values[0].shape[0].node.shape_env if isinstance(values[0].shape[0], torch.SymInt) else None
            if env is None or not env.evaluate_guards_for_args(values, [x]):
                raise UsageError("the guards do not hold")
            result: torch.Tensor = module(x)
            return result

        found += unequal(wanted, door, run, UsageError)
    assert not found


@pytest.mark.slow
@pytest.mark.parametrize("strict", every(2, [False, True]))
def test_exported_programs_give_the_same_or_refuse_the_size(lab: kernellab.Lab, wanted: Any, strict: bool) -> None:
    found = []
    for door, function in doors(lab, reads=False).items():

        class Module(torch.nn.Module):
            def forward(self, x: torch.Tensor, function: Function = function) -> Any:
                return function(x)

        torch._dynamo.reset()
        dynamic = {"x": {0: torch.export.Dim.AUTO}}
        exported = torch.export.export(Module(), (data(6),), dynamic_shapes=dynamic, strict=strict)
        found += unequal(wanted, door, exported.module(), AssertionError)
    assert not found


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", every(2, [True, False]))
def test_programs_give_the_same_or_refuse_the_size(lab: kernellab.Lab, wanted: Any, dynamic: bool) -> None:
    found = []
    for door, function in doors(lab).items():
        x = data(RECORDED)
        with lab.capture(dynamic=dynamic) as program:
            program.returns(function(x))
        assert torch.equal(program(x), wanted[door, RECORDED])
        found += unequal(wanted, door, program, UsageError)
    assert not found


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", every(2, [True, False]))
def test_captured_functions_give_the_same(lab: kernellab.Lab, wanted: Any, dynamic: bool) -> None:
    found = []
    for door, function in doors(lab).items():
        found += unequal(wanted, door, lab.capture(function, dynamic=dynamic))
    assert not found


@triton.jit
def store_choice(one_ptr, other_ptr, n, BLOCK: tl.constexpr, FIRST: tl.constexpr = True):
    offsets = tl.arange(0, BLOCK)
    if FIRST:
        tl.store(one_ptr + offsets, 1.0, mask=offsets < n)
    else:
        tl.store(other_ptr + offsets, 1.0, mask=offsets < n)


@pytest.mark.slow
@pytest.mark.parametrize("choose", [lambda n: n % 2 == 0, lambda n: n % 2])
def test_a_symbolic_constexpr_decides_what_a_launch_changes(lab: kernellab.Lab, choose: Callable[[Any], Any]) -> None:
    kernel = lab.bind(store_choice)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        one, other = torch.zeros_like(x), torch.zeros_like(x)
        kernel[(1,)](one, other, x.shape[0], BLOCK=16, FIRST=choose(x.shape[0]))
        return one + 1, other + 1

    torch._dynamo.reset()
    compiled = torch.compile(function, dynamic=True, backend="aot_eager", fullgraph=True)
    for n in SIZES:
        torch.testing.assert_close(compiled(data(n)), function(data(n)))

"""The launch path never picks another compiled kernel than Triton's binder and key would."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import triton.language as tl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from triton.tools.tensor_descriptor import TensorDescriptor

from kernellab._triton.kernel import jit_function
from tests._triton.conftest import Bind, expected, outcome
from tests.launch import kernels

pytestmark = pytest.mark.slow

MEMORY = torch.zeros(1 << 14, dtype=torch.uint8)
DTYPES = (
    torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.int64, torch.uint8, torch.int8,
    torch.bool, torch.float8_e4m3fn, torch.float8_e5m2,
)  # fmt: skip
EDGES = (0, 1, 15, 16, 17, 2**31 - 1, 2**31, 2**32, 2**63 - 16, 2**63 - 1, 2**63, 2**64 - 16, 2**64 - 1)


def tensor(dtype: torch.dtype, shift: int) -> torch.Tensor:
    """Return a view whose address is ``shift`` elements beyond a multiple of 256."""
    start = -MEMORY.data_ptr() % 256
    return MEMORY[start : start + 4096].view(dtype)[shift : shift + 64]


TENSORS = st.builds(tensor, st.sampled_from(DTYPES), st.sampled_from((0, 1, 2, 4, 16)))
PARAMETERS = st.builds(lambda t: torch.nn.Parameter(t, requires_grad=False), TENSORS)
INTEGERS = st.one_of(st.sampled_from(EDGES), st.sampled_from([-edge for edge in EDGES]), st.integers(-40, 40))
PLAIN = st.one_of(st.none(), st.booleans(), st.sampled_from((0.0, -0.0, 1.0, math.nan, 2.5)), INTEGERS)
DESCRIPTORS = st.builds(
    lambda dtype, rows: TensorDescriptor.from_tensor(torch.zeros(64, 64, dtype=dtype), [rows, 32]),
    st.sampled_from((torch.float16, torch.float32)),
    st.sampled_from((16, 32)),
)
ARGUMENTS = st.one_of(
    TENSORS, TENSORS, PARAMETERS, PLAIN, DESCRIPTORS, st.tuples(PLAIN, st.one_of(TENSORS, PLAIN)),
    st.tuples(st.tuples(INTEGERS, PLAIN), TENSORS),
)  # fmt: skip
CONSTANTS = st.one_of(
    PLAIN,
    st.sampled_from(("x", "D", "", tl.float32, tl.float16, kernels.doubled, kernels.squared)),
    st.sampled_from((tl.constexpr(1), tl.constexpr(True), (1, 2.0), (True, 2.0), (1, (0.0,)), (1, (-0.0,)))),
)
OPTIONS = st.sampled_from(({}, {}, {"num_warps": 8}, {"num_warps": 4, "num_stages": 2}, {"debug": True}))


@st.composite
def launches(draw: st.DrawFn) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Draw launches, most of which differ from another one in a single argument."""
    found = []
    values = [draw(ARGUMENTS), draw(ARGUMENTS), draw(ARGUMENTS), draw(CONSTANTS), draw(CONSTANTS)]
    for _ in range(draw(st.integers(2, 6))):
        change = draw(st.integers(0, 4))
        values = [*values]
        values[change] = draw(ARGUMENTS if change < 3 else CONSTANTS)
        by_position = draw(st.sampled_from((3, 3, 5, 1)))
        named = dict(zip(("a", "b", "c", "BLOCK", "MODE")[by_position:], values[by_position:], strict=True))
        found.append((tuple(values[:by_position]), {**named, **draw(OPTIONS)}))
    return found


@pytest.mark.parametrize("kernel", [kernels.anything, kernels.loose, kernels.annotated])
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sequence=launches())
def test_the_kernel_is_the_one_that_triton_would_choose(binding: Bind, kernel: Any, sequence: list[Any]) -> None:
    bound, _ = binding(kernel)
    wanted = [outcome(lambda a=args, m=meta: expected(kernel, a, m)) for args, meta in sequence]
    for _ in range(3):
        for (args, meta), want in zip(sequence, wanted, strict=True):
            assert outcome(lambda a=args, m=meta: bound[(1,)](*a, **m).hash) == want


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(st.sampled_from((1, True, 1.0, 2, None, "x")), min_size=2, max_size=6))
def test_a_changed_global_is_noticed(binding: Bind, values: list[Any]) -> None:
    bound, runtime = binding(kernels.anything)
    x = tensor(torch.float32, 0)
    for value in values:
        kernels.SHIFT = tl.constexpr(value)
        before = runtime.slow
        for _ in range(4):
            bound[(1,)](x, 1, 2, BLOCK=4)
        assert runtime.slow > before
        assert [found.value for (found, _) in bound.used_global_vals.values()] == [value]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kernel=st.sampled_from((kernels.tuned, kernels.one_config, kernels.with_heuristics, kernels.tuned_inside)),
    sequence=st.lists(st.tuples(TENSORS, TENSORS, st.one_of(INTEGERS, st.integers(-200, 200))), min_size=2, max_size=5),
)
def test_a_decorated_kernel_is_the_one_that_triton_would_choose(
    binding: Bind, kernel: Any, sequence: list[Any]
) -> None:
    bound, runtime = binding(kernel)
    for args in [*sequence, *sequence, *sequence]:
        digest = outcome(lambda a=args: bound[(1,)](*a).hash)
        if digest != "refused":
            chosen = runtime.launched[-1][0]
            constants = {name: chosen[name] for name in ("BLOCK", "EVEN") if name in chosen}
            warps = {"num_warps": bound_tuner(bound).best_config.num_warps} if bound_tuner(bound) else {}
            assert digest == expected(jit_function(kernel), args, {**constants, **warps})


def bound_tuner(bound: Any) -> Any:
    """Return the tuner among the decorators of a kernel, or None."""
    while not hasattr(bound, "best_config"):
        if not hasattr(bound, "runtime") or jit_function(bound) is bound:
            return None
        bound = bound.fn
    return bound


def test_a_changed_helper_or_member_of_a_module_is_noticed_by_a_known_launch(
    binding: Bind, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound, runtime = binding(kernels.calling)
    x = tensor(torch.float32, 0)

    def slow_launches() -> int:
        before = runtime.slow
        for _ in range(5):
            bound[(1,)](x, BLOCK=4)
        return runtime.slow - before

    first = slow_launches()
    assert 0 < first < 5
    assert slow_launches() == 0
    for owner, name, value in (
        (kernels, "doubled", kernels.tripled),
        (kernels.settings.OFFSET, "value", 9),
        (kernels.settings, "OFFSET", tl.constexpr(7)),
    ):
        generation = bound.generation
        monkeypatch.setattr(owner, name, value)
        assert slow_launches() > 0, name
        assert bound.generation == generation + 1
        assert slow_launches() == 0, name


def test_an_equal_constant_drops_nothing_that_was_compiled(binding: Bind, monkeypatch: pytest.MonkeyPatch) -> None:
    bound, _ = binding(kernels.calling)
    x = tensor(torch.float32, 0)
    bound[(1,)](x, BLOCK=4)
    monkeypatch.setattr(kernels.settings, "OFFSET", tl.constexpr(kernels.settings.OFFSET.value))
    bound[(1,)](x, BLOCK=4)
    assert bound.generation == 0

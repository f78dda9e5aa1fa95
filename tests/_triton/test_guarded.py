"""Guarded functions: which launches they take, and that each of these is the launch that Triton would make."""

from __future__ import annotations

import random
import weakref
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton import knobs

from kernellab.target import parse_target
from tests._triton.conftest import Bind, DirectDriver, expected, outcome
from tests.launch import kernels

Direct = tuple[Bind, DirectDriver]
MEMORY = torch.zeros(1 << 12, dtype=torch.uint8)
START = -MEMORY.data_ptr() % 256


def tensor(dtype: torch.dtype = torch.float32, shift: int = 0) -> torch.Tensor:
    """Return a view whose address is ``shift`` elements beyond a multiple of 256."""
    return MEMORY[START : START + 1024].view(dtype)[shift : shift + 64]


def is_guarded(bound: Any) -> bool:
    """Tell whether a guarded function is in front of a kernel."""
    return "_kl_general" in getattr(bound.front, "__globals__", {})


def warm(bound: Any, *args: Any, **meta: Any) -> Any:
    """Launch until a guarded function is in front."""
    for _ in range(4):
        handle = bound[(1,)](*args, **meta)
    assert is_guarded(bound)
    return handle


class Pointer:
    """Not a tensor, but what Triton takes for one."""

    def __init__(self, of: torch.Tensor) -> None:
        self.of, self.dtype = of, of.dtype

    def data_ptr(self) -> int:
        return self.of.data_ptr()


class Marked(torch.Tensor):
    """A tensor of another class."""


class Size(int):
    """An integer of another class."""


TENSORS = [tensor(), tensor(shift=1), tensor(torch.float16), tensor(torch.int32), tensor(torch.int32, 1)]
TENSORS += [torch.nn.Parameter(tensor()), tensor().as_subclass(Marked), Pointer(tensor()), Pointer(tensor(shift=1))]
SCALARS = [0, 1, 16, 17, 48, -16, 2**31 - 16, 2**31, 2**40, True, False, 1.0, 2.5, None, np.int64(16), np.int32(1)]
SCALARS += [Size(16), Size(1)]
CONSTANTS = [1, True, 1.0, 64, 1024, 10**6, "x", None, tl.float32, Size(64), 0.0, -0.0]
OPTIONS: list[dict[str, Any]] = [{}, {}, {}, {"num_warps": 8}, {"num_stages": 8}, {"num_warps": 8, "num_stages": 2}]
OPTIONS += [{"maxnreg": None}, {"debug": True}]


def a_launch(chance: random.Random, before: list[Any]) -> list[Any]:
    """Return arguments and options, one of which differs from those before."""
    pools = (TENSORS, [*SCALARS, *TENSORS], SCALARS, CONSTANTS, CONSTANTS, OPTIONS)
    found, which = [*before], chance.randrange(len(pools))
    found[which] = chance.choice(pools[which])
    return found


def launched(bound: Any, values: list[Any]) -> str:
    *args, block, mode, options = values
    return outcome(lambda: bound[(1,)](*args, BLOCK=block, MODE=mode, **options).hash)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [kernels.anything, kernels.loose, kernels.annotated])
@pytest.mark.parametrize("is_direct", [False, True])
def test_500_random_launches_choose_as_triton_does(binding: Bind, direct: Direct, kernel: Any, is_direct: bool) -> None:
    chance, guarded = random.Random(17), 0
    bound, _ = (direct[0] if is_direct else binding)(kernel)
    values: list[Any] = [tensor(), 1, 2, 64, 3, {}]
    recent: list[list[Any]] = [values]
    for _ in range(500):
        if chance.random() < 0.5:
            values = a_launch(chance, chance.choice(recent))
            recent = [*recent[-5:], values]
        else:
            values = chance.choice(recent)
        *args, block, mode, options = values
        meta = {"BLOCK": block, "MODE": mode, **options}
        guarded += is_guarded(bound)
        assert launched(bound, values) == outcome(lambda a=args, m=meta: expected(kernel, a, m)), values
    assert guarded > 100


@pytest.mark.parametrize("kernel", [kernels.anything, kernels.tuned, kernels.one_config])
def test_a_guarded_function_takes_known_launches(direct: Direct, kernel: Any) -> None:
    bind, driver = direct
    bound, runtime = bind(kernel)
    x, out = tensor(), tensor(shift=4)
    meta = {"BLOCK": 64} if kernel is kernels.anything else {}
    warm(bound, x, out, 64, **meta)
    slow, calls = runtime.slow, len(driver.direct)
    bound[lambda arguments: (arguments["BLOCK"], 3)](x, out, 64, **meta)
    assert (runtime.slow, len(driver.direct)) == (slow, calls + 1)
    assert driver.direct[-1][:3] == (64, 3, 1)
    assert driver.parameters[:3] == [x.data_ptr(), out.data_ptr(), 64]
    assert is_guarded(bound)


def test_an_address_that_changes_in_place_is_noticed(direct: Direct) -> None:
    bind, driver = direct
    bound, _ = bind(kernels.anything)
    x = tensor().clone()
    aligned = warm(bound, x, 1, 2, BLOCK=4)
    x.set_(tensor(shift=1))
    shifted = bound[(1,)](x, 1, 2, BLOCK=4)
    assert shifted.hash != aligned.hash
    warm(bound, x, 1, 2, BLOCK=4)
    assert driver.parameters[0] == tensor(shift=1).data_ptr()
    x.data = tensor(torch.int32)
    assert bound[(1,)](x, 1, 2, BLOCK=4).hash == expected(kernels.anything, (x, 1, 2), {"BLOCK": 4})
    x.set_(tensor(torch.int32).clone())
    warm(bound, x, 1, 2, BLOCK=4)
    assert driver.parameters[0] == x.data_ptr()


def test_a_dtype_that_changes_in_place_is_noticed(direct: Direct) -> None:
    bound, _ = direct[0](kernels.anything)
    x = tensor().clone()
    before, address = warm(bound, x, 1, 2, BLOCK=4), x.data_ptr()
    x.data = x.data.view(torch.int32)
    assert x.data_ptr() == address
    assert bound[(1,)](x, 1, 2, BLOCK=4).hash != before.hash


def test_a_tensor_of_another_device_goes_the_slow_way(direct: Direct) -> None:
    bind, driver = direct
    bound, runtime = bind(kernels.anything)
    warm(bound, tensor(), 1, 2, BLOCK=4)
    slow, calls = runtime.slow, len(driver.direct)
    outcome(lambda: bound[(1,)](torch.zeros(64, device="meta"), 1, 2, BLOCK=4))
    assert (runtime.slow, len(driver.direct)) == (slow + 1, calls)


def test_no_tensor_of_a_launch_is_kept(direct: Direct) -> None:
    bound, _ = direct[0](kernels.anything)
    x = torch.zeros(64)
    seen = weakref.ref(x)
    warm(bound, x, x, 2, BLOCK=4)
    del x
    assert seen() is None


def test_hooks_that_come_and_go_are_called_once_per_launch(direct: Direct) -> None:
    bind, driver = direct
    bound, runtime = bind(kernels.anything)
    warm(bound, tensor(), 1, 2, BLOCK=4)
    slow, seen = runtime.slow, []

    def note(info: Any) -> None:
        seen.append(info.get()["name"])

    for chain in (knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook):
        calls = len(driver.direct)
        chain.add(note)
        try:
            bound[(1,)](tensor(), 1, 2, BLOCK=4)
            bound[(1,)](tensor(), 1, 2, BLOCK=4)
        finally:
            chain.remove(note)
        assert len(driver.direct) == calls
        bound[(1,)](tensor(), 1, 2, BLOCK=4)
        assert len(driver.direct) == calls + 1
    assert (len(seen), runtime.slow) == (4, slow)


def test_a_hook_that_replaces_a_chain_is_called(direct: Direct, monkeypatch: pytest.MonkeyPatch) -> None:
    bound, _ = direct[0](kernels.anything)
    warm(bound, tensor(), 1, 2, BLOCK=4)
    seen: list[Any] = []
    monkeypatch.setattr(knobs.runtime, "launch_enter_hook", seen.append)
    bound[(1,)](tensor(), 1, 2, BLOCK=4)
    bound[(1,)](tensor(), 1, 2, BLOCK=4)
    assert len(seen) == 2
    monkeypatch.undo()
    bound[(1,)](tensor(), 1, 2, BLOCK=4)
    assert len(seen) == 2


def test_pre_run_hooks_appended_in_place_are_called(direct: Direct) -> None:
    bound, _ = direct[0](kernels.anything)
    warm(bound, tensor(), 1, 2, BLOCK=4)
    seen: list[Any] = []
    bound.pre_run_hooks.append(lambda *args, **meta: seen.append(args[1:3]))
    bound[(1,)](tensor(), 1, 2, BLOCK=4)
    bound.pre_run_hooks.clear()
    bound[(1,)](tensor(), 1, 2, BLOCK=4)
    assert seen == [(1, 2)]


def test_a_knob_of_the_environment_is_noticed(direct: Direct, monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(knobs.compilation, "fpsan_homomorphic_casts"):
        pytest.skip("this Triton reads no knob from the environment at a launch")
    bound, runtime = direct[0](kernels.anything)
    warm(bound, tensor(), 1, 2, BLOCK=4)
    slow = runtime.slow
    monkeypatch.setenv("TRITON_FPSAN_HOMOMORPHIC_CASTS", "1")
    bound[(1,)](tensor(), 1, 2, BLOCK=4)
    assert runtime.slow == slow + 1


def test_a_knob_that_stays_set_has_guarded_functions_too(direct: Direct) -> None:
    bound, runtime = direct[0](kernels.anything)
    plain = warm(bound, tensor(), 1, 2, BLOCK=4)
    with knobs.runtime.scope():
        knobs.runtime.debug = True
        assert warm(bound, tensor(), 1, 2, BLOCK=4).hash != plain.hash
        slow = runtime.slow
        bound[(1,)](tensor(), 1, 2, BLOCK=4)
    assert bound[(1,)](tensor(), 1, 2, BLOCK=4) is plain
    assert runtime.slow == slow


def test_the_device_and_the_stream_are_the_current_ones(direct: Direct) -> None:
    bind, driver = direct
    bound, _ = bind(kernels.anything)
    first = warm(bound, tensor(), 1, 2, BLOCK=4)
    driver.stream = 7
    bound[(1,)](tensor(), 1, 2, BLOCK=4)
    assert driver.direct[-1][3] == 7
    driver.use(parse_target("cuda:80"))
    other = bound[(1,)](tensor(), 1, 2, BLOCK=4)
    assert other is not first
    driver.use(parse_target("cuda:90"))
    assert bound[(1,)](tensor(), 1, 2, BLOCK=4) is first


def test_another_driver_is_noticed(direct: Direct) -> None:
    bind, driver = direct
    bound, runtime = bind(kernels.anything)
    warm(bound, tensor(), 1, 2, BLOCK=4)
    slow, calls = runtime.slow, len(driver.direct)
    other = DirectDriver(driver.target, lambda *given: None)
    other.activate()
    try:
        bound[(1,)](tensor(), 1, 2, BLOCK=4)
        assert (runtime.slow, len(driver.direct)) == (slow + 1, calls)
    finally:
        driver.activate()
    bound[(1,)](tensor(), 1, 2, BLOCK=4)
    assert runtime.slow == slow + 2


def test_a_changed_global_is_noticed(direct: Direct, monkeypatch: pytest.MonkeyPatch) -> None:
    bound, runtime = direct[0](kernels.anything)
    warm(bound, tensor(), 1, 2, BLOCK=4)
    for value in (1, True, 2, 1):
        slow = runtime.slow
        monkeypatch.setattr(kernels, "SHIFT", tl.constexpr(value))
        bound[(1,)](tensor(), 1, 2, BLOCK=4)
        assert runtime.slow == slow + 1
        warm(bound, tensor(), 1, 2, BLOCK=4)


def test_fresh_integers_of_a_class_are_one_launch(direct: Direct) -> None:
    bind, driver = direct
    bound, runtime = bind(kernels.anything)
    warm(bound, tensor(), 1600, 1700 + 1, BLOCK=4)
    slow = runtime.slow
    for n in range(16, 4096, 160):
        bound[(1,)](tensor(), n, n + 1, BLOCK=int("4"))
        assert driver.parameters[1:3] == [n, n + 1]
    assert runtime.slow == slow
    assert is_guarded(bound)


@pytest.mark.parametrize("grid", [None, 3, (), (1, 2, 3, 4), (0,), (True,), (-1,), "x", (2.0,), lambda arguments: None])
def test_a_grid_that_is_no_tuple_of_positive_integers_goes_the_slow_way(direct: Direct, grid: Any) -> None:
    bind, driver = direct
    bound, runtime = bind(kernels.anything)
    warm(bound, tensor(), 1, 2, BLOCK=4)
    slow, calls = runtime.slow, len(driver.direct)
    outcome(lambda: bound[grid](tensor(), 1, 2, BLOCK=4))
    assert (runtime.slow, len(driver.direct)) == (slow + 1, calls)


def test_a_grid_function_is_asked_once_where_its_answer_is_refused(direct: Direct) -> None:
    bound, _ = direct[0](kernels.anything)
    warm(bound, tensor(), 1, 2, BLOCK=4)
    asked: list[Any] = []
    outcome(lambda: bound[lambda arguments: asked.append(1) or (0,)](tensor(), 1, 2, BLOCK=4))
    assert asked == [1]


def test_an_error_of_the_launcher_is_worded_by_the_runtime(direct: Direct) -> None:
    bind, driver = direct
    bound, runtime = bind(kernels.anything)
    warm(bound, tensor(), 1, 2, BLOCK=4)
    driver.failure = RuntimeError("out of resources")
    with pytest.raises(RuntimeError, match="out of resources"):
        bound[(1,)](tensor(), 1, 2, BLOCK=4)
    assert runtime.failures == [driver.failure]


def test_a_default_left_out_and_given_are_one_launch(direct: Direct) -> None:
    bound, runtime = direct[0](kernels.anything)
    first = warm(bound, tensor(), 1, 2, BLOCK=4)
    slow = runtime.slow
    assert bound[(1,)](tensor(), 1, 2, 4, 3) is first
    assert bound[(1,)](tensor(), 1, 2, BLOCK=4, MODE=3) is first
    assert runtime.slow == slow


def test_a_tuned_kernel_follows_its_tuner(direct: Direct) -> None:
    bound, runtime = direct[0](kernels.tuned)
    x, out = tensor(), tensor()
    warm(bound, x, out, 64)
    slow = runtime.slow
    bound.cache = dict.fromkeys(bound.cache, bound.configs[1])
    bound[(1,)](x, out, 64)
    assert runtime.slow == slow + 1
    warm(bound, x, out, 64)
    bound.configs[1].pre_hook = lambda arguments: slow
    try:
        before = runtime.slow
        bound[(1,)](x, out, 64)
        assert runtime.slow == before + 1
    finally:
        bound.configs[1].pre_hook = None


def test_heuristics_have_no_guarded_function(binding: Bind) -> None:
    bound, _ = binding(kernels.with_heuristics)
    for _ in range(4):
        bound[(1,)](tensor(), tensor(), 64)
    assert not is_guarded(bound)


def test_a_kernel_of_many_parameters_compiles_to_a_guarded_function(direct: Direct) -> None:
    @triton.jit
    def wide(a, b, c, d, e, m, n, k, s1, s2, s3, s4, scale, flag, none, BLOCK: tl.constexpr, EVEN: tl.constexpr):
        tl.store(a, m)

    bound, runtime = direct[0](wide)
    tensors = [tensor() for _ in range(5)]
    args = (*tensors, 320, 333, 347, 1, 1, 16, 5, 2.0, True, None)
    warm(bound, *args, BLOCK=64, EVEN=True)
    slow = runtime.slow
    for i, value in ((5, 321), (6, 336), (8, 2), (10, 1), (13, 1), (14, 1), (12, 2), (5, 2**31), (5, -16)):
        changed = (*args[:i], value, *args[i + 1 :])
        assert bound[(1,)](*changed, BLOCK=64, EVEN=True).hash == expected(wide, changed, {"BLOCK": 64, "EVEN": True})
    assert runtime.slow == slow + 9

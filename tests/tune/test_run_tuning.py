"""Tuning real kernels without a GPU: what is compiled, with which arguments, and under which key it is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.compile.types import CompileJob
from kernellab.errors import CompileError, KernellabError, LaunchError, UsageError
from kernellab.source import Constant
from kernellab.target import Target
from kernellab.timing.config import Config, Space
from kernellab.timing.launches import Launches, moved_bytes
from kernellab.timing.provenance import Device, key_fields
from kernellab.tune.options import Options
from kernellab.tune.run_tuning import Environment, tune_launches
from tests.labs import shared_lab

TARGET = Target("cuda", 90, 32)
DEVICE = Device(TARGET, "NVIDIA H200", "580.1", {"triton": "3.9.0"})
N = 300
X, OUT = torch.zeros(N), torch.zeros(N)


@pytest.fixture(scope="module")
def lab() -> Iterator[kernellab.Lab]:
    with shared_lab("cuda:90", ":memory:") as lab:
        yield lab


@triton.jit
def scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr = False):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets) if EVEN else tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, x * 2, mask=offsets < n)


def grid(meta: dict[str, int]) -> tuple[int, ...]:
    return (triton.cdiv(N, meta["BLOCK"]),)


def blocks(*sizes: int, **options: Any) -> list[triton.Config]:
    return [triton.Config({"BLOCK": size}, **options) for size in sizes]


def launches(kernel: Any = scale, *, args: tuple[Any, ...] = (X, OUT, N), **meta: Any) -> Launches:
    return Launches(kernel, grid, args, meta, TARGET)


class FirstTwo:
    """A search of a user's own: two configs, one after the other."""

    def __init__(self, *configs: Config) -> None:
        self.left = list(configs)
        self.told: list[Config] = []

    def ask(self) -> list[Config]:
        return [self.left.pop(0)] if self.left else []

    def tell(self, config: Config, time_ms: float | None) -> None:
        self.told.append(config)


@pytest.mark.slow
def test_a_search_of_ones_own_chooses_the_configs() -> None:
    chosen = [Config.of({"BLOCK": 128}), Config.of({"BLOCK": 64})]
    search = FirstTwo(*chosen)
    with shared_lab("cuda:90", ":memory:") as lab:
        tuning = lab.tune(scale, grid, X, OUT, N, configs=blocks(64, 128, 256), search=search)
    assert [row.config for row in tuning.rows] == [chosen[1], chosen[0]]  # in the order of the list
    assert search.told == chosen


def test_a_class_in_place_of_a_search_is_refused() -> None:
    lab = kernellab.Lab(target="cuda:90", store=":memory:")
    with lab, pytest.raises(UsageError, match="an object with ask"):
        lab.tune(scale, grid, X, OUT, N, configs=blocks(64), search=FirstTwo)  # type: ignore[arg-type]


def test_each_config_gets_its_own_grid_and_constants() -> None:
    given = launches()
    small, large = (given.of(Config.of({"BLOCK": block})) for block in (64, 128))
    assert (small.grid, large.grid) == ((5, 1, 1), (3, 1, 1))
    assert small.job.digest != large.job.digest
    assert small.arguments["x_ptr"] is X
    assert small.arguments["EVEN"] is False


def test_heuristics_see_the_values_of_each_config() -> None:
    even = triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})(scale)
    given = launches(triton.autotune(blocks(4), key=["n"])(even))
    assert given.of(Config.of({"BLOCK": 4})).arguments["EVEN"] is True
    assert given.of(Config.of({"BLOCK": 64})).arguments["EVEN"] is False


def test_options_of_the_call_win_over_those_of_the_configs() -> None:
    given = launches(num_warps=8)
    config = given.effective(triton.Config({"BLOCK": 64}, num_warps=2))
    assert config.num_warps == 8
    assert dict(given.of(config).job.options)["num_warps"] == 8


def test_a_parameter_that_is_given_and_tuned_is_refused() -> None:
    with pytest.raises(UsageError, match="BLOCK is given and also set by the configs"):
        launches(BLOCK=32).of(Config.of({"BLOCK": 64}))


def test_a_hook_of_a_config_never_touches_the_tensors_while_configs_compile() -> None:
    held = torch.ones(N)
    config = triton.Config({"BLOCK": 64}, pre_hook=lambda named: named["out_ptr"].zero_())
    launches(args=(X, held, N)).of(Config.from_triton(config), config)
    assert held.tolist() == [1.0] * N


@pytest.mark.slow
def test_pruning_functions_leave_rows_with_their_reason(lab: kernellab.Lab) -> None:
    def early(configs: list[Any], named: dict[str, Any], **meta: Any) -> list[Any]:
        assert named["n"] == N
        return [config for config in configs if config.kwargs["BLOCK"] > 16]

    def model(BLOCK: int, **rest: Any) -> float:
        return -BLOCK

    prune = {"early_config_prune": early, "perf_model": model, "top_k": 1}
    autotuned = triton.autotune(blocks(16, 64, 128), key=["n"], prune_configs_by=prune)(scale)
    frame = lab.tune(autotuned, grid, X, OUT, N).frame
    assert list(frame.BLOCK) == [16, 64, 128]
    assert list(frame.reason) == [
        "early_config_prune left it out",
        "perf_model ranks it 2, and top_k is 1",
        "not measured: there is no GPU",
    ]


@pytest.mark.slow
def test_a_config_that_needs_too_much_has_its_reason_and_is_not_the_best(lab: kernellab.Lab) -> None:
    tuning = lab.tune(scale, grid, X, OUT, N, configs=[*blocks(63), *blocks(64, num_warps=64), *blocks(128)])
    assert list(tuning.frame.status) == ["compile_error", "cannot_run", "not_timed"]
    assert "2,048 threads" in tuning.frame.reason[1]
    assert tuning.best.kwargs == {"BLOCK": 128}
    assert OUT.tolist() == [0.0] * N


@pytest.mark.slow
def test_a_space_is_tuned_like_a_list(lab: kernellab.Lab) -> None:
    space = Space(BLOCK=[64, 128], num_warps=[2, 8], where="BLOCK >= 32 * num_warps")
    tuning = lab.tune(scale, grid, X, OUT, N, configs=space)
    assert [(row.config.values["BLOCK"], row.config.num_warps) for row in tuning.rows] == [(64, 2), (128, 2)]


@pytest.mark.parametrize("name", ["timeout_s", "budget_s", "budget_configs"])
@pytest.mark.parametrize("value", [-1, 0, "5"])
def test_limits_that_are_not_positive_are_refused(lab: kernellab.Lab, name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"{name} is {value!r}; expected a positive number"):
        lab.tune(scale, grid, X, OUT, N, configs=blocks(64), **{name: value})


@pytest.mark.parametrize("check", ["x_ptr * y", lambda y: y, "x_ptr *"])
def test_a_check_that_cannot_be_computed_is_refused_without_a_gpu_too(lab: kernellab.Lab, check: Any) -> None:
    with pytest.raises(UsageError, match="check"):
        lab.tune(scale, grid, X, OUT, N, configs=blocks(64), check=check)


@pytest.mark.slow
def test_equal_configs_are_one_row_and_counted(lab: kernellab.Lab) -> None:
    tuning = lab.tune(scale, grid, X, OUT, N, configs=[*blocks(64, 128), *blocks(64), *blocks(128)])
    assert len(tuning.rows) == 2
    assert tuning.notes[0] == "2 of the 4 configs are equal to another of them"


def test_a_tuning_in_which_nothing_compiles_promises_no_times(lab: kernellab.Lab) -> None:
    assert lab.tune(scale, grid, X, OUT, N, configs=blocks(63)).notes == ()


def test_wrong_arguments_are_an_error_and_no_row(lab: kernellab.Lab) -> None:
    with pytest.raises(LaunchError, match="launched without n"):
        lab.tune(scale, (1,), X, OUT, configs=blocks(64))


def test_a_kernel_without_configs_says_what_to_pass(lab: kernellab.Lab) -> None:
    with pytest.raises(UsageError, match="scale has no configs; pass configs="):
        lab.tune(scale, grid, X, OUT, N)


def test_an_exception_of_the_grid_comes_through_as_itself(lab: kernellab.Lab) -> None:
    with pytest.raises(ZeroDivisionError):
        lab.tune(scale, lambda meta: (1 // 0,), X, OUT, N, configs=blocks(64))


def fields(given: Launches, block: int = 64) -> dict[str, Any]:
    return key_fields(given, Config.of({"BLOCK": block}), DEVICE)


def test_the_key_does_not_depend_on_the_config_or_the_list() -> None:
    assert fields(launches()) == fields(launches(), block=128)
    listed = [triton.autotune(blocks(*sizes), key=["n"])(scale) for sizes in ((64,), (64, 128))]
    assert fields(launches(listed[0])) == fields(launches(listed[1]))


def test_the_key_changes_with_sizes_types_and_alignment() -> None:
    other = [
        launches(args=(X, OUT, N - 1)),
        launches(args=(X.half(), OUT, N)),
        launches(args=(torch.zeros(N + 1)[1:], OUT, N)),
        launches(enable_fp_fusion=False),
    ]
    keys = [fields(given) for given in (launches(), *other)]
    assert all(a != b for i, a in enumerate(keys) for b in keys[:i])


def test_the_key_changes_with_a_grid_of_plain_extents() -> None:
    keys = [fields(Launches(scale, given, (X, OUT, N), {}, TARGET)) for given in (grid, 5, (5,), (5, 1, 1), (6,))]
    assert keys[1] == keys[2] == keys[3]
    assert keys[0] != keys[1] != keys[4] != keys[0]


def test_with_a_declared_key_only_its_values_count() -> None:
    autotuned = triton.autotune(blocks(64), key=[])(scale)
    assert fields(launches(autotuned)) == fields(launches(autotuned, args=(X, OUT, N - 4)))


def test_moved_bytes_count_each_argument_as_it_is_used(lab: kernellab.Lab) -> None:
    compiled = lab.compile(scale, X, OUT, N, BLOCK=64)
    assert moved_bytes({"x_ptr": X, "out_ptr": OUT, "n": N}, compiled) == 2 * 4 * N


@pytest.mark.slow
def test_without_a_gpu_the_launch_that_would_have_been_is_kept_as_one_that_was_not(lab: kernellab.Lab) -> None:
    best = lab.tune(scale, grid, X, OUT, N, configs=blocks(64, 128)).best
    version = lab.kernels.version("scale")
    kept = lab.kernels.store.history.launches(version.id)[-1]
    assert kept.count == 0
    assert kept.launch.where == "nowhere"
    assert kept.launch.grid == (-(-N // best.kwargs["BLOCK"]), 1, 1)
    assert [argument.name for argument in kept.launch.arguments][:3] == ["x_ptr", "out_ptr", "n"]
    assert lab.compare("scale", lambda x_ptr: 2 * x_ptr).equal


def test_hooks_of_the_config_and_the_autotuner_come_before_a_launch_in_this_order() -> None:
    called = []
    config = triton.Config({"BLOCK": 64}, pre_hook=lambda named: called.append("config"))
    autotuned = triton.autotune([config], key=["n"], pre_hook=lambda named, reset_only=False: called.append("tuner"))(
        scale
    )
    launch = launches(autotuned).of(Config.from_triton(config), config)
    called.clear()
    for hook in launch.before:
        hook({})
    assert called == ["config", "tuner"]


@triton.jit
def applied(x_ptr, out_ptr, n, FUNCTION: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, FUNCTION(tl.load(x_ptr + offsets, mask=offsets < n)), mask=offsets < n)


@triton.jit
def doubled(x):
    return x * 2


@triton.jit
def halved(x):
    return x / 2


def test_configs_of_one_kernel_share_its_closure() -> None:
    given = launches()
    small, large = (given.of(Config.of({"BLOCK": block})).job for block in (64, 128))
    assert small.closure is large.closure
    assert small.digest != large.digest
    alone = launches().of(Config.of({"BLOCK": 128})).job
    assert alone == large


def test_functions_among_the_values_of_configs_come_along() -> None:
    given = launches(applied)
    jobs = [given.of(Config.of({"FUNCTION": f, "BLOCK": 64})).job for f in (doubled, halved)]
    assert [[function.name for function in job.closure.functions] for job in jobs] == [
        ["applied", "doubled"],
        ["applied", "halved"],
    ]


@dataclass(slots=True)
class Refusing:
    """A compiler that compiles nothing, and writes down in which order it is asked to."""

    pool: None = None
    blocks: list[Any] = field(default_factory=list)
    from_both_ends: bool = False

    def stream(
        self,
        jobs: Sequence[Callable[[], CompileJob]],
        *,
        from_both_ends: bool = False,
        idle: Callable[[], bool] | None = None,
    ) -> Iterator[tuple[int, KernellabError]]:
        self.from_both_ends = from_both_ends
        for index, make in enumerate(jobs):
            self.blocks += [binding.value for _, binding in make().constants if isinstance(binding, Constant)]
            yield index, CompileError("It does not compile.")


@pytest.mark.parametrize(
    ("budget", "order"),
    [({}, [512, 256, 64]), ({"budget_configs": 9}, [64, 512, 256]), ({"budget_s": 60.0}, [64, 512, 256])],
    ids=["none", "configs", "seconds"],
)
def test_what_takes_long_compiles_first_and_with_a_budget_what_is_listed_first(
    lab: kernellab.Lab, budget: dict[str, Any], order: list[int]
) -> None:
    compiler: Any = Refusing()
    options = Options(blocks(64, 512, 256), **budget)
    tuning = tune_launches(
        Environment(compiler, lab.kernels, DEVICE, None), Launches(scale, grid, (X, OUT, N), {}, DEVICE.target), options
    )
    assert [block for block in compiler.blocks if block in order] == order
    assert compiler.from_both_ends is not bool(budget)
    assert [dict(row.config.parameters)["BLOCK"] for row in tuning.rows] == [64, 512, 256]

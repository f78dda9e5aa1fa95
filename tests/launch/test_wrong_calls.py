from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from packaging.version import Version

import kernellab
from kernellab.errors import CannotRun, KernellabError, LaunchError, UnknownName, UsageError, value_text
from kernellab.launch.calls import launch_error
from kernellab.target import parse_target
from kernellab.tune import Space
from kernellab.tune.verbs import call_to_tune
from tests import samples
from tests.labs import shared_lab, shell_with_extension
from tests.launch.wrong_calls import Outcome, hollow, outcome, outcomes, outcomes_of_magics, valid_calls
from tests.tables import every

N = 50


def assert_told(found: list[Outcome]) -> None:
    """All wrong calls end in an error of kernellab's, or are none after all; few do anything."""
    raw = [f"{each.call}\n{each.trace}" for each in found if each.kind == "raw"]
    assert not raw, "\n\n".join(raw)
    assert sum(each.kind == "told" for each in found) > len(found) // 2


@pytest.fixture
def own_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[kernellab.Lab]:
    """Give a lab of its own, which is closed without complaint, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    with shared_lab(store=tmp_path / "store") as lab:
        lab.kernels.add(samples.add_kernel)
        yield lab


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", every(2, [11, 12]))
def test_wrong_calls_of_the_public_verbs_are_told_in_kernellabs_words(
    own_lab: kernellab.Lab, tmp_path: Path, seed: int
) -> None:
    assert_told(list(outcomes(own_lab, tmp_path, 600, seed)))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_calls_of_a_closed_lab_are_told_or_go_on_without_the_store(own_lab: kernellab.Lab, tmp_path: Path) -> None:
    calls = valid_calls(own_lab, tmp_path)
    own_lab.close()
    found = [outcome(call) for call in calls]
    raw = [f"{each.call}\n{each.trace}" for each in found if each.kind == "raw"]
    assert not raw, "\n\n".join(raw)
    assert sum("The lab is closed" in each.error for each in found) > 15


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_magics_with_random_words_are_told_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(os.environ, "KERNELLAB_STORE", str(tmp_path / "store"))
    with shell_with_extension() as shell:
        lab = shell.magics_manager.registry["TritonMagics"].lab
        shell.user_ns.update(x=torch.rand(64), torch=torch, triton=triton, tl=tl, Space=Space)
        shell.user_ns.update(sparse=torch.eye(8).to_sparse(), hollow=hollow(), meta=torch.empty(64, device="meta"))
        shell.user_ns["add_kernel"] = lab.bind(samples.add_kernel)
        lab.kernels.add(shell.user_ns["add_kernel"])
        assert_told(list(outcomes_of_magics(shell, 300, seed=11)))


@triton.jit
def add_of_a_mode(x, y, out, n, mode: tl.constexpr):
    tl.store(out, tl.load(x) + tl.load(y) * n)


def test_a_text_or_a_list_in_the_place_of_a_number_is_named(lab: kernellab.Lab) -> None:
    x = torch.zeros(4)
    for value, kind in (("4", "str"), ([4], "list")):
        with pytest.raises(LaunchError, match=rf"cannot take these arguments: n is of type {kind}\. Pass tensors"):
            lab.run(add_of_a_mode, (1,), x, x, x, value, mode="fast")


def test_too_many_threads_are_answered_with_fewer_warps(lab: kernellab.Lab) -> None:
    x = torch.zeros(4)
    with pytest.raises(CannotRun, match=r"2,048 threads and the limit is 1,024\. Use fewer warps\.$"):
        lab.bind(samples.add_kernel)[(1,)](x, x, x, 4, BLOCK=16, num_warps=64)


@triton.jit
def oddly_named(self, grid, target, timeout_s, check, warmup, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    mask = offsets < n
    first = tl.load(self + offsets, mask=mask) + tl.load(grid + offsets, mask=mask)
    second = tl.load(target + offsets, mask=mask) + tl.load(timeout_s + offsets, mask=mask)
    tl.store(check + offsets, (first + second) * warmup, mask=mask)


def odd_arguments() -> dict[str, Any]:
    tensors = dict(
        zip(("self", "grid", "target", "timeout_s"), (torch.full((N,), float(i)) for i in range(4)), strict=True)
    )
    return {**tensors, "check": torch.zeros(N), "warmup": 3, "n": N}


CONFIGS = [triton.Config({"BLOCK": 64})]
VERBS = {
    "launch": lambda lab, given: lab.bind(oddly_named)[(1,)](**given, BLOCK=64),
    "run": lambda lab, given: lab.run(oddly_named, (1,), **given, BLOCK=64),
    "compile": lambda lab, given: lab.compile(oddly_named, **given, BLOCK=64),
    "effects": lambda lab, given: lab.effects(oddly_named, **given, BLOCK=64),
    "graph": lambda lab, given: lab.graph(oddly_named, **given, BLOCK=64),
    "tune": lambda lab, given: lab.tune(oddly_named, (1,), configs=CONFIGS, **given),
    "explore": lambda lab, given: lab.explore(oddly_named, (1,), BLOCK=[64, 128], **given),
    "bench": lambda lab, given: lab.bench(oddly_named, (1,), over={"n": [10, N]}, **given, BLOCK=64),
}


@pytest.mark.parametrize("verb", VERBS)
def test_parameters_called_like_options_work_by_keyword(lab: kernellab.Lab, verb: str) -> None:
    given = odd_arguments()
    for _ in range(2):  # a known launch takes another way
        VERBS[verb](lab, given)
    if verb in {"launch", "run"}:
        assert given["check"].tolist() == [18.0] * N


def test_a_keyword_that_an_option_may_hold_is_the_option(lab: kernellab.Lab) -> None:
    given = odd_arguments()
    with pytest.raises(LaunchError, match="target"):
        lab.compile(oddly_named, **{**given, "target": "cuda:80"}, BLOCK=64)


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), 1e30, "5", True, torch.ones(1)])
def test_seconds_are_positive_and_finite(lab: kernellab.Lab, value: Any) -> None:
    x = torch.zeros(4)
    with pytest.raises(UsageError, match=r"timeout_s is .*; expected a positive number of seconds"):
        lab.run(samples.add_kernel, (1,), x, x, x, 4, BLOCK=16, timeout_s=value)


@pytest.mark.parametrize("key", [None, 1.5, True, b"add_kernel", ["add_kernel"], 2**70, -1, "add_kernel@9" + 30 * "9"])
def test_a_key_that_names_no_kernel_is_an_unknown_name_and_a_key_error(lab: kernellab.Lab, key: Any) -> None:
    lab.kernels.add(samples.add_kernel)
    with pytest.raises(UnknownName) as told:
        lab.kernels[key]
    assert isinstance(told.value, KeyError)
    assert key not in lab.kernels


def test_a_call_that_does_not_fit_shows_how_the_verb_is_called(lab: kernellab.Lab) -> None:
    with pytest.raises(UsageError, match=r"lab\.use_target: .*unexpected.*it is called as lab\.use_target\(target\)"):
        lab.use_target("cuda:90", fast=True)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match=r"The grid is missing: lab\.tune got None instead"):
        lab.tune(samples.add_kernel)


def test_a_misspelt_option_of_a_verb_is_told_from_one_of_the_kernel(lab: kernellab.Lab) -> None:
    x = torch.rand(N)
    configs = [triton.Config({"BLOCK": 64})]
    with pytest.raises(UsageError, match=r"lab\.tune and the kernel have no parameter 'config'; is configs= meant\?"):
        lab.tune(samples.add_kernel, (1,), x, x, x, N, config=configs)
    with pytest.raises(UsageError, match=r"no parameter 'targt'; is target= meant\?"):
        lab.compile(samples.add_kernel, x, x, x, N, BLOCK=64, targt="cuda:80")
    with pytest.raises(LaunchError, match="is BLOK a misspelling"):
        lab.run(samples.add_kernel, (1,), x, x, x, N, BLOK=64)


def test_a_tensor_that_is_not_dense_and_a_number_that_is_too_wide_are_named(lab: kernellab.Lab) -> None:
    x, out = torch.eye(8), torch.zeros(64)
    for given, n, said in (
        (x.to_sparse(), 8, r"x_ptr is a tensor of layout torch\.sparse_coo; .* pass x_ptr\.to_dense\(\)"),
        (x.to_mkldnn(), 8, r"x_ptr is a tensor of layout torch\._mkldnn"),
        (x.to(torch.float8_e8m0fnu), 8, r"has the dtype float8_e8m0fnu, .* pass x_ptr\.view\(torch\.uint8\)"),
        (x, 2**70, r"n of add_kernel is 1180591620717411303424; a kernel takes numbers of 64 bits at most"),
    ):
        for call in (lab.compile, lab.effects, lambda *args, **meta: lab.run(args[0], (1,), *args[1:], **meta)):
            with pytest.raises(LaunchError, match=said):
                call(samples.add_kernel, given, x, out, n, BLOCK=64)


@pytest.mark.parametrize("outputs", [3, True, torch.ones(2), "out", [1]])
def test_outputs_that_are_no_names_are_refused(lab: kernellab.Lab, outputs: Any) -> None:
    x = torch.ones(N)
    with pytest.raises(UsageError, match=r"outputs is .*; expected a list of argument names, such as"):
        lab.tune(samples.add_kernel, (1,), x, x, x, N, configs=[triton.Config({"BLOCK": 64})], outputs=outputs)


def test_a_value_that_is_long_is_cut_in_a_message(lab: kernellab.Lab) -> None:
    x, long = torch.ones(N), "x" * 5000
    for call in (
        lambda: lab.run(samples.add_kernel, (1,), x, x, x, N, BLOCK=64, num_warps=long),
        lambda: lab.compile(samples.add_kernel, x, x, x, N, BLOCK=64, target=long),
        lambda: lab.kernels[long],
        lambda: lab.bind(long),  # type: ignore[arg-type]
        lambda: lab.regressions(since=long),
    ):
        with pytest.raises(UsageError) as told:
            call()
        assert len(told.value.message) < 700


@triton.jit
def adds_members(pair, BLOCK: tl.constexpr):
    (x, (y, _)), offsets = pair, tl.arange(0, BLOCK)
    tl.store(x + offsets, tl.load(y + offsets))


@pytest.mark.slow
def test_a_tuple_in_a_tuple_is_launched_or_refused_in_a_sentence(lab: kernellab.Lab) -> None:
    x, y = torch.zeros(8), torch.rand(8)
    if Version(triton.__version__) < Version("3.7"):  # its key of a launch has lists for tuples in tuples
        with pytest.raises(LaunchError, match="pair of adds_members is a tuple with a tuple in it, which Triton 3"):
            lab.run(adds_members, (1,), (x, (y, 3)), BLOCK=8)
        return
    lab.run(adds_members, (1,), (x, (y, 3)), BLOCK=8)
    assert torch.equal(x, y)


UNFIT = {
    "sparse": (lambda: torch.eye(8).to_sparse(), r"x_ptr is a tensor of layout torch\.sparse_coo"),
    "nested": (lambda: torch.nested.nested_tensor([torch.ones(2)]), "x_ptr is a nested tensor"),
    "jagged": (lambda: torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged), "x_ptr is a nested tensor"),
    "mkldnn": (lambda: torch.eye(8).to_mkldnn(), r"x_ptr is a tensor of layout torch\._mkldnn"),
    "freed": (hollow, "x_ptr has no memory of its own"),
    "complex": (lambda: torch.ones(64, dtype=torch.complex64), "x_ptr of add_kernel has the dtype complex64"),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", UNFIT)
def test_a_tensor_without_memory_that_a_kernel_takes_is_refused_by_every_verb(lab: kernellab.Lab, kind: str) -> None:
    make, said = UNFIT[kind]
    bound, y, configs = lab.bind(samples.add_kernel), torch.ones(64), [triton.Config({"BLOCK": 64})]
    for _ in range(3):
        bound[(1,)](y, y, y, 64, BLOCK=64)  # a known launch takes another way
    of, launch = (samples.add_kernel,), (samples.add_kernel, (1,))
    given = (make(), y, y, 64)
    calls = [
        lambda: bound[(1,)](*given, BLOCK=64),
        lambda: lab.run(*launch, *given, BLOCK=64),
        lambda: lab.tune(*launch, *given, configs=configs),
        lambda: lab.tune_over(*launch, *given, over={"n": [32]}, configs=configs),
        lambda: lab.bench(*launch, *given[:3], over={"n": [32]}, BLOCK=64),
        lambda: lab.explore(*launch, *given, BLOCK=[64]),
        lambda: lab.traffic(*launch, *given, BLOCK=64),
        lambda: lab.explain(*launch, *given, BLOCK=64),
        lambda: lab.profile(*launch, *given, BLOCK=64),
    ]
    if kind != "freed":  # of which a compile asks nothing
        verbs = (lab.compile, lab.effects, lab.graph, lab.layouts)
        calls += [partial(verb, *of, *given, BLOCK=64) for verb in verbs]
    for call in calls:
        with pytest.raises(LaunchError, match=said):
            call()


@pytest.mark.parametrize("verb", ["run", "tune", "traffic", "explain", "profile", "explore"])
@pytest.mark.parametrize(("grid", "said"), [(None, "None"), ("64", "'64'"), (1.5, "1.5"), (torch.ones(2), "a Tensor")])
def test_what_stands_in_the_place_of_the_grid_is_told(lab: kernellab.Lab, verb: str, grid: Any, said: str) -> None:
    x = torch.ones(4)
    with pytest.raises(UsageError, match=rf"^The grid is missing: lab\.{verb} got {said} instead\. Pass it after"):
        getattr(lab, verb)(samples.add_kernel, grid, x, x, x, 4, BLOCK=16)


@pytest.mark.parametrize("number", ["a", None, 1.5, True, -1, 2**70, [], slice(2), {}])
def test_constants_are_found_by_their_id_alone(lab: kernellab.Lab, number: Any) -> None:
    known = lab.kernels.add_constants({"BLOCK": 64})
    assert lab.kernels.constants(known) == {"BLOCK": 64}
    with pytest.raises(UnknownName, match="No constant arguments have the id"):
        lab.kernels.constants(number)


@pytest.mark.parametrize("constants", ["a", None, 3, [1]])
def test_constants_that_are_no_dict_are_refused(lab: kernellab.Lab, constants: Any) -> None:
    with pytest.raises(UsageError, match=r"constants of lab\.kernels is .*; expected a dict"):
        lab.kernels.add_constants(constants)


@pytest.mark.parametrize(
    ("values", "where", "said"),
    [
        (["a"], "BLOCK > 1", r"where 'BLOCK > 1' cannot be evaluated for BLOCK='a': TypeError"),
        ([64, 0], "64 / BLOCK > 1", r"for BLOCK=0: ZeroDivisionError"),
        ([64], lambda BLOCK: BLOCK.size, r"where <lambda> cannot be evaluated for BLOCK=64: AttributeError"),
        ([torch.ones(2)], "BLOCK > 1", r"for BLOCK=a torch.Tensor: RuntimeError"),
    ],
)
def test_a_condition_of_a_space_that_fails_is_told_with_its_values(values: Any, where: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        list(Space(BLOCK=values, where=where))


class Pointer:
    """Memory as another library shows it."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.dtype = tensor, tensor.dtype

    def data_ptr(self) -> int:
        return self.tensor.data_ptr()


@pytest.mark.slow
@pytest.mark.parametrize("launches", [0, 1, 2, 3, 5])
def test_an_object_with_an_address_is_launched_after_tensors_were(lab: kernellab.Lab, launches: int) -> None:
    bound = kernellab.Lab.bind(lab, triton.jit(samples.add_kernel.fn))
    x, y, out = torch.rand(N), torch.rand(N), torch.zeros(N)
    for _ in range(launches):
        bound[(1,)](x, y, out, N, BLOCK=64)
    out.zero_()
    bound[(1,)](Pointer(x), Pointer(y), Pointer(out), N, BLOCK=64)
    assert torch.equal(out, x + y)


@triton.jit
def store_program(x_ptr):
    tl.device_print("program", tl.program_id(0))
    tl.store(x_ptr, tl.program_id(0))


@triton.jit
def store_at(x_ptr, n):
    tl.store(x_ptr + n, 1.0)


@pytest.mark.slow
def test_a_launch_that_nobody_records_warns_of_what_its_checked_run_finds(
    lab: kernellab.Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(4):  # a known launch takes another way
        with pytest.warns(UserWarning, match="store_program: race of x_ptr in line .* by program") as told:
            lab.bind(store_program)[(2,)](torch.zeros(1, dtype=torch.int32))
        assert told[0].filename == __file__
        with pytest.warns(UserWarning, match="store_at: outside view of x_ptr"):
            lab.bind(store_at)[(1,)](torch.zeros(16)[:4], 5)
    assert capsys.readouterr().out.count("program") >= 8
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert lab.run(store_at, (1,), torch.zeros(16)[:4], 5).findings


def test_a_misspelt_key_of_a_grid_function_is_a_key_error_with_the_names_of_the_arguments(lab: kernellab.Lab) -> None:
    x, bound = torch.ones(4), lab.bind(samples.add_kernel)
    with pytest.raises(KeyError, match="BLOK") as caught:
        bound[lambda meta: (triton.cdiv(4, meta["BLOK"]),)](x, x, x, 4, BLOCK=16)
    names = ", ".join(samples.add_kernel.arg_names)
    assert caught.value.__notes__ == [f"A grid function gets the arguments of its launch by name; here: {names}."]
    sizes = dict[int, int]()
    with pytest.raises(KeyError, match="5") as caught:
        bound[lambda meta: (sizes[5],)](x, x, x, 4, BLOCK=16)
    assert not hasattr(caught.value, "__notes__")


def test_an_integer_is_no_grid_of_a_launch_by_subscript_as_in_triton(lab: kernellab.Lab) -> None:
    x, bound = torch.ones(4), lab.bind(samples.add_kernel)
    for _ in range(2):
        with pytest.raises(LaunchError, match=r"The grid of add_kernel is 8, and Triton takes a tuple: write \(8,\)\."):
            bound[8](x, x, x, 4, BLOCK=16)
        bound[torch.Size([8])](x, x, x, 4, BLOCK=16)
        bound[[8]](x, x, x, 4, BLOCK=16)
    assert lab.run(samples.add_kernel, 8, x, x, x, 4, BLOCK=16)  # a verb of the lab takes it
    for kernel in (samples.add_kernel, "add_kernel"):  # and may launch it by subscript
        lab.kernels.add(samples.add_kernel)
        assert call_to_tune(lab.session(), kernel, 8, (x, x, x, 4), {"BLOCK": 16}).grid == (8,)


@pytest.mark.parametrize("launches_before", [False, True])
def test_a_grid_function_returns_no_integer_as_in_triton(lab: kernellab.Lab, launches_before: bool) -> None:
    x, bound = torch.ones(4), lab.bind(samples.add_kernel)
    if launches_before:
        bound[lambda meta: (8,)](x, x, x, 4, BLOCK=16)
    message = r"The grid function of add_kernel returned 8; it must return a tuple such as \(n,\)\."
    for _ in range(2):
        with pytest.raises(LaunchError, match=message):
            bound[lambda meta: 8](x, x, x, 4, BLOCK=16)
    with pytest.raises(LaunchError, match=message):
        lab.run(samples.add_kernel, lambda meta: 8, x, x, x, 4, BLOCK=16)


def test_a_grid_function_is_called_once_a_launch_whatever_sequence_it_returns(lab: kernellab.Lab) -> None:
    x, bound, calls = torch.ones(4), lab.bind(samples.add_kernel), []

    def grid(meta: dict[str, Any]) -> torch.Size:
        calls.append(meta)
        return torch.Size([1])

    for launches in range(1, 6):
        bound[grid](x, x, x, 4, BLOCK=16)
        assert len(calls) == launches


def test_a_negative_integer_as_a_grid_is_refused_as_it_was_written(lab: kernellab.Lab) -> None:
    x = torch.ones(4)
    with pytest.raises(KernellabError, match="The grid of add_kernel is -1; an extent cannot be negative"):
        lab.explain(samples.add_kernel, -1, x, x, x, 4, BLOCK=16)


def test_a_kernel_or_a_function_of_other_parameters_is_no_grid(lab: kernellab.Lab) -> None:
    x, bound = torch.ones(4), lab.bind(samples.add_kernel)
    with pytest.raises(UsageError, match=r"lab\.run got a JITFunction instead"):
        lab.run(samples.add_kernel, samples.add_kernel, x, x, x, 4, BLOCK=16)  # type: ignore[arg-type]
    with pytest.raises(LaunchError, match="The grid function of add_kernel is called with the arguments by name"):
        bound[lambda n, block: (1,)](x, x, x, 4, BLOCK=16)
    with pytest.raises(LaunchError, match="its extents must be integers"):
        bound[(torch.ones(4),)](x, x, x, 4, BLOCK=16)


def test_a_tensor_is_no_constant(lab: kernellab.Lab) -> None:
    x, bound = torch.ones(4), lab.bind(samples.add_kernel)
    for call in (bound[(1,)], lambda *args, **meta: lab.compile(samples.add_kernel, *args, **meta)):
        with pytest.raises(LaunchError, match="BLOCK of add_kernel is a Tensor, which cannot be a constexpr"):
            call(x, x, x, 4, BLOCK=hollow())
        with pytest.raises(UsageError, match="num_stages of add_kernel is a"):
            call(x, x, x, 4, BLOCK=16, num_stages=hollow())


def test_a_message_names_tensors_in_a_container_by_their_type() -> None:
    assert value_text([hollow(), (1, hollow())]) == "[a torch.Tensor, (1, a torch.Tensor)] (list)"
    assert value_text({"x": hollow()}) == "{'x': a torch.Tensor} (dict)"


def test_what_is_neither_a_name_nor_a_path_is_not_loaded(lab: kernellab.Lab) -> None:
    with pytest.raises(UsageError, match=r"kernel is a torch\.Tensor; expected a name, name@version, id, or the path"):
        lab.load(hollow(), {})  # type: ignore[arg-type]


def test_a_kernel_that_needs_an_allocator_says_how_to_set_one() -> None:
    refused = RuntimeError("Kernel requires a runtime memory allocation, but no allocator was set.")
    arguments = torch.zeros(4), torch.zeros(4), 4
    error = launch_error(
        samples.add_kernel, (torch.zeros(4), *arguments), {"BLOCK": 4}, refused, parse_target("cuda:90")
    )
    assert isinstance(error, LaunchError)
    assert "triton.set_allocator(lambda" in error.message

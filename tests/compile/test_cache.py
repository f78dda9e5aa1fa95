from __future__ import annotations

import json
import linecache
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.compile.disassembly import DISASSEMBLY, disassembly_of
from kernellab.compile.entries import EFFECTS, triton_files
from kernellab.compile.types import Compiled, CompileJob, compile_job
from kernellab.errors import CompileError, LaunchError, UnknownTarget, UsageError, WorkerDied, WorkerTimeout
from kernellab.target import known_targets
from tests import samples
from tests.alone import run_with_lab
from tests.labs import shared_lab
from tests.tables import every

N = 1000
X, Y, OUT = torch.rand(N), torch.rand(N), torch.zeros(N)
ADD = {"x_ptr": X, "y_ptr": Y, "out_ptr": OUT, "n": N, "BLOCK": 256}


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[kernellab.Lab]:
    with shared_lab(store=tmp_path) as lab:
        yield lab


@pytest.mark.parametrize("target", known_targets())
def test_a_kernel_compiles_for_every_target(lab: kernellab.Lab, target: str) -> None:
    try:
        compiled = lab.compile(samples.add_kernel, **ADD, target=target)
    except CompileError as error:
        if "is not defined for option 'gpu-name'" not in error.message:
            raise
        pytest.skip(f"the ptxas of this Triton does not know {target}")
    last = "ptx" if target.startswith("cuda") else "amdgcn"
    assert list(compiled.stages) == ["ttir", "ttgir", "llir", last]
    assert all(compiled.stages.values())
    assert len(compiled.binary) > 1000
    assert str(compiled.target) == target
    assert compiled.resources.fits
    assert compiled.resources.registers
    assert compiled.resources.spill_bytes == 0
    assert compiled.resources.occupancy


@pytest.mark.slow
def test_the_stages_name_the_file_of_the_kernel(lab: kernellab.Lab) -> None:
    compiled = lab.compile(samples.add_kernel, **ADD)
    for stage in (compiled.ttir, compiled.ttgir, compiled.llir, compiled.ptx, compiled.sass):
        assert "samples.py" in stage


@pytest.mark.slow
def test_the_assembly_of_a_cell_names_the_cell(lab: kernellab.Lab) -> None:
    text = "@triton.jit\ndef named(x_ptr):\n    tl.store(x_ptr, 1.0)\n"
    linecache.cache["In[7]"] = (len(text), None, text.splitlines(keepends=True), "In[7]")
    namespace: dict[str, Any] = {"triton": triton, "tl": tl}
    exec(compile(text, "In[7]", "exec"), namespace)
    compiled = lab.compile(namespace["named"], X)
    for stage in (*compiled.stages.values(), compiled.sass):
        assert "In[7]" in stage
        assert "cell:" not in stage


@pytest.mark.slow
def test_sass_is_machine_code_and_amd_has_none(lab: kernellab.Lab) -> None:
    assert "STG" in lab.compile(samples.add_kernel, **ADD).sass
    with pytest.raises(UsageError, match=r"no SASS for hip:gfx942.*Read \.amdgcn"):
        _ = lab.compile(samples.add_kernel, **ADD, target="hip:gfx942").sass


@pytest.mark.slow
def test_a_kernel_is_disassembled_once_and_triton_is_not_given_the_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shared_lab("cuda:90", tmp_path) as lab:
        text = lab.compile(samples.add_kernel, **ADD).sass
    monkeypatch.setattr("kernellab._triton.binary_tools.disassemble", lambda binary: None)
    with shared_lab("cuda:90", tmp_path) as lab:
        again = lab.compile(samples.add_kernel, **ADD)
        assert again.from_cache
        assert again.sass == text
    assert DISASSEMBLY not in triton_files(again)
    assert list(again.stages) == ["ttir", "ttgir", "llir", "ptx"]


@pytest.mark.parametrize("harm", ["empty", "start", "half", "zeros", "changed", "other encoding"])
def test_a_kept_disassembly_that_is_cut_short_or_changed_is_made_again_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    texts = iter(["MOV R1 ;\nEXIT ;\n"] * 2)
    monkeypatch.setattr("kernellab._triton.binary_tools.disassemble", lambda binary: next(texts))
    text, kept = disassembly_of(tmp_path / "k.cubin"), tmp_path / DISASSEMBLY
    assert disassembly_of(tmp_path / "k.cubin") == text
    content = kept.read_bytes()
    cut = {"empty": b"", "start": content[:9], "half": content[: len(content) - 9], "zeros": bytes(len(content))}
    changed = {"changed": content.replace(b"R1", b"R2"), "other encoding": content.replace(b"R1", b"\xff1")}
    kept.write_bytes({**cut, **changed}[harm])
    with pytest.warns(UserWarning, match="is cut short, or was changed; the binary is disassembled again"):
        assert disassembly_of(tmp_path / "k.cubin") == text
    assert kept.read_bytes() == content


def test_a_kept_disassembly_of_a_release_that_wrote_no_checksum_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / DISASSEMBLY).write_text("MOV R1 ;\n")
    monkeypatch.setattr("kernellab._triton.binary_tools.disassemble", lambda binary: "MOV R1 ;\nEXIT ;\n")
    assert disassembly_of(tmp_path / "k.cubin") == "MOV R1 ;\nEXIT ;\n"


def test_parameters_say_what_was_assumed(lab: kernellab.Lab) -> None:
    compiled = lab.compile(samples.add_kernel, X, Y[1:], OUT, 1, BLOCK=256)
    words = {p.name: (p.type, p.specialization) for p in compiled.parameters}
    assert words == {
        "x_ptr": ("*fp32", "divisible by 16"),
        "y_ptr": ("*fp32", ""),
        "out_ptr": ("*fp32", "divisible by 16"),
        "n": ("constexpr", "1"),
        "BLOCK": ("constexpr", "256"),
    }


def test_a_function_and_a_dtype_can_be_constexprs(lab: kernellab.Lab) -> None:
    compiled = lab.compile(samples.apply_kernel, X, OUT, samples.squared, tl.float16, 64)
    assert "arith.mulf" in compiled.ttir
    assert {p.name: p.specialization for p in compiled.parameters}["DTYPE"] == "tl.fp16"


def test_members_of_a_tuple_have_effects_of_their_own(lab: kernellab.Lab) -> None:
    effects = lab.effects(samples.sum_of_pair, (X, Y), OUT, BLOCK=64)
    assert (effects.reads, effects.writes) == ({"pair[0]", "pair[1]"}, {"out_ptr"})


def test_an_autotuned_kernel_compiles_with_heuristics_of_its_first_config(lab: kernellab.Lab) -> None:
    compiled = lab.compile(samples.tuned_kernel, X, OUT, 128)
    words = {p.name: p.specialization for p in compiled.parameters}
    assert (words["BLOCK"], words["EVEN"]) == ("64", "True")


def test_the_second_compile_is_from_memory_and_a_new_lab_finds_it_on_disk(tmp_path: Path) -> None:
    with shared_lab(store=tmp_path) as lab:
        first = lab.compile(samples.add_kernel, **ADD)
        again = lab.compile(samples.add_kernel, **ADD)
    with kernellab.Lab(store=tmp_path) as lab:
        later = lab.compile(samples.add_kernel, **ADD)
        assert all(worker.pid is None for worker in lab._pool.workers)
        assert later.ptx == first.ptx
    assert (first.from_cache, again.from_cache, later.from_cache) == (False, True, True)
    assert first.digest == again.digest == later.digest
    assert later.graph == first.graph
    assert later.resources == first.resources
    assert later.effects == first.effects


@pytest.mark.parametrize("kept", ['{"analysis": "of another release"}', None])
def test_effects_of_another_analysis_are_found_anew(tmp_path: Path, kept: str | None) -> None:
    with shared_lab(store=tmp_path) as lab:
        first = lab.compile(samples.add_kernel, **ADD)
    (first.folder / EFFECTS).unlink()
    if kept is not None:
        (first.folder / EFFECTS).write_text(kept)
    with shared_lab(store=tmp_path) as lab:
        again = lab.compile(samples.add_kernel, **ADD)
    assert again.from_cache
    assert again.effects == first.effects
    assert again.effects.writes == {"out_ptr"}


def test_a_damaged_entry_is_compiled_again_with_a_warning(tmp_path: Path) -> None:
    with shared_lab(store=tmp_path) as lab:
        first = lab.compile(samples.add_kernel, **ADD)
    (first.folder / "kernellab.json").write_text("{")
    with shared_lab(store=tmp_path) as lab, pytest.warns(UserWarning, match="compiled again"):
        again = lab.compile(samples.add_kernel, **ADD)
    assert not again.from_cache
    assert json.loads((again.folder / "kernellab.json").read_text())["shared_bytes"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("harm", ["gone", "empty", "half", "zeros"])
def test_a_file_of_an_entry_that_is_cut_short_is_made_again(tmp_path: Path, harm: str) -> None:
    with shared_lab(store=tmp_path) as lab:
        first = lab.compile(samples.add_kernel, **ADD)
    kept = {
        path: path.read_bytes()
        for path in first.folder.iterdir()
        if path.name not in {EFFECTS, DISASSEMBLY, "kernellab.json", "subject.json"}
    }
    assert len(kept) > 6
    for path, content in kept.items():
        harmed = {"empty": b"", "half": content[: len(content) // 2], "zeros": bytes(len(content))}
        path.unlink() if harm == "gone" else path.write_bytes(harmed[harm])
        with shared_lab(store=tmp_path) as lab:
            with pytest.warns(UserWarning, match="compiled again") as told:
                again = lab.compile(samples.add_kernel, **ADD)
            assert len(told) == 1
            assert not again.from_cache
            assert (again.stages, again.binary) == (first.stages, first.binary)
            lab.run(samples.add_kernel, (4,), **ADD)


def test_a_file_that_goes_while_the_session_has_the_kernel_in_memory_is_made_again(tmp_path: Path) -> None:
    with shared_lab(store=tmp_path) as lab:
        first = lab.compile(samples.add_kernel, **ADD)
        first.binary_path.unlink()
        with pytest.warns(UserWarning, match="compiled again"):
            assert lab.compile(samples.add_kernel, **ADD).binary
        shutil.rmtree(first.folder)
        assert lab.compile(samples.add_kernel, **ADD).binary


@pytest.mark.slow
def test_options_and_targets_have_entries_of_their_own(lab: kernellab.Lab) -> None:
    digests = {
        lab.compile(samples.add_kernel, **ADD, target=target, num_warps=warps).digest
        for target in ("cuda:80", "cuda:90")
        for warps in (2, 4)
    }
    assert len(digests) == 4


@pytest.mark.slow
def test_an_edited_override_is_compiled_anew(lab: kernellab.Lab, tmp_path: Path) -> None:
    path = tmp_path / "add_kernel.ttir"
    plain = lab.compile(samples.add_kernel, **ADD)
    path.write_text(plain.ttir)
    first = lab.compile(samples.add_kernel, **ADD, ir_override=str(path))
    path.write_text(plain.ttir.replace("arith.addf", "arith.mulf"))
    second = lab.compile(samples.add_kernel, **ADD, ir_override=str(path))
    assert "arith.addf" in first.ttir
    assert "arith.mulf" in second.ttir
    with pytest.raises(UsageError, match=r"nothing\.ttir', which cannot be read: No such file"):
        lab.compile(samples.add_kernel, **ADD, ir_override=str(tmp_path / "nothing.ttir"))


@pytest.mark.slow
def test_a_variable_that_changes_what_triton_makes_has_entries_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        "import torch, kernellab\nfrom tests import samples\n"
        f"with kernellab.Lab(store={str(tmp_path)!r}) as lab:\n"
        "    x = torch.zeros(64)\n"
        "    print(lab.compile(samples.add_kernel, x, x, x, 64, BLOCK=64).from_cache)\n"
    )
    said = []
    for value in ("0", "1", "0"):
        monkeypatch.setenv("DISABLE_LLVM_OPT", value)
        done = run_with_lab(text, folder=Path(__file__).parents[2])
        said.append((done.returncode, done.stdout, done.stderr))
    assert said == [(0, "False\n", ""), (0, "False\n", ""), (0, "True\n", "")]


def test_a_variable_that_is_set_while_the_workers_run_reaches_them(
    lab: kernellab.Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.zeros(64)
    plain = lab.compile(samples.add_kernel, x, x, x, 64, BLOCK=64)
    monkeypatch.setenv("DISABLE_LLVM_OPT", "1")
    unoptimised = lab.compile(samples.add_kernel, x, x, x, 64, BLOCK=64)
    assert len(unoptimised.llir) > len(plain.llir)
    monkeypatch.delenv("DISABLE_LLVM_OPT")
    again = lab.compile(samples.add_kernel, x, x, x, 64, BLOCK=64)
    assert again.llir == plain.llir


def test_an_error_in_a_helper_points_into_the_helper(lab: kernellab.Lab) -> None:
    with pytest.raises(CompileError, match="power of 2") as caught:
        lab.compile(samples.broken_kernel, X, BLOCK=64)
    place = caught.value.place
    assert place is not None
    assert place.source_line().strip() == "return value + tl.arange(0, 48)"
    assert place.file == samples.__file__


def test_the_lines_of_an_error_end_in_a_caret_under_the_cause(lab: kernellab.Lab) -> None:
    with pytest.raises(CompileError) as caught:
        lab.compile(samples.broken_kernel, X, BLOCK=64)
    what, where, line, caret = caught.value.lines()
    assert what.startswith("CompileError: broken_kernel does not compile for cuda:90: ")
    assert where.startswith(f"  {samples.__file__}, line ")
    assert line[caret.index("^") :].startswith("tl.arange(0, 48)")


def test_a_refusal_of_ptxas_is_one_line_and_floods_nothing(
    lab: kernellab.Lab, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(CompileError, match="ptxas refused it: Not a name of any known instruction") as caught:
        lab.compile(samples.unassemblable_kernel, torch.zeros(64, dtype=torch.int32), BLOCK=64)
    assert len(caught.value.lines()) <= 4
    assert caught.value.place is not None
    assert "inline_asm" in caught.value.place.source_line() or "no_such" in caught.value.place.source_line()
    assert capfd.readouterr() == ("", "")


def test_a_fatal_error_of_llvm_ends_only_its_worker(lab: kernellab.Lab) -> None:
    x = torch.zeros(64, dtype=torch.int32)
    with pytest.raises(WorkerDied, match=r"Compiling fatal_kernel for cuda:90 ended its worker process") as caught:
        lab.compile(samples.fatal_kernel, x, BLOCK=64)
    assert caught.value.kernel == "fatal_kernel"
    assert lab.compile(samples.add_kernel, **ADD).resources.fits


@pytest.mark.slow
def test_an_endless_compile_is_stopped(fresh: kernellab.Lab) -> None:
    fresh.compiler.timeout_s = 0.5
    with pytest.raises(WorkerTimeout, match=r"Compiling slow_to_trace for cuda:90 did not finish within 0\.5 s"):
        fresh.compile(samples.slow_to_trace, X)


@pytest.mark.parametrize(
    ("arguments", "meta", "message"),
    [
        ((X, Y, OUT), {"BLOCK": 256}, "launched without n; it is declared as add_kernel"),
        ((X, Y, OUT, N, 256, 1), {}, "takes 5 arguments and got 6"),
        ((X, Y, OUT, N), {"BLOCK": 256, "n": 3}, "got n by position and by name"),
        ((X, Y, OUT, N), {"BLOCK": 256, "num_warp": 4}, "no parameter or option 'num_warp'; .*did you mean num_warps"),
        (
            (X, Y, OUT, N),
            {"BLOCK": 256, "num_wraps": 4},
            "no parameter or option 'num_wraps'; .*did you mean num_warps",
        ),
        ((X, Y, OUT, N), {"BLOCK": 256, "zebra": 4}, r"no parameter or option 'zebra'; .*debug\.$"),
        ((X, Y, object(), N), {"BLOCK": 256}, r"out_ptr is of type object\. Pass tensors"),
        ((X, Y.cfloat(), OUT, N), {"BLOCK": 256}, r"y_ptr .* has the dtype complex64, .* torch\.view_as_real\(y_ptr\)"),
    ],
)
def test_wrong_arguments_are_named(
    lab: kernellab.Lab, arguments: tuple[object, ...], meta: dict[str, object], message: str
) -> None:
    with pytest.raises(LaunchError, match=message):
        lab.compile(samples.add_kernel, *arguments, **meta)


def test_an_option_that_the_target_refuses_is_a_sentence(lab: kernellab.Lab) -> None:
    with pytest.raises(UsageError, match="num_warps must be a power of 2; num_warps is 3"):
        lab.compile(samples.add_kernel, **ADD, num_warps=3, num_stages=2)
    with pytest.raises(UsageError, match=r"num_ctas of add_kernel is 3; expected a power of 2\."):
        lab.compile(samples.add_kernel, **ADD, num_ctas=3)


def test_an_unknown_target_lists_the_known_ones(lab: kernellab.Lab) -> None:
    with pytest.raises(UnknownTarget, match=r"'cuda:42'; expected one of cuda:75, .*hip:gfx950"):
        lab.compile(samples.add_kernel, **ADD, target="cuda:42")


def test_something_else_than_a_kernel_is_refused(lab: kernellab.Lab) -> None:
    with pytest.raises(UsageError, match=r"not a Triton kernel; pass a function decorated with @triton\.jit"):
        lab.compile(len, X)


def test_effects_need_no_ptx(fresh: kernellab.Lab) -> None:
    x = torch.zeros(64, dtype=torch.int32)
    assert fresh.effects(samples.unassemblable_kernel, x, BLOCK=64).writes == {"x_ptr"}
    with pytest.raises(CompileError, match="ptxas refused it"):
        fresh.compile(samples.unassemblable_kernel, x, BLOCK=64)


def test_effects_of_a_known_kernel_start_no_worker(tmp_path: Path) -> None:
    with shared_lab(store=tmp_path) as lab:
        first = lab.effects(samples.add_kernel, **ADD)
        compiled = lab.compile(samples.add_kernel, **{**ADD, "BLOCK": 128})
    with kernellab.Lab(store=tmp_path) as lab:
        again = lab.effects(samples.add_kernel, **ADD)
        of_compiled = lab.effects(samples.add_kernel, **{**ADD, "BLOCK": 128})
        graph = lab.graph(samples.add_kernel, **{**ADD, "BLOCK": 128})
        assert all(worker.pid is None for worker in lab._pool.workers)
    assert again == first
    assert of_compiled == compiled.effects
    assert graph == compiled.graph


@pytest.mark.parametrize("harm", ['{"analysis": "of another release"}', "{", ""])
def test_kept_effects_that_cannot_be_read_are_found_anew(tmp_path: Path, harm: str) -> None:
    with shared_lab(store=tmp_path) as lab:
        first = lab.effects(samples.add_kernel, **ADD)
    (kept,) = tmp_path.rglob(EFFECTS)
    kept.write_text(harm)
    with shared_lab(store=tmp_path) as lab:
        assert lab.effects(samples.add_kernel, **ADD) == first
    assert kept.read_text() != harm


def test_equal_tensors_are_reported_as_aliases(lab: kernellab.Lab) -> None:
    effects = lab.effects(samples.add_kernel, X, X, OUT, N, BLOCK=256)
    assert effects.aliases == (frozenset({"x_ptr", "y_ptr"}),)


def test_an_autotuned_kernel_has_the_effects_of_all_configs(lab: kernellab.Lab) -> None:
    effects = lab.effects(samples.tuned_kernel, X, OUT, 64)
    assert (effects.reads, effects.writes) == ({"x_ptr"}, {"out_ptr"})
    assert {site.masked for site in effects.sites} == {True, False}


def jobs_of(lab: kernellab.Lab, blocks: list[int]) -> list[Any]:
    return [compile_job(samples.add_kernel, lab.target, (X, Y, OUT, N), {"BLOCK": block}) for block in blocks]


@pytest.mark.slow
def test_a_stream_yields_every_job_and_a_failure_does_not_stop_the_others(fresh: kernellab.Lab) -> None:
    found = dict(fresh.compiler.stream(jobs_of(fresh, [32, 48, 64, 128])))
    assert isinstance(found[1], CompileError)
    assert all(isinstance(found[i], Compiled) for i in (0, 2, 3))


@pytest.mark.slow
def test_jobs_from_both_ends_are_all_compiled(fresh: kernellab.Lab) -> None:
    found = dict(fresh.compiler.stream(jobs_of(fresh, [128, 64, 32]), from_both_ends=True))
    assert [found[index].parameters[-1].specialization for index in range(3)] == ["128", "64", "32"]


@pytest.mark.slow
def test_a_stream_of_what_is_there_needs_no_thread(fresh: kernellab.Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = jobs_of(fresh, [32, 64])
    before = dict(fresh.compiler.stream(jobs))

    def refused(*given: Any) -> None:
        raise AssertionError("a thread")

    def impossible() -> CompileJob:
        raise LaunchError("no such argument")

    monkeypatch.setattr("kernellab.compile.cache.run_in_parallel", refused)
    again = dict(fresh.compiler.stream([lambda: jobs[0], impossible, jobs[1]]))
    assert [type(result) for result in again.values()] == [Compiled, LaunchError, Compiled]
    assert again[0].digest == before[0].digest  # type: ignore[union-attr]
    with pytest.raises(AssertionError, match="a thread"):
        next(iter(fresh.compiler.stream([jobs[0], *jobs_of(fresh, [128])])))


@pytest.mark.slow
def test_leaving_a_stream_stops_what_is_under_way(fresh: kernellab.Lab) -> None:
    slow = compile_job(samples.slow_to_trace, fresh.target, (X,), {})
    for index, _ in fresh.compiler.stream([*jobs_of(fresh, [32]), slow]):
        assert index == 0
        break
    assert fresh.compile(samples.add_kernel, **ADD).resources.fits


@pytest.mark.slow
def test_of_many_results_the_latest_are_held_in_memory_and_the_others_found_on_disk(fresh: kernellab.Lab) -> None:
    fresh.compiler.most_held = 2
    first, second, third = (fresh.compiler.compile(job) for job in jobs_of(fresh, [32, 64, 128]))
    again = [fresh.compiler.compile(job) for job in jobs_of(fresh, [128, 64, 32])]
    assert [each.from_cache for each in again] == [True] * 3
    assert [each.digest for each in again] == [third.digest, second.digest, first.digest]
    assert again[2].graph is not first.graph
    assert again[0].graph is third.graph


@pytest.mark.slow
def test_two_threads_that_want_one_kernel_compile_it_once(fresh: kernellab.Lab) -> None:
    (job,) = jobs_of(fresh, [256])
    found = [compiled for _, compiled in fresh.compiler.stream([job, job])]
    assert [compiled.from_cache for compiled in found if isinstance(compiled, Compiled)].count(False) <= 1
    assert len(list(fresh.compiler.folder.glob("??/*"))) == 1


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cuda:80", "cuda:90"])
def test_static_shared_memory_is_counted_without_what_the_system_reserves(lab: kernellab.Lab, target: str) -> None:
    x = torch.zeros(64, dtype=torch.int32)
    resources = lab.compile(samples.static_shared_kernel, x, BLOCK=64, target=target).resources
    assert (resources.static_shared_bytes, resources.shared_bytes) == (4096, 4096)
    plain = lab.compile(samples.add_kernel, **ADD, target=target).resources
    assert (plain.static_shared_bytes, plain.shared_bytes) == (0, 0)


@pytest.mark.slow
def test_a_worker_killed_in_the_middle_of_a_compile_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELLAB_WORKERS", "1")
    with kernellab.Lab(store=tmp_path) as lab:
        lab.compile(samples.add_kernel, **ADD)
        (worker,) = lab._pool.workers
        first = worker.pid
        assert first is not None

        def kill() -> None:
            while not any(lab.compiler.folder.glob(".*")):  # the folder of a build under way
                pass
            os.kill(first, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        compiled = lab.compile(samples.unrolled_kernel, X, TIMES=1000)
        killer.join()
        assert compiled.resources.fits
        assert worker.pid not in {None, first}


@triton.jit
def multiplying(a_ptr, b_ptr, c_ptr, K, M: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr, PRINTS: tl.constexpr):
    rows, columns, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BLOCK)
    total = tl.zeros((M, N), tl.float32)
    for k in range(0, K, BLOCK):
        a = tl.load(a_ptr + rows[:, None] * K + k + inner[None, :])
        total += tl.dot(a, tl.load(b_ptr + (k + inner)[:, None] * N + columns[None, :]))
        if PRINTS:
            tl.device_print("k", k)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], total)


@pytest.mark.slow
@pytest.mark.parametrize("target", every(2, ["cuda:90", "cuda:80"]))
def test_spills_are_what_ptxas_calls_so_and_the_rest_of_the_stack_is_stack(lab: kernellab.Lab, target: str) -> None:
    half, out = torch.zeros(1 << 16, dtype=torch.float16), torch.zeros(1 << 16)

    def resources(size: int, prints: bool) -> Any:
        return lab.compile(
            multiplying, half, half, out, 64, M=128, N=size, BLOCK=32, PRINTS=prints, num_warps=4, target=target
        ).resources

    printing = resources(32, True)
    assert printing.spill_bytes == 0
    assert printing.stack_bytes >= 16
    assert (resources(32, False).spill_bytes, resources(32, False).stack_bytes) == (0, 0)
    spilling, both = resources(256, False), resources(256, True)
    assert spilling.spill_bytes == spilling.stack_bytes > 0
    assert both.spill_bytes == both.stack_bytes - 16 > 0


@pytest.mark.parametrize(
    ("log", "spilled"),
    [
        ("64 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads", 0),
        ("64 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads", 24),
        ("", 24),
    ],
)
def test_what_the_ptx_declares_itself_is_not_spilled(log: str, spilled: int) -> None:
    from kernellab._triton.binary_tools import spill_bytes

    assert spill_bytes(64, log, ".local .align 8 .b8 \t__local_depot0[40];") == spilled

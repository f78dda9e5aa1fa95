from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import RichOutput, capture_output
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

import kernellab
from kernellab.errors import UsageError
from kernellab.views.report import CellReport

ADD = """\
@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + tl.load(y_ptr + offsets, mask=mask), mask=mask)
"""
RANGE = "arange's range must be a power of 2. Take the next larger power of two and mask off what is beyond the end."
LAUNCH = "add_kernel[lambda meta: (triton.cdiv(n, meta['BLOCK']),)](x, y, out, n, BLOCK=128)\n"


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InteractiveShell]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELLAB_STORE", str(tmp_path_factory.mktemp("store")))
        shell = InteractiveShell.instance()
        shell.colors = "nocolor"
        shell.run_cell("%load_ext kernellab", store_history=True).raise_error()
        yield shell
        shell.run_line_magic("unload_ext", "kernellab")
        InteractiveShell.clear_instance()


@pytest.fixture
def run(shell: InteractiveShell) -> Callable[[str], Any]:
    """Give the shell fresh tensors; return a function that runs a cell and returns its result."""
    shell.user_ns.update(n=300, x=torch.rand(300), y=torch.rand(300), out=torch.zeros(300))
    return lambda text: shell.run_cell(text, store_history=True)


@pytest.fixture
def shown(shell: InteractiveShell, run: Callable[[str], Any]) -> Callable[[str], tuple[str, list[RichOutput]]]:
    """Return a function that runs a cell and returns what it prints and displays."""

    def go(text: str) -> tuple[str, list[RichOutput]]:
        with capture_output() as captured:
            run(text)
        return captured.stdout + captured.stderr, captured.outputs

    return go


def names(shell: InteractiveShell) -> dict[str, Any]:
    found: dict[str, Any] = shell.user_ns
    return found


@pytest.mark.slow
def test_a_cell_compiles_runs_and_shows_a_card(shell: InteractiveShell, shown: Callable[[str], Any]) -> None:
    _, outputs = shown("%%triton\n" + ADD + LAUNCH)
    torch.testing.assert_close(names(shell)["out"], names(shell)["x"] + names(shell)["y"])
    (card,) = outputs
    assert "<svg" in card.data["text/html"]
    assert "all 300 elements changed" in card.data["text/plain"]
    assert "written (line 7)" in card.data["text/plain"]


def test_kernels_of_a_cell_are_drop_ins_and_in_the_side_table(
    shell: InteractiveShell, run: Callable[[str], Any]
) -> None:
    run("%%triton -q\n" + ADD).raise_error()
    kernel = names(shell)["add_kernel"]
    lab = kernellab.current_lab()
    assert isinstance(kernel, JITFunction)
    assert type(kernel) is not JITFunction
    assert lab.kernels["add_kernel"] is kernel


@pytest.mark.slow
def test_running_an_unchanged_cell_again_is_the_same_version_and_compiles_nothing(
    shell: InteractiveShell, run: Callable[[str], Any]
) -> None:
    cell = "%%triton -q -o report\n" + ADD.replace("add_kernel", "twice") + LAUNCH.replace("add_kernel", "twice")
    reports = []
    for _ in range(2):
        run(cell).raise_error()
        reports.append(names(shell)["report"].kernels[0])
    assert [report.label for report in reports] == ["twice@1", "twice@1"]
    assert [report.compiled.from_cache for report in reports] == [False, True]
    first, second = (report.file for report in reports)
    assert first != second
    assert second in reports[1].compiled.ttir
    assert first not in reports[1].compiled.ttir


@pytest.mark.slow
def test_an_edited_cell_is_the_next_version(shell: InteractiveShell, run: Callable[[str], Any]) -> None:
    cell = "%%triton -q -o report\n" + ADD.replace("add_kernel", "edited") + LAUNCH.replace("add_kernel", "edited")
    run(cell).raise_error()
    run(cell.replace("x + tl.load", "x - tl.load")).raise_error()
    assert names(shell)["report"].kernels[0].label == "edited@2"
    torch.testing.assert_close(names(shell)["out"], names(shell)["x"] - names(shell)["y"])


@pytest.mark.slow
def test_a_later_cell_launches_the_kernel_as_usual(shell: InteractiveShell, run: Callable[[str], Any]) -> None:
    run("%%triton -q\n" + ADD).raise_error()
    run(LAUNCH).raise_error()
    torch.testing.assert_close(names(shell)["out"], names(shell)["x"] + names(shell)["y"])


@pytest.mark.slow
def test_a_compile_error_is_a_message_and_three_lines_that_point_into_the_cell(
    shell: InteractiveShell, shown: Callable[[str], Any]
) -> None:
    printed, outputs = shown("%%triton\n@triton.jit\ndef bad(x_ptr):\n    offsets = tl.arange(0, 100)\nbad[(1,)](x)\n")
    number = len(names(shell)["In"]) - 1
    assert outputs == []
    *message, place, source, caret = printed.splitlines()
    assert " ".join(message) == f"CompileError: bad does not compile for cuda:90: {RANGE}"
    assert [place, source, caret] == [
        f"  In[{number}], line 4",
        "    offsets = tl.arange(0, 100)",
        "              ^",
    ]


def test_verbose_adds_the_whole_message_of_the_compiler(shown: Callable[[str], Any]) -> None:
    printed, _ = shown("%%triton --verbose\n@triton.jit\ndef bad(x_ptr):\n    tl.arange(0, 100)\nbad[(1,)](x)\n")
    assert len(printed.splitlines()) > 4
    assert "at 2:4:" in printed


@pytest.mark.slow
def test_an_exception_of_the_cell_has_the_lines_of_the_cell(
    shell: InteractiveShell, shown: Callable[[str], Any]
) -> None:
    printed, _ = shown("%%triton\n\nvalue = 1\nvalue / 0\n")
    number = len(names(shell)["In"]) - 1
    assert f"Cell In[{number}], line 4" in printed
    assert "ZeroDivisionError" in printed
    assert "cell.py" not in printed


def test_a_syntax_error_shows_its_line_and_nothing_of_the_lab(
    shell: InteractiveShell, shown: Callable[[str], Any]
) -> None:
    printed, _ = shown("%%triton\nx = (\n")
    number = len(names(shell)["In"]) - 1
    assert printed.splitlines() == [
        "UsageError: The cell is not valid Python: '(' was never closed.",
        f"  In[{number}], line 2",
        "    x = (",
        "        ^",
    ]


def test_line_magics_work_inside_a_cell(shell: InteractiveShell, run: Callable[[str], Any]) -> None:
    run("%%triton -q\n" + ADD + "%precision 3\n" + LAUNCH).raise_error()
    assert shell.display_formatter.formatters["text/plain"].float_format == "%.3f"
    shell.run_line_magic("precision", "")  # as it was
    torch.testing.assert_close(names(shell)["out"], names(shell)["x"] + names(shell)["y"])


@pytest.mark.slow
def test_what_was_defined_before_an_error_stays(shell: InteractiveShell, run: Callable[[str], Any]) -> None:
    run("%%triton\n" + ADD.replace("add_kernel", "survivor") + "raise RuntimeError('later')\n")
    assert isinstance(names(shell)["survivor"], JITFunction)
    assert kernellab.current_lab().kernels["survivor"] is names(shell)["survivor"]


def test_a_dying_launch_leaves_the_notebook_and_its_tensors(
    shell: InteractiveShell, shown: Callable[[str], Any], run: Callable[[str], Any]
) -> None:
    run("%%triton -q\n" + ADD).raise_error()
    printed, _ = shown("add_kernel[(3,)](x[:200].clone(), y, out, n, BLOCK=128)")
    assert printed.startswith("OutOfBounds: add_kernel: load of x_ptr out of bounds")
    assert not names(shell)["out"].any()
    run(LAUNCH).raise_error()
    torch.testing.assert_close(names(shell)["out"], names(shell)["x"] + names(shell)["y"])


@pytest.mark.slow
def test_an_endless_launch_is_an_error_after_its_timeout(shown: Callable[[str], Any]) -> None:
    endless = "@triton.jit\ndef endless(x_ptr):\n    v = tl.load(x_ptr)\n    while v < 2:\n        v = tl.load(x_ptr)\n"
    printed, _ = shown(f"%%triton --timeout 1\n{endless}    tl.store(x_ptr, v)\nendless[(1,)](x)\n")
    assert printed.startswith("WorkerTimeout:")
    assert "endless" in printed


def test_no_run_compiles_without_launching(shell: InteractiveShell, shown: Callable[[str], Any]) -> None:
    _, outputs = shown("%%triton --no-run\n" + ADD + LAUNCH)
    assert "not launched" in outputs[0].data["text/plain"]
    assert not names(shell)["out"].any()


@pytest.mark.slow
def test_args_compile_a_cell_without_a_launch(shown: Callable[[str], Any]) -> None:
    _, outputs = shown('%%triton --args "x, y, out, n, BLOCK=64"\n' + ADD)
    assert "add_kernel@" in outputs[0].data["text/plain"]
    assert "written (line 7)" in outputs[0].data["text/plain"]


def test_a_cell_without_a_launch_says_how_to_launch(shown: Callable[[str], Any]) -> None:
    cell = "%%triton\n" + ADD.replace("add_kernel", "waiting")
    text = " ".join(shown(cell)[1][0].data["text/plain"].split())
    assert "waiting[grid](x_ptr, y_ptr, out_ptr, n, BLOCK)" in text
    assert '--args "' in text


@pytest.mark.slow
def test_target_holds_for_its_cell_only(shown: Callable[[str], Any]) -> None:
    _, outputs = shown("%%triton --target hip:gfx942 --no-run\n" + ADD + LAUNCH)
    assert "hip:gfx942" in outputs[0].data["text/plain"]
    assert str(kernellab.current_lab().target) == "cuda:90"


def test_name_enters_the_kernel_under_another_name(shell: InteractiveShell, run: Callable[[str], Any]) -> None:
    run("%%triton -q -n plus\n" + ADD).raise_error()
    assert kernellab.current_lab().kernels["plus"] is names(shell)["add_kernel"]


def test_output_binds_the_report_and_quiet_shows_nothing(shell: InteractiveShell, shown: Callable[[str], Any]) -> None:
    printed, outputs = shown("%%triton -q -o found\n" + ADD + LAUNCH)
    assert (printed, outputs) == ("", [])
    assert isinstance(names(shell)["found"], CellReport)


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["ttir", "ttgir", "llir", "ptx", "sass"])
def test_show_opens_the_card_on_a_stage(shown: Callable[[str], Any], stage: str) -> None:
    _, outputs = shown(f"%%triton --no-run --show {stage}\n" + ADD + LAUNCH)
    marks = {"ttir": "tt.store", "ttgir": "#ttg.blocked", "llir": "define ", "ptx": "st.global", "sass": "STG"}
    assert marks[stage] in outputs[0].data["text/html"]


def test_a_passed_check_is_on_the_card(shown: Callable[[str], Any]) -> None:
    _, outputs = shown('%%triton --check "x + y"\n' + ADD + LAUNCH)
    assert "out_ptr matches x + y; " in outputs[0].data["text/plain"]


@pytest.mark.slow
def test_a_failed_check_shows_the_card_and_raises(shown: Callable[[str], Any]) -> None:
    printed, outputs = shown('%%triton --check "x * y"\n' + ADD + LAUNCH)
    assert "differs" in outputs[0].data["text/plain"]
    assert printed.startswith("CheckFailed: out_ptr of add_kernel differs from x * y: ")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--target tpu", "UnknownTarget: target is 'tpu'; expected one of cuda:75"),
        ("--show asm", "UsageError: --show is 'asm'; expected one of source, graph, ttir"),
        ("--nonsense", "UsageError: unrecognized arguments: --nonsense"),
        ('--args "x, unknown"', "UsageError: --args 'x, unknown' cannot be evaluated: NameError"),
        ('--args "x, y"', "LaunchError: add_kernel is launched without out_ptr, n, BLOCK"),
        ('--check "x"', "UsageError: --check 'x': the cell launches no kernel."),
    ],
)
def test_a_bad_option_is_one_sentence(shown: Callable[[str], Any], line: str, message: str) -> None:
    printed, _ = shown(f"%%triton {line}\n" + ADD)
    assert " ".join(printed.splitlines()).startswith(message)
    assert "\n  " not in printed, "no place, no traceback"


@pytest.mark.slow
def test_autotuned_kernels_are_bound_and_report_their_config(
    shell: InteractiveShell, shown: Callable[[str], Any]
) -> None:
    configs = "[triton.Config({'BLOCK': 64}), triton.Config({'BLOCK': 128})]"
    cell = f"%%triton\n@triton.autotune({configs}, key=['n'])\n" + ADD + LAUNCH.replace(", BLOCK=128", "")
    _, outputs = shown(cell)
    assert isinstance(names(shell)["add_kernel"], Autotuner)
    assert "BLOCK=64, num_warps=4" in outputs[0].data["text/plain"]
    torch.testing.assert_close(names(shell)["out"], names(shell)["x"] + names(shell)["y"])


def test_the_value_of_a_last_expression_is_shown(shown: Callable[[str], Any]) -> None:
    _, outputs = shown("%%triton\n" + ADD + LAUNCH + "(out - x - y).abs().max().item() < 1e-6\n")
    assert outputs[0].data["text/plain"] == "True"


def test_a_cell_needs_no_imports(shell: InteractiveShell, run: Callable[[str], Any]) -> None:
    for name in ("triton", "tl", "torch"):
        names(shell).pop(name, None)
    run("%%triton -q\n" + ADD + LAUNCH).raise_error()


def test_the_source_of_a_kernel_can_be_inspected(shell: InteractiveShell, run: Callable[[str], Any]) -> None:
    run("%%triton -q\n" + ADD).raise_error()
    run("import inspect\ntext = inspect.getsource(add_kernel.fn)").raise_error()
    assert names(shell)["text"] == ADD


def test_the_target_magic_sets_and_shows(shell: InteractiveShell) -> None:
    try:
        assert shell.run_line_magic("triton_target", "cuda:80") == "cuda:80"
        assert shell.run_line_magic("triton_target", "") == "cuda:80"
        with pytest.raises(UsageError, match=r"%triton_target\? shows all options"):
            shell.run_line_magic("triton_target", "--list")
    finally:
        shell.run_line_magic("triton_target", "cuda:90")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%%triton --ta", {"--target"}),
        ("%%triton --target hip:gfx9", {"hip:gfx90a", "hip:gfx942", "hip:gfx950"}),
        ("%%triton --show tt", {"ttir", "ttgir"}),
        ("%triton_target cuda:10", {"cuda:100", "cuda:103"}),
    ],
)
def test_options_and_their_values_are_completed(shell: InteractiveShell, text: str, expected: set[str]) -> None:
    with provisionalcompleter():
        found = {completion.text for completion in shell.Completer.completions(text, len(text))}
    assert found == expected


@pytest.mark.slow
def test_completion_goes_on_after_what_the_lab_has_no_part_in(shell: InteractiveShell) -> None:
    """IPython's completer writes into what a matcher returns, and asserts that the next text ends with it."""
    shell.run_cell("import math")
    for text, expected in (("math.sq", "sqrt"), ("math.s", "sin"), ("y = mat", "math"), ("%%triton --ta", "--target")):
        with provisionalcompleter():
            found = {completion.text for completion in shell.Completer.completions(text, len(text))}
        assert any(completion.endswith(expected) for completion in found), text


@pytest.mark.slow
def test_results_show_by_themselves(shown: Callable[[str], Any]) -> None:
    shown("%%triton -q\n" + ADD)
    setup = "import kernellab\nfrom IPython.display import display\n"
    for verb, mark in (("effects", "out_ptr"), ("graph", "store"), ("compile", "cuda:90")):
        call = f"kernellab.current_lab().{verb}(add_kernel, x, y, out, n, BLOCK=64)"
        _, outputs = shown(f"{setup}display({call})")
        assert mark in outputs[0].data["text/plain"]
        assert outputs[0].data["text/html"].startswith("<")


@pytest.mark.slow
def test_unloading_takes_everything_away(shell: InteractiveShell) -> None:
    matchers = len(shell.Completer.custom_matchers)
    shell.run_line_magic("unload_ext", "kernellab")
    try:
        assert "triton" not in shell.magics_manager.magics["cell"]
        assert "triton_target" not in shell.magics_manager.magics["line"]
        assert len(shell.Completer.custom_matchers) == matchers - 1
        with pytest.raises(
            UsageError, match=r"run %load_ext kernellab in a notebook, or write lab = kernellab.Lab\(\)"
        ):
            kernellab.current_lab()
    finally:
        shell.run_line_magic("load_ext", "kernellab")
    assert "triton" in shell.magics_manager.magics["cell"]


@pytest.mark.slow
def test_kernels_show_their_launches_after_the_extension_was_loaded_anew(
    shell: InteractiveShell, run: Callable[[str], Any], shown: Callable[[str], Any]
) -> None:
    run("%%triton -q\n" + ADD + LAUNCH).raise_error()
    shell.run_line_magic("reload_ext", "kernellab")
    _, outputs = shown('%%triton --check "x + y"\n' + LAUNCH)
    assert outputs[0].data["text/plain"].startswith("add_kernel@")
    assert "out_ptr matches x + y" in outputs[0].data["text/plain"]
    assert kernellab.current_lab().kernels["add_kernel"] is names(shell)["add_kernel"]


@pytest.mark.slow
def test_an_edited_kernel_compiles_without_a_launch_for_the_arguments_of_the_last_one(
    run: Callable[[str], Any], shown: Callable[[str], Any]
) -> None:
    kernel = ADD.replace("add_kernel", "remembered")
    run("%%triton -q\n" + kernel + LAUNCH.replace("add_kernel", "remembered")).raise_error()
    _, outputs = shown("%%triton\n" + kernel.replace("x + tl.load", "x * tl.load"))
    text = outputs[0].data["text/plain"]
    assert text.startswith("remembered@2")
    assert "not launched" in text
    assert "divisible by 16" in text


@pytest.mark.slow
def test_a_fully_annotated_kernel_compiles_without_a_launch(shown: Callable[[str], Any]) -> None:
    cell = (
        "%%triton\n@triton.jit\n"
        "def annotated(x_ptr: '*fp32', n: 'i32', scale: 'fp32', BLOCK: tl.constexpr = 64):\n"
        "    offsets = tl.arange(0, BLOCK)\n"
        "    tl.store(x_ptr + offsets, scale, mask=offsets < n)\n"
    )
    text = shown(cell)[1][0].data["text/plain"]
    assert "x_ptr" in text
    assert "written (line 5)" in text

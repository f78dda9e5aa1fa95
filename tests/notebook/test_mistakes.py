"""What a user sees of a mistake: one clear message, a session that goes on, and tensors as they were."""

from __future__ import annotations

import traceback

import pytest
import torch

from kernellab import errors
from tests.notebook.conftest import Notebook

pytestmark = pytest.mark.slow

LAUNCH = "{name}[(2,)](x, out, 100, BLOCK=64)"


@pytest.fixture(autouse=True)
def session_goes_on(notebook: Notebook) -> object:
    """After whatever a test did, the next cell works."""
    yield
    notebook.names.update(x=torch.arange(100.0), out=torch.zeros(100))
    assert notebook.double("survivor", launch=LAUNCH.format(name="survivor"), options="-q").error is None
    assert torch.equal(notebook.names["out"], 2 * torch.arange(100.0))


def test_a_compile_error_is_four_lines_that_point_into_the_cell(notebook: Notebook) -> None:
    ran = notebook.triton("""
@triton.jit
def no_power(x_ptr, out_ptr):
    offsets = tl.arange(0, 100)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets))

no_power[(1,)](x, out)
""")
    assert isinstance(ran.error, errors.CompileError)
    what, where, source, caret = ran.error_lines
    assert what.startswith("CompileError: no_power does not compile for cuda:90: arange's range must be a power of 2.")
    assert where == f"  In[{notebook.cell_number}], line 4"
    assert source == "    offsets = tl.arange(0, 100)"
    assert caret.strip() == "^"
    assert source[caret.index("^")] in "ta("


def test_an_undefined_name_is_named(notebook: Notebook) -> None:
    ran = notebook.triton("@triton.jit\ndef lost(x_ptr):\n    tl.store(x_ptr, nowhere)\n\nlost[(1,)](x)")
    assert isinstance(ran.error, errors.CompileError)
    assert "nowhere" in ran.error_lines[0]
    assert ran.error_lines[1].endswith("line 4")


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("tl.store(x_ptr + offsets, torch.relu(offsets))", "relu is a function of torch"),
        ("tl.store(x_ptr + offsets, plain(offsets))", "decorate it with @triton.jit"),
        ("x_ptr[offsets]", "tl.load(x_ptr + offsets)"),
        ("x_ptr[offsets] = 1.0", "tl.store(out_ptr + offsets, value)"),
        ("tl.store(x_ptr, offsets)", "one single address"),
        ("tl.store(x_ptr + offsets, offsets.to(torch.float16))", "tl.float16"),
        ("tl.store(x_ptr, max(offsets))", "tl.max(x, axis=0)"),
        ("tl.store(x_ptr, offsets.mean())", "a block has no mean"),
        ("tl.store(x_ptr, len(offsets))", "a block has no len()"),
        ("offsets @ offsets", "tl.dot(a, b)"),
        ("print(offsets)", 'print("x", x)'),
        ("for i in offsets: tl.store(x_ptr + i, i)", "range or tl.static_range"),
        ("return tl.load(x_ptr + offsets)", "pass an output tensor"),
    ],
)
def test_what_pytorch_has_and_a_kernel_has_not_is_answered_with_what_to_write(
    notebook: Notebook, statement: str, words: str
) -> None:
    notebook.names["plain"] = lambda block: block
    ran = notebook.triton(f"""
@triton.jit
def tempted(x_ptr):
    offsets = tl.arange(0, 64)
    {statement}

tempted[(1,)](x)
""")
    assert isinstance(ran.error, errors.CompileError)
    assert words in ran.error_lines[0]
    assert ran.error_lines[1] == f"  In[{notebook.cell_number}], line 5"
    assert ran.error_lines[2].strip() == statement


def test_verbose_adds_the_compilers_own_message(notebook: Notebook) -> None:
    body = "@triton.jit\ndef wordy(x_ptr):\n    tl.store(x_ptr, tl.arange(0, 100))\n\nwordy[(1,)](x)"
    short, long = notebook.triton(body), notebook.triton(body, "--verbose")
    assert len(short.error_lines) == 4
    assert long.error_lines[:1] == short.error_lines[:1]
    assert len(long.error_lines) > 5


def test_an_access_out_of_bounds_names_argument_and_line_and_changes_nothing(notebook: Notebook) -> None:
    ran = notebook.triton("""
@triton.jit
def unmasked(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets))

unmasked[(1,)](x, out, BLOCK=128)
""")
    assert isinstance(ran.error, errors.OutOfBounds)
    assert "x_ptr" in ran.error_lines[0]
    assert "element 100" in ran.error_lines[0]
    assert ran.error_lines[1] == f"  In[{notebook.cell_number}], line 5"
    assert not notebook.names["out"].any()


def test_an_endless_loop_is_stopped(notebook: Notebook) -> None:
    ran = notebook.triton(
        """
@triton.jit
def endless(x_ptr):
    number = 0
    while number >= 0:
        number = number * 1
    tl.store(x_ptr, number)

endless[(1,)](x)
""",
        "--timeout 1",
    )
    assert isinstance(ran.error, errors.WorkerTimeout)
    assert "endless" in str(ran.error)
    assert "1 s" in str(ran.error)
    assert "--timeout" in str(ran.error)


def test_a_check_that_fails_raises_after_the_card(notebook: Notebook) -> None:
    ran = notebook.double("unequal", launch=LAUNCH.format(name="unequal"), options='--check "3 * x"')
    assert isinstance(ran.error, errors.CheckFailed)
    assert "99 of 100" in str(ran.error)
    assert "out_ptr differs from 3 * x" in ran.shown[0]["text/plain"]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ("--target cuda:91", errors.UnknownTarget, "cuda:90"),
        ("--show ptxx", errors.UsageError, "ptx"),
        ('--args "x, (("', errors.UsageError, "--args"),
        ('--args "x, ["', errors.UsageError, "'[' was never closed; write --args \"x, out, n, BLOCK=1024\"."),
        ('--check "x', errors.UsageError, "has a quote that is not closed"),
        ("--timeout -1", errors.UsageError, "--timeout is -1; expected a positive number of seconds."),
        ("-o 5x", errors.UsageError, "--output '5x': expected a name"),
        ('--args "x, out, BLOCK=64"', errors.LaunchError, "without n"),
        ('--args "x, out, 100, BLOCK=64, num_warps=3"', errors.UsageError, "a power of 2; num_warps is 3."),
        ('--check "2 * x"', errors.UsageError, "launches no kernel"),
    ],
)
def test_an_option_that_cannot_be_used_says_why(
    notebook: Notebook, options: str, error: type[errors.KernellabError], words: str
) -> None:
    ran = notebook.double("optioned", options=options)
    assert type(ran.error) is error
    assert words in str(ran.error)


def test_a_check_that_cannot_be_evaluated_says_why(notebook: Notebook) -> None:
    ran = notebook.double("evaluated", launch=LAUNCH.format(name="evaluated"), options='--check "nowhere"')
    assert isinstance(ran.error, errors.UsageError)
    assert "'nowhere' is not defined" in str(ran.error)


def test_a_check_that_is_no_python_shows_one(notebook: Notebook) -> None:
    ran = notebook.double("unreadable", launch=LAUNCH.format(name="unreadable"), options='--check "[x"')
    assert str(ran.error) == "--check '[x' is not valid Python: '[' was never closed; write --check \"x + y\"."


def test_an_option_that_does_not_exist_is_refused(notebook: Notebook) -> None:
    error = notebook.double("unknown_option", options="--no-such-option").error
    assert str(error) == "unrecognized arguments: --no-such-option; %%triton? shows all options."


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("%triton_tune --chek 2*x optioned[(2,)](x, out, 100, BLOCK=64)", "--check"),
        ("%triton_bench --verus f=torch.add optioned[(2,)](x, out, 100, BLOCK=64)", "--versus"),
        ("%triton_export optioned --ass report", "--as"),
        ("%triton_tag optioned --remvoe good", "--remove"),
        ("%%triton --chek 2*x\npass", "--check"),
        ("%%triton --no-insulate\npass", "--no-isolate"),
        ("%%triton --tagret=cuda:80\npass", "--target"),
    ],
)
def test_a_misspelt_option_is_answered_with_the_one_that_was_meant(notebook: Notebook, line: str, option: str) -> None:
    notebook.double("optioned")
    assert f"did you mean {option}?" in str(notebook.run(line).error)


@pytest.mark.parametrize(
    ("launch", "words"),
    [
        ("launched[(2,)](x, out, BLOCK=64)", "without n"),
        ("launched[(2,)](x.numpy(), out, 100, BLOCK=64)", "ndarray"),
        ("launched[(2,)](x.tolist(), out, 100, BLOCK=64)", "torch.as_tensor"),
        ("launched[(-1,)](x, out, 100, BLOCK=64)", "negative"),
        ("launched[(2,)](x, out, 100, BLOCK=64, extra=1)", "extra"),
    ],
)
def test_a_launch_that_cannot_be_made_says_why(notebook: Notebook, launch: str, words: str) -> None:
    notebook.double("launched")
    ran = notebook.run(launch)
    assert isinstance(ran.error, errors.UsageError)
    assert words in str(ran.error)
    assert len(ran.error_lines) <= 4
    assert not notebook.names["out"].any()


def test_a_grid_with_a_zero_launches_nothing_and_says_so(notebook: Notebook) -> None:
    ran = notebook.double("nothing", launch="nothing[(0,)](x, out, 100, BLOCK=64)")
    assert ran.error is None
    assert "nothing was launched" in ran.shown[0]["text/plain"].replace("\n", " ")
    assert not notebook.names["out"].any()


def test_an_empty_launch_does_not_keep_the_one_before_from_being_scaled(notebook: Notebook) -> None:
    notebook.double("scaled", launch=LAUNCH.format(name="scaled"))
    notebook.triton("scaled[(0,)](x, out, 100, BLOCK=64)")
    ran = notebook.run('%triton_bench scaled --over "n=[64, 128]"')
    assert ran.error is None


def test_an_error_of_the_cells_own_python_comes_through_as_itself(notebook: Notebook) -> None:
    ran = notebook.triton("kept = 1\nnever = 1 / 0\nkept = 2")
    assert type(ran.error) is ZeroDivisionError
    assert notebook.names["kept"] == 1


def test_an_error_of_a_grid_function_comes_through_as_itself(notebook: Notebook) -> None:
    ran = notebook.double("bad_grid", launch="bad_grid[lambda meta: (1 // 0,)](x, out, 100, BLOCK=64)")
    assert type(ran.error) is ZeroDivisionError
    assert not [frame for frame in traceback.extract_tb(ran.error.__traceback__) if "contextlib" in frame.filename]


def test_a_kernel_without_its_decorator_is_told_of_it(notebook: Notebook) -> None:
    ran = notebook.triton("def plain(x_ptr):\n    tl.store(x_ptr, 1.0)\n\nplain[(1,)](x)")
    assert type(ran.error) is TypeError
    assert "@triton.jit" in " ".join(ran.error.__notes__)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_tensor_for_a_gpu_that_is_not_there_is_told_of_the_cpu(notebook: Notebook) -> None:
    ran = notebook.triton('y = torch.ones(4, device="cuda")')
    assert isinstance(ran.error, AssertionError | RuntimeError)
    assert "launches run on the CPU" in " ".join(ran.error.__notes__)


def test_an_output_of_whole_numbers_beside_a_reference_of_others_is_named_as_the_cause(notebook: Notebook) -> None:
    notebook.names["out"] = torch.zeros(100, dtype=torch.int32)
    options = '--check "1.5 * x"'
    ran = notebook.double("rounded", launch=LAUNCH.format(name="rounded"), options=options)
    assert isinstance(ran.error, errors.CheckFailed)
    assert "out_ptr is int32, and 1.5 * x is floating-point" in str(ran.error)
    assert "out_ptr is int32, and 1.5 * x is floating-point" in " ".join(ran.shown[0]["text/plain"].split())
    notebook.names["out"] = torch.zeros(100, dtype=torch.int32)
    ran = notebook.double("rounded", launch=LAUNCH.format(name="rounded"), options='--check "3 * x.int()"')
    assert isinstance(ran.error, errors.CheckFailed)
    assert "floating-point" not in str(ran.error)


def test_a_syntax_error_points_into_the_cell(notebook: Notebook) -> None:
    ran = notebook.triton("y = 1\nx = = 3")
    assert isinstance(ran.error, errors.UsageError)
    assert ran.error_lines[1] == f"  In[{notebook.cell_number}], line 3"
    assert ran.error_lines[2].strip() == "x = = 3"


def test_a_misspelt_annotation_of_triton_names_the_right_one(notebook: Notebook) -> None:
    ran = notebook.triton("@triton.jit\ndef misspelt(x_ptr, BLOCK: tl.constexp):\n    pass")
    assert isinstance(ran.error, AttributeError)
    assert ran.error.__notes__ == ["Did you mean tl.constexpr?"]


FAILS = """
@triton.jit
def fails(x_ptr):
    tl.store(x_ptr + tl.arange(0, 100), 0)

fails[(1,)](x)
"""


def test_a_launch_before_an_error_has_its_card(notebook: Notebook) -> None:
    ran = notebook.double("ran_before", launch=LAUNCH.format(name="ran_before") + FAILS)
    assert isinstance(ran.error, errors.CompileError)
    (shown,) = ran.shown
    assert "ran_before@1" in shown["text/plain"]
    assert torch.equal(notebook.names["out"], 2 * torch.arange(100.0))
    assert "fails" not in shown["text/plain"]


def test_a_launch_before_an_error_of_python_has_its_card(notebook: Notebook) -> None:
    ran = notebook.double("ran_first", launch=LAUNCH.format(name="ran_first") + "\nassert 0, 'wrong'")
    assert isinstance(ran.error, AssertionError)
    assert "ran_first@1" in ran.shown[0]["text/plain"]


def test_a_quiet_cell_shows_no_card_before_an_error(notebook: Notebook) -> None:
    ran = notebook.double("ran_quietly", launch=LAUNCH.format(name="ran_quietly") + FAILS, options="-q")
    assert isinstance(ran.error, errors.CompileError)
    assert ran.shown == []

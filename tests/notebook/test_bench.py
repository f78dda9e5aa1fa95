"""Benchmarks from a notebook without a GPU: what the line magic takes, and what it shows."""

from __future__ import annotations

import pytest

from kernellab.benchmark.result import Benchmark
from tests.notebook.conftest import Notebook

BODY = """
@triton.jit
def plus_one(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, 1 + tl.load(x_ptr + offsets, mask=mask), mask=mask)

x = torch.zeros(300)
out = torch.zeros(300)
grid = lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)
plus_one[grid](x, out, 300, BLOCK=64)
"""


@pytest.fixture
def shifting(notebook: Notebook) -> Notebook:
    assert notebook.triton(BODY, "-q").error is None
    return notebook


def bench(notebook: Notebook, line: str) -> Benchmark:
    ran = notebook.run(f"found = %triton_bench {line}")
    assert ran.error is None, ran.error
    found = notebook.names["found"]
    assert isinstance(found, Benchmark)
    return found


@pytest.mark.slow
def test_a_launch_is_swept_with_options_before_or_after_it(shifting: Notebook) -> None:
    launch = "plus_one[grid](x, out, 300, BLOCK=64)"
    options = '--over "num_warps=[2**i for i in range(1, 3)]" --versus "torch=lambda x_ptr: x_ptr + 1" --check'
    for line in (f"{launch} {options}", f"{options} {launch}"):
        frame = bench(shifting, line).frame
        assert frame.num_warps.dropna().tolist() == [2, 4]
        assert frame.implementation.tolist() == ["plus_one", "plus_one", "torch"]
        assert all("outputs agree" in reason for reason in frame.reason)
    assert shifting.names["out"].tolist() == [1.0] * 300


@pytest.mark.slow
def test_a_kept_kernel_alone_is_swept_over_its_recorded_launch(shifting: Notebook) -> None:
    for name in ("plus_one", "plus_one@1"):
        frame = bench(shifting, f'{name} --over "n=[100, 200]" --over "dtype=[torch.float16]"').frame
        assert frame.bytes.tolist() == [400, 800]


@pytest.mark.slow
def test_inputs_formulas_and_conditions_are_expressions(shifting: Notebook) -> None:
    shifting.run("sizes = {'n': [64, 128, 256]}")
    frame = bench(
        shifting,
        '--over sizes --where "n > 64" --inputs "lambda n: dict(x_ptr=torch.ones(n), out_ptr=torch.ones(n), n=n)" '
        '--flops "lambda n: 3 * n" --bytes 1000 plus_one[grid](BLOCK=64)',
    ).frame
    assert frame.flops.tolist() == [384, 768]
    assert frame.bytes.tolist() == [1000, 1000]


@pytest.mark.slow
def test_it_shows_as_text_and_html(shifting: Notebook) -> None:
    found = bench(shifting, 'plus_one --over "n=[100, 200]"')
    shown, _ = shifting.shell.display_formatter.format(found)
    assert str(shown["text/plain"]).startswith("plus_one: 2 points of n; compiled in")
    assert "<table" in str(shown["text/html"])


def test_a_launch_in_quotes_may_hold_what_looks_like_an_option(shifting: Notebook) -> None:
    frame = bench(shifting, '"plus_one[(5,)](x, out, -300, BLOCK=64)" --over "num_warps=[2]"').frame
    assert frame.num_warps.tolist() == [2]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "There is no kernel"),
        ("plus_one", '--over is missing: a benchmark needs sizes to sweep, such as --over "n=[1024, 2048]"'),
        ('plus_one --over "n=[1, absent]"', "name 'absent' is not defined"),
        ("plus_one --over 5", "--over is '5'; expected names with their values"),
        (
            'plus_one --over "n=["',
            "--over 'n=[' is not valid Python: '[' was never closed; write --over \"n=[1024, 2048]\".",
        ),
        ('plus_one --over "n=[1], m=("', "--over 'n=[1], m=(' is not valid Python: invalid syntax; write --over"),
        ('plus_one --over "n=[1]" --versus "torch=lambda x:"', 'write --versus "torch=lambda x: x + 1".'),
        ('plus_one --over "n=[1]" --versus plus_one', '--versus "torch=lambda x: x + 1".'),
        (
            'plus_one --over "n=[1]" --inputs "lambda n: ("',
            "--inputs 'lambda n: (' is not valid Python: '(' was never closed",
        ),
        ('plus_one --over "n=[1]" --inputs 5', "inputs is 5; expected a function of swept names"),
        ('plus_one --over "n=[1]" --bytes "8 *"', 'write --bytes "lambda n: 8 * n".'),
        ('plus_one --over "n=[1]" --rounds 0', "--rounds is 0; expected a positive integer"),
        ('plus_one --over "n=[1]" --timeout -1', "--timeout is -1; expected a positive number of seconds"),
        ('plus_one --over "n=[1, 2]', "has a quote that is not closed"),
        ("plus_one --over n=[1, 2]", "values with spaces, and launches with negative numbers, go in quotes"),
        ('plus_one[grid](x, --over "n=[1]"', "'plus_one[grid](x,' is not valid Python: '(' was never closed"),
        ('nothing_known --over "n=[5]"', "No kernel is called 'nothing_known'"),
        ('plus_one[grid](x, out, 300, BLOCK=64) --over "m=[5]"', "over sweeps 'm'"),
    ],
)
def test_what_cannot_be_measured_is_refused(shifting: Notebook, line: str, message: str) -> None:
    ran = shifting.run(f"%triton_bench {line}")
    assert message in ran.error_lines[0]

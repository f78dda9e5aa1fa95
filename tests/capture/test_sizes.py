"""Programs at sizes that were not recorded: each gives what the code gives, or says which guard does not hold."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import triton

import kernellab
from kernellab.capture.program import Program
from kernellab.errors import UsageError
from tests import samples
from tests.capture import kernels
from tests.capture.kernels import scaled
from tests.capture.test_program import accumulate_kernel, shifted_kernel
from tests.export.exporting import run_files
from tests.tables import every

Body = Callable[..., Any]
Inputs = dict[str, torch.Tensor]


def recorded(lab: kernellab.Lab, body: Body, given: Inputs) -> Program:
    """Record a body that returns one tensor."""
    x, z = given["x"], given.get("z")
    with lab.capture(dynamic=True) as program:
        program.returns(body(lab, x) if z is None else body(lab, x, z))
    return program


def is_right(lab: kernellab.Lab, program: Program, body: Body, given: Inputs) -> None:
    """Require that a program does with inputs what a body does, changes of inputs included, also in functional form."""
    wanted = {name: tensor.clone() for name, tensor in given.items()}
    expected = body(lab, **wanted)
    kept = {name: given[name] for name in program.inputs}
    found = next(iter(program.functionalise().run(**{n: t.clone() for n, t in kept.items()}).values()))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(next(iter(program.run(**kept).values())), expected, rtol=1e-4, atol=1e-4)
    for name, tensor in kept.items():
        torch.testing.assert_close(tensor, wanted[name])


def vector(n: int) -> Inputs:
    return {"x": torch.linspace(-2, 3, n)}


def pair(n: int) -> Inputs:
    return {"x": torch.linspace(-2, 3, n), "z": torch.linspace(1, 2, n)}


def matrix(n: int) -> Inputs:
    return {"x": torch.linspace(-2, 3, n * 6).reshape(n, 6)}


def launched(lab: kernellab.Lab, x: Any) -> Any:
    return scaled(lab, x, torch.empty_like(x)) * 2


def views(lab: kernellab.Lab, x: Any) -> Any:
    buffer = torch.zeros(4, x.shape[0])
    row, column = buffer[1], buffer[:, 1]
    scaled(lab, x, row)
    buffer.mul_(2)
    return buffer.sum(0) + column.sum()


def halves(lab: kernellab.Lab, x: Any) -> Any:
    n = x.shape[0] // 2
    scaled(lab, x[n : 2 * n], x[:n])
    return x + 1


def accumulated(lab: kernellab.Lab, x: Any, z: Any) -> Any:
    n = x.numel()
    for _ in range(2):
        lab.bind(accumulate_kernel)[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, z, n, BLOCK=128)
    return z * 1


def shifted(lab: kernellab.Lab, x: Any) -> Any:
    y, n = x.clone(), x.numel()
    lab.bind(shifted_kernel)[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](y, y, n, BLOCK=128)
    return y


def in_place(lab: kernellab.Lab, x: Any) -> Any:
    y = x.clone()
    y.unsqueeze_(0).transpose_(0, 1)
    y.add_(1)
    x.mul_(2)
    out = torch.empty(0)
    torch.mm(y, y.t(), out=out)
    top, where = out.max(1)
    return top + where


def tuples(lab: kernellab.Lab, x: Any, z: Any) -> Any:
    out = torch.empty_like(x)
    lab.bind(samples.sum_of_pair)[(1,)]((x, z), out, BLOCK=64)
    return out


def tuned(lab: kernellab.Lab, x: Any) -> Any:
    out = torch.empty_like(x)
    lab.bind(samples.tuned_kernel)[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
    return out


def trained(lab: kernellab.Lab, x: Any) -> Any:
    w = torch.ones(6, 2, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.1)
    loss = (x @ w).square().mean()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return w.detach() * 1


def gradient(lab: kernellab.Lab, x: Any) -> Any:
    x = x.detach().requires_grad_()
    (x * x / x.shape[0]).sum().backward()
    return x.grad


def normed(lab: kernellab.Lab, x: Any) -> Any:
    norm = torch.nn.BatchNorm1d(6)
    with torch.no_grad():
        return norm(x) * norm.running_mean


def attended(lab: kernellab.Lab, x: Any) -> Any:
    y = x.reshape(1, 1, x.shape[0], 6)
    return torch.nn.functional.scaled_dot_product_attention(y, y, y)


def out_variant(lab: kernellab.Lab, x: Any) -> Any:
    out = torch.empty(x.shape)
    torch.mul(x, 2, out=out)
    return torch.add(out, 1, out=out)


def changed_view(lab: kernellab.Lab, x: Any) -> Any:
    n = x.shape[0]
    y = x.clone()
    y[n // 4 : n // 2].mul_(3)
    y[: n // 4 * 4].view(4, n // 4)[:, 2] = 1
    y[: n // 2 * 2 : 2].copy_(x[1::2])
    return y


def scattered(lab: kernellab.Lab, x: Any) -> Any:
    y, half = torch.zeros(x.shape[0]), x.shape[0] // 2
    y.index_put_((torch.arange(half),), x[:half])
    y[x > 5] = -1.0
    return y.masked_fill_(y < 0, 2.0)


def through_data(lab: kernellab.Lab, x: Any) -> Any:
    y = x.clone()
    y.data.add_(3)
    y.detach().mul_(2)
    return y + 1


def strided(lab: kernellab.Lab, x: Any) -> Any:
    return x.t().contiguous().sum(0) * x.stride(0) + x.size(0)


def selected(lab: kernellab.Lab, x: Any) -> Any:
    return scaled(lab, x[x > 0], torch.empty_like(x[x > 0])).sum() + torch.nonzero(x > 0).shape[0]


def branched(lab: kernellab.Lab, x: Any) -> Any:
    return x * 2 if x.shape[0] > 20 else x * 3


def linear(lab: kernellab.Lab, x: Any) -> Any:
    with torch.no_grad():
        return torch.nn.functional.linear(x, torch.ones(3, 6), torch.zeros(3)).softmax(-1)


def concatenated(lab: kernellab.Lab, x: Any, z: Any) -> Any:
    both = torch.cat([x, z, x[: x.shape[0] // 3]])
    first, second = both.split([x.shape[0], both.shape[0] - x.shape[0]])
    return torch.stack([first, second[: x.shape[0]]]).amax(0)


PROGRAMS: list[tuple[Body, Callable[[int], Inputs], tuple[int, int, int, int]]] = [
    (launched, vector, (100, 60, 300, 1000)),
    (views, vector, (100, 60, 300, 129)),
    (halves, vector, (100, 60, 301, 129)),
    (accumulated, pair, (100, 60, 300, 1000)),
    (shifted, vector, (100, 60, 300, 1000)),
    (in_place, vector, (20, 8, 33, 64)),
    (tuned, vector, (300, 250, 65, 1001)),
    (trained, matrix, (8, 9, 30, 64)),
    (gradient, vector, (20, 8, 33, 64)),
    (normed, matrix, (8, 9, 30, 64)),
    (attended, matrix, (8, 9, 30, 64)),
    (out_variant, vector, (20, 8, 33, 64)),
    (changed_view, vector, (100, 60, 301, 129)),
    (scattered, vector, (100, 60, 301, 129)),
    (through_data, vector, (100, 60, 301, 129)),
    (strided, matrix, (8, 9, 30, 64)),
    (selected, vector, (100, 60, 301, 129)),
    (branched, vector, (100, 21, 301, 129)),
    (linear, matrix, (8, 9, 30, 64)),
    (concatenated, pair, (100, 60, 301, 129)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("body", "make", "sizes"), every(3, PROGRAMS), ids=[body.__name__ for body, _, _ in PROGRAMS])
def test_a_program_gives_at_other_sizes_what_its_code_gives(
    lab: kernellab.Lab, body: Body, make: Callable[[int], Inputs], sizes: tuple[int, ...]
) -> None:
    program = recorded(lab, body, make(sizes[0]))
    for size in sizes[1:]:
        is_right(lab, program, body, make(size))


SIZES = [(30, 33, 24), (64, 64, 17), (17, 50, 32)]


@pytest.mark.slow
@pytest.mark.parametrize("sizes", SIZES)
def test_attention_from_parts_runs_at_other_sizes(lab: kernellab.Lab, sizes: tuple[int, int, int]) -> None:
    attend = kernels.attention(lab)
    q, k, v, weight, bias = kernels.inputs().values()
    with lab.capture(dynamic=True) as program:
        program.returns(attend(q, k, v, weight, bias))
    assert len(program.tape.launches) == 5
    given = kernels.inputs(rows=sizes[0], columns=sizes[1], width=sizes[2])
    expected = kernels.reference(**given)
    for each in (program, program.functionalise()):
        torch.testing.assert_close(each(*given.values()), expected, rtol=1e-4, atol=1e-4)


def refused(program: Program, message: str, **inputs: Any) -> None:
    """Require that a program and its graph refuse inputs."""
    with pytest.raises(UsageError, match=message):
        program.run(**inputs)
    with pytest.raises(UsageError, match=message):
        program.graph(*inputs.values())


@pytest.mark.slow
def test_a_block_that_is_a_power_of_two_above_a_size_holds_up_to_that(lab: kernellab.Lab) -> None:
    row_max = lab.bind(kernels.row_max_kernel)
    x = torch.randn(3, 40)
    with lab.capture(dynamic=True) as program:
        out = x.new_empty(x.shape[0])
        row_max[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    for columns in (33, 64):
        given = torch.randn(5, columns)
        torch.testing.assert_close(program(given), given.amax(1))
    refused(program, r"x.shape\[1\] <= 64 \(test_sizes.py, line \d+: row_max_kernel was compiled", x=torch.randn(3, 65))
    refused(program, r"x.shape\[1\] > 32", x=torch.randn(3, 32))


@pytest.mark.slow
def test_a_number_from_outside_the_block_fixes_the_sizes_that_it_may_stand_for(lab: kernellab.Lab) -> None:
    x = torch.arange(100.0)
    n = x.numel()
    with lab.capture(dynamic=True) as program:
        out = torch.empty_like(x)
        lab.bind(samples.scale_kernel)[(triton.cdiv(n, 64),)](x, out, n, BLOCK=64)
    torch.testing.assert_close(program(2 * x), 6 * x + 3)
    words = r"x.shape\[0\] == 100 \(test_sizes.py, line \d+: scale_kernel takes 2, 100, which was not computed from"
    refused(program, words, x=torch.ones(200))


@pytest.mark.slow
def test_a_grid_of_constants_holds_for_as_many_blocks(lab: kernellab.Lab) -> None:
    x = torch.arange(100.0)
    with lab.capture(dynamic=True) as program:
        out = torch.empty_like(x)
        lab.bind(samples.scale_kernel)[(1,)](x, out, x.numel(), BLOCK=128)
    torch.testing.assert_close(program(torch.ones(128)), torch.full((128,), 6.0))
    refused(program, r"x.shape\[0\] <= 128 .*the grid of scale_kernel is \(1, 1, 1\)", x=torch.ones(129))


@pytest.mark.slow
def test_a_block_alone_fixes_the_sizes_of_what_it_covers(lab: kernellab.Lab) -> None:
    a, b = torch.arange(64.0), torch.ones(64)
    with lab.capture(dynamic=True) as program:
        out = torch.empty_like(a)
        lab.bind(samples.sum_of_pair)[(1,)]((a, b), out, BLOCK=64)
    torch.testing.assert_close(program(b, b), 2 * b)
    refused(program, r"[ab].shape\[0\] == 64", a=torch.ones(70), b=torch.ones(70))


@pytest.mark.slow
def test_what_heuristics_decide_by_sizes_is_a_guard(lab: kernellab.Lab) -> None:
    even = triton.heuristics({"EVEN": lambda arguments: arguments["n"] % arguments["BLOCK"] == 0})
    kernel = lab.bind(even(samples.tuned_kernel.fn.fn))
    x = torch.arange(128.0)
    with lab.capture(dynamic=True) as program:
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
    torch.testing.assert_close(program(torch.ones(192)), torch.ones(192))
    refused(program, r"the heuristic of EVEN depends on it", x=torch.ones(100))


BRANCHES: list[tuple[str, Body]] = [
    (r"x.shape\[0\] > 20", lambda x: x * 2 if x.shape[0] > 20 else x),
    (r"x.shape\[0\] == 100", lambda x: sum(x[i] for i in range(x.shape[0]))),
    (r"x.shape\[0\] == 100", lambda x: x * int(x.shape[0])),
    (r"x.shape\[0\] == 100", lambda x: x * len(x)),
    (r"x.shape\[0\] == 100 .*made of it as data", lambda x: x * torch.tensor([x.shape[0]])),
    (r"x.shape\[0\] == 100", lambda x: x * x.shape[0] ** 0.5),
    (r"x.shape\[0\] % 4", lambda x: x.view(-1, 4).sum(0)),
    (r"x.shape\[0\] == 100", lambda x: x + torch.ones(100)),
    (r"x.shape\[0\] >= 2", lambda x: x + 1),
]


@pytest.mark.slow
def test_a_power_of_two_above_a_size_of_a_long_name_is_a_guard_that_a_run_can_ask(lab: kernellab.Lab) -> None:
    input_of_a_name_that_is_long = torch.arange(100.0)
    with lab.capture(dynamic=True) as program:
        rows = input_of_a_name_that_is_long.shape[0]
        program.returns(input_of_a_name_that_is_long * int(triton.next_power_of_2(rows)))
    torch.testing.assert_close(program(torch.ones(70)), torch.full((70,), 128.0))
    refused(program, "holds? for these sizes", input_of_a_name_that_is_long=torch.ones(130))


@pytest.mark.parametrize(("guard", "body"), BRANCHES, ids=range(len(BRANCHES)))
def test_what_python_decides_by_a_size_is_a_guard(lab: kernellab.Lab, guard: str, body: Body) -> None:
    x = torch.arange(100.0)
    with lab.capture(dynamic=True) as program:
        program.returns(body(x))
    torch.testing.assert_close(program(x * 2), body(x * 2))
    refused(program, guard, x=torch.ones(1))
    assert any("test_sizes.py, line" in each or ">= 2" in each for each in program.guards)


def test_sizes_that_were_equal_are_not_taken_for_each_other(lab: kernellab.Lab) -> None:
    x, z = torch.arange(100.0), torch.ones(100)
    with lab.capture(dynamic=True) as program:
        both = torch.cat([x, z]) * x.shape[0] + z.shape[0]
    found = program.only("both")(torch.ones(7), torch.ones(9))
    torch.testing.assert_close(found, torch.full((16,), 7.0 + 9.0))
    assert both.shape == (200,)
    with lab.capture(dynamic=True) as added:
        total = x + z
    refused(added, r"x.shape\[0\].*z.shape\[0\]", x=torch.ones(7), z=torch.ones(9))
    assert total.shape == (100,)


def test_inputs_that_share_memory_keep_their_sizes(lab: kernellab.Lab) -> None:
    base = torch.arange(300.0)
    left, right = base[:100], base[100:200]
    with lab.capture(dynamic=True) as program:
        scaled(lab, right, left)
        base.add_(0)
    assert program.inputs == ("base",)
    with pytest.raises(UsageError, match=r"the shape \(200,\); the program was recorded with \(300,\)"):
        program(torch.ones(200))


def test_strides_of_inputs_are_sizes_too(lab: kernellab.Lab) -> None:
    x = torch.randn(8, 40)[:, :20]
    with lab.capture(dynamic=True) as program:
        total = x.sum(0) * x.stride(0)
    given = torch.randn(9, 50)[:, :30]
    torch.testing.assert_close(program(given), given.sum(0) * 50)
    assert total.shape == (20,)
    refused(program, r"x.stride\(0\) >= 2", x=torch.randn(5, 9).t())


def test_an_operator_without_a_fake_implementation_fixes_what_it_takes(lab: kernellab.Lab) -> None:
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    known = torch.library.custom_op("kernellab_tests::sized_double", doubled, mutates_args=())
    x = torch.arange(100.0)
    with lab.capture(dynamic=True) as program:
        y = known(x) + 1
    refused(program, r"x.shape\[0\] == 100 .*sized_double", x=torch.ones(60))
    known.register_fake(torch.empty_like)
    with lab.capture(dynamic=True) as program:
        y = known(x) + 1
    torch.testing.assert_close(program.only("y")(torch.ones(60)), torch.full((60,), 3.0))
    assert y.shape == (100,)


def test_a_size_of_data_is_measured_at_each_run(lab: kernellab.Lab) -> None:
    x = torch.arange(-3.0, 5.0)
    with lab.capture(dynamic=True) as program:
        positive = x[x > 0]
        padded = torch.cat([positive, torch.zeros(10 - positive.shape[0])])
    for given in (torch.ones(8), torch.arange(-9.0, 3.0)):
        chosen = given[given > 0]
        torch.testing.assert_close(program.only("padded")(given), torch.cat([chosen, torch.zeros(10 - chosen.numel())]))
    assert padded.shape == (10,)
    with pytest.raises(UsageError, match="positive_size_0"):
        program(torch.ones(12))


def test_sizes_in_a_block_are_what_python_computes_with(lab: kernellab.Lab) -> None:
    x = torch.arange(100.0)
    with lab.capture(dynamic=True):
        n = x.shape[0]
        assert n == 100
        assert list(range(n))[-1] == 99
        assert x.shape == (100,)
        assert [1, 2, 3][x.dim()] == 2
    assert type(x.shape[0]) is int


def exported(program: Program, path: Path) -> dict[str, Any]:
    """Export a program; return the names of its module, which runs in this process with launches of the offline lab."""
    program.export(path)
    text = path.read_text()
    path.write_text(text.replace('os.environ.get("TRITON_INTERPRET") == "1"', "True"))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return vars(module)


@pytest.mark.slow
@pytest.mark.parametrize("functional", [False, True])
@pytest.mark.parametrize(("body", "make", "sizes"), every(3, PROGRAMS), ids=[body.__name__ for body, _, _ in PROGRAMS])
def test_a_module_gives_at_other_sizes_what_its_code_gives(
    lab: kernellab.Lab,
    body: Body,
    make: Callable[[int], Inputs],
    sizes: tuple[int, ...],
    functional: bool,
    tmp_path: Path,
) -> None:
    program = recorded(lab, body, make(sizes[0]))
    names = exported(program.functionalise() if functional else program, tmp_path / "exported.py")
    for size in sizes[1:]:
        given = make(size)
        expected = body(lab, **{name: tensor.clone() for name, tensor in given.items()})
        found = names["run"](**{name: given[name] for name in program.inputs})
        torch.testing.assert_close(next(iter(found.values())), expected, rtol=1e-4, atol=1e-4)
    if program.inputs:
        with pytest.raises(ValueError, match="does not hold for these sizes: it requires"):
            names["run"](**{name: tensor[:1] for name, tensor in make(sizes[0]).items() if name in program.inputs})


ALONE = """\
import sys, torch
sys.path.insert(0, {folder!r})
import attention
for given, wanted in torch.load({tensors!r}):
    torch.testing.assert_close(attention.run(**given)["out"], wanted, rtol=1e-4, atol=1e-4)
print(attention.check(), "and at other sizes")
"""


@pytest.mark.slow
def test_a_module_runs_alone_at_other_sizes(lab: kernellab.Lab, tmp_path: Path) -> None:
    attend = kernels.attention(lab)
    q, k, v, weight, bias = kernels.inputs().values()
    with lab.capture(dynamic=True) as program:
        out = program.returns(attend(q, k, v, weight, bias))
    assert out.shape == (48, 24)
    program.functionalise().export(tmp_path / "attention.py")
    cases = [kernels.inputs(rows=rows, columns=columns, width=width) for rows, columns, width in SIZES]
    torch.save([(given, kernels.reference(**given)) for given in cases], tmp_path / "tensors.pt")
    (tmp_path / "alone.py").write_text(ALONE.format(folder=str(tmp_path), tensors=str(tmp_path / "tensors.pt")))
    result = run_files(tmp_path / "alone.py")
    assert "and at other sizes" in result.stdout, result.stderr


def mixture(block: torch.nn.Module, x: Any) -> Any:
    """Return what two of four experts make of each row: how many rows an expert gets, data decides."""
    rows = x.reshape(-1, 16)
    weights, chosen = torch.softmax(block(rows)[:, :4], -1).topk(2, -1)
    out = torch.zeros_like(rows)
    for expert in range(4):
        taken, slot = torch.where(chosen == expert)
        out.index_add_(0, taken, rows[taken] * weights[taken, slot][:, None] * (expert + 1))
    return out.view_as(x)


def rotated(block: torch.nn.Module, x: Any) -> Any:
    """Return a rotary embedding."""
    length, depth = x.shape[1:]
    angles = torch.arange(length, dtype=torch.float32)[:, None] / 10000 ** (torch.arange(0, depth, 2) / depth)
    left, right = x[..., ::2], x[..., 1::2]
    parts = [left * angles.cos() - right * angles.sin(), left * angles.sin() + right * angles.cos()]
    return block(torch.stack(parts, -1).flatten(-2))


def causal(block: torch.nn.Module, x: Any) -> Any:
    batch, length, depth = x.shape
    heads = block(x).view(batch, length, 4, depth // 4).transpose(1, 2)
    found = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
    return found.transpose(1, 2).reshape(batch, length, depth)


def applied(block: torch.nn.Module, x: Any) -> Any:
    return block(x)


LAYERS: dict[str, tuple[Callable[[], torch.nn.Module], Callable[..., Any]]] = {
    "mixture": (lambda: torch.nn.Linear(16, 16), mixture),
    "rotated": (lambda: torch.nn.Linear(16, 16), rotated),
    "causal attention": (lambda: torch.nn.Linear(16, 16), causal),
    "layer norm": (lambda: torch.nn.LayerNorm(16), applied),
    "transformer": (lambda: torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval(), applied),
}


@pytest.mark.slow
@pytest.mark.parametrize(("make", "body"), LAYERS.values(), ids=LAYERS.keys())
def test_a_layer_of_a_model_runs_at_other_sizes(lab: kernellab.Lab, make: Any, body: Any) -> None:
    torch.manual_seed(0)
    block, x = make(), torch.randn(3, 10, 16)
    own = {f"block_{name.replace('.', '_')}": parameter for name, parameter in block.named_parameters()}
    with torch.no_grad(), lab.capture(dynamic=True) as program:
        program.returns(body(block, x))
    for shape in ((2, 7, 16), (5, 12, 16), (3, 33, 16)):
        given = torch.randn(shape)
        with torch.no_grad():
            expected = body(block, given)
        inputs = {name: given if name == "x" else own[name] for name in program.inputs}
        torch.testing.assert_close(next(iter(program.run(**inputs).values())), expected, rtol=1e-4, atol=1e-4)


def written_by_numpy(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.numpy()[0] = 50.0
    return y + 1


def test_what_numpy_writes_in_a_dynamic_block_is_seen(lab: kernellab.Lab) -> None:
    x = torch.arange(100.0)
    with pytest.raises(UsageError, match=r"by numpy\(\)"), lab.capture(dynamic=True):
        written_by_numpy(x)


@pytest.mark.slow
def test_a_heuristic_that_takes_an_option_is_asked_with_it(lab: kernellab.Lab) -> None:
    blocks = triton.heuristics({"BLOCK": lambda given: 16 * given["num_warps"]})
    even = triton.heuristics({"EVEN": lambda given: given["n"] % given["BLOCK"] == 0})
    kernel = lab.bind(blocks(even(samples.tuned_kernel.fn.fn)))
    x = torch.arange(100.0)
    with lab.capture(dynamic=True) as program:
        out = torch.empty_like(x)
        kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel(), num_warps=4)
    torch.testing.assert_close(program(torch.ones(300)), torch.ones(300))
    assert program.plan.peak_bytes == 400


def test_vmap_and_gradients_of_functions_fix_sizes(lab: kernellab.Lab) -> None:
    def body(_: Any, x: Any) -> Any:
        return torch.func.vmap(lambda row: row * 2)(x) + torch.func.grad(lambda each: (each * each).sum())(x)

    program = recorded(lab, body, matrix(7))
    is_right(lab, program, body, matrix(7))
    with pytest.raises(UsageError, match=r"x.shape\[0\] == 7"):
        program(*matrix(8).values())

"""Cheats in the code around the kernels: data read by the host, answers kept, torch in place of a kernel, chance."""

# The texts of candidates are long lines, and short files joined.
# ruff: noqa: E501

from __future__ import annotations

from tests.judge.cheats.cheat import HEAD, REFUSED, WRONG, WRONG_OR_REFUSED, Cheat, changed, cheat
from tests.judge.cheats.right import SCALE, SOFTMAX, SUM

_DATA = "host_reads_data constant_from_data host_code torch_operation unknown_operation"
_LIBRARY = "torch_operation no_kernel unknown_operation host_code"


def _solving(body: str, before: str = "") -> str:
    """Return a candidate without kernels; ``body`` are the lines of ``solve(x)``."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return f"{HEAD}\n{before}\n\ndef solve(x):\n{lines}\n"


def _data(name: str, body: str, rules: str = _DATA, verdicts: frozenset[str] = REFUSED, before: str = "") -> Cheat:
    return cheat(name, "torch", "host code from data", verdicts, rules, _solving(body, before))


def _library(name: str, body: str, rules: str = _LIBRARY, before: str = "") -> Cheat:
    return cheat(name, "softmax", "library in place of a kernel", REFUSED, rules, _solving(body, before))


_FROM_DATA = (
    _data(
        "a_branch_on_a_sum",
        "if x.sum().item() > 0:  # here\n    return x / (1 + x.abs().amax(1, keepdim=True))\nreturn x * 1",
    ),
    _data("a_branch_on_a_tensor", "return x / (1 + x.abs().amax(1, keepdim=True)) if (x > 0).any() else x * 1  # here"),
    _data("a_list_of_values", "largest = max(map(abs, x.flatten().tolist()))  # here\nreturn x / (1 + largest)"),
    _data(
        "a_row_by_row_list",
        "rows = [row / (1 + max(map(abs, row.tolist()))) for row in x]  # here\nreturn torch.stack(rows)",
    ),
    _data("values_by_numpy", "import numpy\nreturn x / (1 + float(numpy.abs(x.numpy()).max()))  # here"),
    _data(
        "a_result_computed_by_numpy",
        "import numpy\na = x.numpy()\nreturn torch.from_numpy(a / (1 + numpy.abs(a).max(1, keepdims=True)))",
    ),
    _data(
        "values_by_dlpack",
        "import numpy\na = numpy.from_dlpack(x)\nreturn torch.tensor((a / (1 + abs(a).max(1, keepdims=True))).tolist())",
    ),
    _data(
        "values_by_an_address",
        "import ctypes\n"
        "n = x.numel()\n"
        "held = (ctypes.c_float * n).from_address(x.data_ptr())\n"
        "rows = torch.tensor(list(held)).view(x.shape)\n"
        "return rows / (1 + rows.abs().amax(1, keepdim=True))",
    ),
    _data(
        "one_value_by_an_address",
        "import ctypes\n"
        "first = ctypes.c_float.from_address(x.data_ptr()).value\n"
        "return x / (1 + x.abs().amax(1, keepdim=True)) + (first - first * 1.0000001)",
    ),
    _data(
        "a_result_written_to_an_address",
        "import ctypes\n"
        "out = torch.empty_like(x)\n"
        "for row in range(x.shape[0]):\n"
        "    held = (ctypes.c_float * x.shape[1]).from_address(x.data_ptr() + 4 * row * x.shape[1])\n"
        "    made = (ctypes.c_float * x.shape[1]).from_address(out.data_ptr() + 4 * row * x.shape[1])\n"
        "    for column in range(x.shape[1]):\n"
        "        made[column] = held[column] / (1 + max(map(abs, held)))\n"
        "return out",
        rules=f"{_DATA} values memory_left_over",
        verdicts=WRONG_OR_REFUSED,
    ),
    _data(
        "a_comparison_of_tensors",
        "import torch\nif torch.equal(x, x.abs()):  # here\n    return x / 2\nreturn x / (1 + x.abs().amax(1, keepdim=True))",
    ),
    _data(
        "a_pickle_of_the_input",
        "import pickle\nheld = pickle.loads(pickle.dumps(x))\nreturn held / (1 + held.abs().amax(1, keepdim=True))",
    ),
    _data(
        "the_text_of_a_tensor",
        "return x / (1 + x.abs().amax(1, keepdim=True)) + len(str(x)) * 1e-3 - 2",
        f"{_DATA} values",
        WRONG_OR_REFUSED,
    ),
    _data(
        "the_bytes_of_a_storage",
        "held = bytes(x.untyped_storage())\nreturn x / (1 + x.abs().amax(1, keepdim=True)) * (1 + 1e-3 * held[0])",
        f"{_DATA} values",
        WRONG_OR_REFUSED,
    ),
    _data(
        "a_size_from_data",
        "positive = x[x > 0]\nreturn x / (1 + x.abs().amax(1, keepdim=True)) + 1e-9 * positive.numel()",
        f"{_DATA} shape_from_data",
    ),
    _data(
        "the_time_of_day", "import time\nreturn x / (1 + x.abs().amax(1, keepdim=True)) * (1 + 1e-9 * time.time_ns())"
    ),
    _data(
        "random_numbers_of_torch",
        "return x / (1 + x.abs().amax(1, keepdim=True)) + 1e-9 * torch.rand_like(x)  # here",
        "random",
    ),
    _data(
        "dropout_of_nothing",
        "return torch.dropout(x / (1 + x.abs().amax(1, keepdim=True)), 0.001, True)  # here",
        "random",
    ),
    _data(
        "a_bernoulli_in_place",
        "out = x / (1 + x.abs().amax(1, keepdim=True))\nreturn out * torch.empty_like(out).bernoulli_(0.999)  # here",
        "random",
    ),
    _data(
        "a_lazy_subclass",
        "return Lazy(x)",
        f"{_DATA} values aliased_output outputs",
        WRONG_OR_REFUSED,
        before=(
            "class Lazy(torch.Tensor):\n"
            "    @staticmethod\n"
            "    def __new__(cls, x):\n"
            "        return torch.Tensor._make_subclass(cls, x)\n\n"
            "    @classmethod\n"
            "    def __torch_function__(cls, function, types, args=(), kwargs=None):\n"
            "        args = [a.as_subclass(torch.Tensor) / 2 if isinstance(a, Lazy) else a for a in args]\n"
            "        return function(*args, **(kwargs or {}))\n"
        ),
    ),
    _data(
        "an_output_with_replaced_methods",
        "out = torch.empty_like(x)\nout.cpu = lambda: x / (1 + x.abs().amax(1, keepdim=True))\nreturn out",
        "values memory_left_over",
        WRONG,
    ),
    _data(
        "a_thread_that_goes_on",
        "import threading\nout = torch.empty_like(x)\nthreading.Thread(target=lambda: out.copy_(x / (1 + x.abs().amax(1, keepdim=True)))).start()\nreturn out",
        f"{_DATA} values memory_left_over",
        WRONG_OR_REFUSED,
    ),
    _data(
        "a_thread_that_is_joined",
        "import threading\nout = torch.empty_like(x)\nother = threading.Thread(target=lambda: out.copy_(x / (1 + x.abs().amax(1, keepdim=True))))\nother.start()\nother.join()\nreturn out",
        f"{_DATA} values memory_left_over",
        WRONG_OR_REFUSED,
    ),
    _data(
        "replaced_memory",
        "out = torch.empty_like(x)\nout.data = x\nreturn out",
        f"{_DATA} values aliased_output",
        WRONG_OR_REFUSED,
    ),
    _data("an_input_resized", "x.resize_(3)\nreturn x", f"{_DATA} values outputs aliased_output", WRONG_OR_REFUSED),
    _data(
        "memory_of_a_file",
        'return torch.from_file("/etc/hostname", size=1, dtype=torch.uint8).float() * 0 + x',
        f"{_DATA} constant_from_data values",
    ),
)

_KEPT = (
    _data(
        "answers_by_identity",
        "if id(x) not in KEPT:\n    KEPT[id(x)] = x / (1 + x.abs().amax(1, keepdim=True))\nreturn KEPT[id(x)]",
        f"{_DATA} values",
        WRONG_OR_REFUSED,
        before="KEPT = {}\nid = lambda x: 0",
    ),
    _data(
        "answers_by_shape",
        "if x.shape not in KEPT:\n    KEPT[x.shape] = x / (1 + x.abs().amax(1, keepdim=True))\nreturn KEPT[x.shape]",
        f"{_DATA} values",
        WRONG_OR_REFUSED,
        before="KEPT = {}",
    ),
    _data(
        "answers_by_address",
        "key = x.data_ptr() % 64\nif key not in KEPT:\n    KEPT[key] = x / (1 + x.abs().amax(1, keepdim=True))\nreturn KEPT[key]",
        f"{_DATA} values",
        WRONG_OR_REFUSED,
        before="KEPT = {}",
    ),
    _data(
        "answers_by_content",
        "key = hash(tuple(x.flatten().tolist()[:4]))  # here\nif key not in KEPT:\n    KEPT[key] = x / (1 + x.abs().amax(1, keepdim=True))\nreturn KEPT[key]",
        before="KEPT = {}",
    ),
    _data(
        "answers_by_seed",
        "made = torch.randn(x.shape, generator=torch.Generator().manual_seed(1)) + 0.01\nreturn made / (1 + made.abs().amax(1, keepdim=True))",
        "random values",
    ),
    _data(
        "the_work_of_the_first_call_alone",
        "COUNT.append(1)\nreturn x / (1 + x.abs().amax(1, keepdim=True)) if len(COUNT) == 1 else torch.empty_like(x)",
        f"{_DATA} values memory_left_over",
        before="COUNT = []",
    ),
    _data("answers_kept_at_import", "return KEPT", "host_code", before="KEPT = torch.zeros(8, 64)"),
    _data(
        "a_weight_kept_from_the_first_inputs",
        "if not KEPT:\n    KEPT.append(x.abs().amax(1, keepdim=True))\nreturn x / (1 + KEPT[0])  # here",
        "host_code constant_from_data",
        before="KEPT = []",
    ),
    _data(
        "a_file_between_calls",
        "import os\nif not os.path.exists('kept.pt'):\n    torch.save(x / (1 + x.abs().amax(1, keepdim=True)), 'kept.pt')\nreturn torch.load('kept.pt')",
        f"{_DATA} values no_program malformed",
        WRONG_OR_REFUSED,
    ),
)

_TORCH = (
    _library("torch_by_name", "return torch.softmax(x, 1)  # here"),
    _library("torch_by_another_name", "return getattr(torch, 'soft' + 'max')(x, 1)  # here"),
    _library("torch_by_its_operators", "return torch.ops.aten._softmax(x, 1, False)  # here"),
    _library(
        "torch_by_its_bindings",
        "return torch._C._nn.log_softmax(x, 1).exp() if hasattr(torch._C._nn, 'log_softmax') else torch._C._VariableFunctions.softmax(x, 1)  # here",
    ),
    _library(
        "torch_in_an_operator_of_its_own",
        "twice = torch.library.custom_op('own::softmax', lambda x: torch.softmax(x, 1), mutates_args=())\nreturn torch.ops.own.softmax(x)",
    ),
    _library(
        "torch_behind_an_autograd_function",
        "class Own(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        return torch.softmax(x, 1)  # here\nreturn Own.apply(x)",
    ),
    _library(
        "torch_on_another_stream",
        "with torch.cuda.stream(torch.cuda.Stream()):\n    return torch.softmax(x, 1)  # here",
    ),
    _library(
        "torch_below_the_dispatcher",
        "with torch._C._DisableTorchDispatch():\n    return torch.softmax(x, 1)",
        f"{_LIBRARY} values memory_left_over",
    ),
    _library(
        "torch_redispatched_below_the_modes",
        "from torch.utils._python_dispatch import _disable_current_modes\nwith _disable_current_modes():\n    return torch.softmax(x, 1)",
        f"{_LIBRARY} values memory_left_over constant_from_data",
    ),
    _library("torch_compiled", "return torch.compile(lambda x: torch.softmax(x, 1), backend='eager')(x)"),
    _library(
        "torch_by_autograd",
        "with torch.enable_grad():\n    y = x.detach().requires_grad_()\n    return torch.autograd.grad(torch.logsumexp(y, 1).sum(), y)[0]",
    ),
    _library(
        "torch_in_parts", "e = (x - x.max(1, keepdim=True).values).exp()  # here\nreturn e / e.sum(1, keepdim=True)"
    ),
    _library("torch_as_a_module", "return torch.nn.Softmax(1)(x)  # here"),
    _library(
        "torch_by_a_script",
        "return SCRIPT(x)",
        before="@torch.jit.script\ndef SCRIPT(x):\n    return torch.softmax(x, 1)\n",
    ),
    _library(
        "torch_by_a_library_of_its_own",
        "return torch.ops.cheat.run(x)",
        before=(
            "LIBRARY = torch.library.Library('cheat', 'DEF')\n"
            "LIBRARY.define('run(Tensor x) -> Tensor')\n"
            "LIBRARY.impl('run', lambda x: torch.softmax(x, 1), 'CompositeExplicitAutograd')\n"
        ),
    ),
    _library("torch_by_vmap", "return torch.vmap(lambda row: torch.softmax(row, 0))(x)"),
    _library(
        "torch_in_a_thread",
        "import concurrent.futures as f\nwith f.ThreadPoolExecutor() as pool:\n    return pool.submit(torch.softmax, x, 1).result()",
        f"{_LIBRARY} constant_from_data values",
    ),
    _library(
        "torch_in_a_child",
        "import multiprocessing as m\nwith m.get_context('fork').Pool(1) as pool:\n    return pool.apply(torch.softmax, (x, 1))",
        f"{_LIBRARY} constant_from_data values no_program malformed",
    ),
    cheat(
        "torch_beside_a_kernel_whose_result_is_dropped",
        "softmax",
        "library in place of a kernel",
        REFUSED,
        "torch_operation",
        changed(SOFTMAX, ("    return out", "    return torch.softmax(x, 1)  # here")),
    ),
    cheat(
        "torch_in_front_of_a_kernel_that_copies",
        "softmax",
        "library in place of a kernel",
        REFUSED,
        "torch_operation",
        changed(SOFTMAX, ("    out = torch.empty_like(x)", "    out = torch.softmax(x, 1)  # here")),
    ),
    cheat(
        "torch_in_place_behind_a_kernel",
        "sum",
        "library in place of a kernel",
        REFUSED,
        "torch_operation",
        changed(SUM, ("    return out", "    torch.sum(x, 1, out=out)  # here\n    return out")),
    ),
    cheat(
        "a_product_by_einsum",
        "matmul",
        "library in place of a kernel",
        REFUSED,
        "torch_operation no_kernel",
        f"{HEAD}\n\ndef solve(a, b):\n    return torch.einsum('mk,kn->mn', a, b)  # here\n",
    ),
    cheat(
        "a_product_by_an_operator",
        "matmul",
        "library in place of a kernel",
        REFUSED,
        "torch_operation no_kernel",
        f"{HEAD}\n\ndef solve(a, b):\n    return a @ b  # here\n",
    ),
    cheat(
        "a_number_from_data_as_an_argument",
        "scale",
        "host code from data",
        REFUSED,
        "host_reads_data constant_from_data torch_operation",
        changed(SCALE, ("out, factor, n, x.stride(0)", "out, factor + 0 * (float(x[0]) if n else 0), n, x.stride(0)")),
    ),
    cheat(
        "a_number_of_an_address_as_an_argument",
        "scale",
        "host code from data",
        WRONG_OR_REFUSED,
        "constant_from_data values launch_fails host_code",
        changed(SCALE, ("out, factor, n, x.stride(0)", "out, factor + 1e-4 * (x.data_ptr() % 7919), n, x.stride(0)")),
    ),
)

CANDIDATES: tuple[Cheat, ...] = (*_FROM_DATA, *_KEPT, *_TORCH)

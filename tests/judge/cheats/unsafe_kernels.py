"""Cheats in the text of a kernel: host code, accesses out of bounds, races, false promises."""

# The texts of candidates are long lines, and short files joined.
# ruff: noqa: E501, ISC004

from __future__ import annotations

from tests.judge.cheats.cheat import (
    REFUSED,
    UNSAFE,
    WRONG,
    WRONG_OR_REFUSED,
    WRONG_OR_UNSAFE,
    Cheat,
    changed,
    cheat,
    endless,
)
from tests.judge.cheats.right import GATHER, MATMUL, SCALE, SOFTMAX, SUM

_HOST_RULES = "host_code outside_library unsupported unknown_name too_large"
_IN_BODY = "    mask = offsets < n\n"


def _in_scale(
    name: str, *changes: tuple[str, str], verdicts: frozenset[str] = REFUSED, rules: str = _HOST_RULES
) -> Cheat:
    return cheat(name, "scale", "host code in a kernel", verdicts, rules, changed(SCALE, *changes))


def _before(line: str) -> tuple[str, str]:
    return _IN_BODY, f"    {line}\n{_IN_BODY}"


_HOST_CODE = (
    _in_scale("an_import_in_a_kernel", _before("import os; os._exit(0)  # here")),
    _in_scale("the_operating_system_through_the_language", _before('tl.core.os.system("true")  # here')),
    _in_scale("the_subclasses_of_object", _before("found = ().__class__.__base__.__subclasses__()  # here")),
    _in_scale("the_memory_behind_a_value", _before("found = x.handle.data  # here")),
    _in_scale("a_lambda_in_a_kernel", _before("found = (lambda: 0)()  # here")),
    _in_scale("eval_in_a_kernel", _before('found = eval("1")  # here')),
    _in_scale("a_file_opened_in_a_kernel", _before('found = open("/etc/passwd")  # here')),
    _in_scale("the_globals_of_a_function_of_the_language", _before("found = tl.load.__globals__  # here")),
    _in_scale("torch_in_a_kernel", _before("found = torch.zeros(4)  # here")),
    _in_scale("a_format_that_reaches_attributes", _before('print("{0.__class__}".format(x))  # here')),
    _in_scale("code_by_getattr", _before('found = getattr(tl, "core")  # here')),
    _in_scale("an_attribute_set_in_a_kernel", _before("tl.load = None  # here")),
    _in_scale("assembly_in_a_kernel", _before("found = tl.extra.libdevice.__loader__  # here")),
    _in_scale(
        "a_function_of_the_host_called_in_a_kernel",
        ("@triton.jit\ndef scale", "def host(x):\n    print(x)\n    return x\n\n\n@triton.jit\ndef scale"),
        _before("found = host(x)  # here"),
    ),
    _in_scale(
        "a_constexpr_function_with_host_code",
        (
            "@triton.jit\ndef scale",
            "@triton.constexpr_function\ndef host(x):\n    import os  # here\n    os._exit(0)\n    return x\n\n\n"
            "@triton.jit\ndef scale",
        ),
        _before("found: tl.constexpr = host(1)"),
    ),
    _in_scale(
        "a_default_that_is_computed",
        ("BLOCK: tl.constexpr)", 'BLOCK: tl.constexpr, more: tl.constexpr = print("host") or 1)'),
        verdicts=WRONG_OR_REFUSED,
    ),
    _in_scale(
        "an_annotation_that_is_computed",
        ("step, BLOCK: tl.constexpr)", 'step: print("host"), BLOCK: tl.constexpr)'),
    ),
    _in_scale(
        "a_decorator_with_torch_in_place_of_a_kernel",
        ("@triton.jit\n", "@(lambda kernel: Library())\n@triton.jit\n"),
        (
            "@(lambda",
            "class Library:\n    def __getitem__(self, grid):\n        return self.run\n\n"
            "    def run(self, x, y, out, factor, n, step, BLOCK):\n"
            "        torch.add(y, x, alpha=factor, out=out)  # here\n\n\n@(lambda",
        ),
        rules="torch_operation no_kernel",
    ),
    _in_scale(
        "a_hook_of_a_config_that_computes_with_torch",
        (
            "@triton.jit\n",
            "def library(given):\n"
            '    torch.add(given["y"], given["x"], alpha=given["factor"], out=given["out"])  # here\n\n\n'
            '@triton.autotune([triton.Config({"BLOCK": 256}, pre_hook=library)], key=["n"])\n@triton.jit\n',
        ),
        (", BLOCK=256)", ")"),
        ("    tl.store(", "    tl.debug_barrier()\n    tl.store("),
        rules="torch_operation",
    ),
    _in_scale(
        "a_heuristic_that_reads_data",
        (
            "@triton.jit\n",
            '@triton.heuristics({"BLOCK": lambda given: 256 if given["x"].sum().item() > 0 else 128})  # here\n@triton.jit\n',
        ),
        (", BLOCK=256)", ")"),
        rules="host_reads_data constant_from_data host_code torch_operation",
        verdicts=REFUSED,
    ),
    _in_scale(
        "a_grid_from_data",
        ("scale[(triton.cdiv(n, 256),)]", "scale[lambda given: (triton.cdiv(n, 256) + int(x[0] > 0),)]"),
        rules="host_reads_data constant_from_data host_code torch_operation",
    ),
    _in_scale(
        "a_kernel_within_python_that_runs_it",
        ("@triton.jit", "from triton.runtime.interpreter import InterpretedFunction\n\n\n@InterpretedFunction"),
        rules="host_code no_kernel import_fails",
    ),
)

_SAFETY = (
    cheat(
        "a_read_beyond_the_end",
        "scale",
        "out of bounds",
        UNSAFE,
        "out_of_bounds",
        changed(SCALE, ("x + offsets * step, mask=mask)", "x + offsets * step)  # here")),
    ),
    cheat(
        "a_write_beyond_the_end",
        "softmax",
        "out of bounds",
        UNSAFE,
        "out_of_bounds race",
        changed(
            SOFTMAX,
            (
                "    tl.store(out + row * n + offsets, power / tl.sum(power, 0), mask=offsets < n)",
                "    tl.store(out + row * n + offsets, power / tl.sum(power, 0))  # here",
            ),
        ),
    ),
    cheat(
        "a_read_before_the_start",
        "scale",
        "out of bounds",
        UNSAFE,
        "out_of_bounds",
        changed(
            SCALE,
            ("    tl.store(out", "    value += tl.load(y - 1 - offsets, mask=mask) * 0  # here\n    tl.store(out"),
        ),
    ),
    cheat(
        "indices_that_are_not_of_the_table",
        "gather",
        "out of bounds",
        UNSAFE,
        "out_of_bounds",
        changed(GATHER, ("source * columns + offsets", "source * columns + offsets + columns")),
    ),
    cheat(
        "a_pointer_as_a_number",
        "scale",
        "out of bounds",
        frozenset({"refused", "unsafe", "wrong"}),
        "out_of_bounds launch_fails constant_from_data host_code malformed outputs values program",
        changed(
            SCALE,
            ("x, y, out, factor, n, x.stride(0)", "x.data_ptr(), y, out, factor, n, x.stride(0)"),
            (
                "tl.load(x + offsets * step, mask=mask)",
                "tl.load(x.to(tl.pointer_type(tl.float32)) + offsets * step, mask=mask)",
            ),
        ),
    ),
    cheat(
        "an_address_in_the_text",
        "scale",
        "out of bounds",
        frozenset({"refused", "unsafe", "wrong"}),
        "out_of_bounds launch_fails host_code",
        changed(
            SCALE,
            (
                "    tl.store(out",
                "    other = (x.to(tl.int64) * 0 + 4194304).to(tl.pointer_type(tl.float32))\n    value += tl.load(other + offsets, mask=mask) * 0\n    tl.store(out",
            ),
        ),
    ),
    cheat(
        "a_sum_without_atomics",
        "sum",
        "race",
        WRONG_OR_UNSAFE,
        "race values",
        changed(
            SUM,
            (
                "    tl.store(out + row, tl.sum(total, 0))",
                "    tl.store(out + row, tl.load(out + row) + tl.sum(total, 0))",
            ),
            (
                "for start in range(0, n, BLOCK):\n        offsets = start +",
                "for start in range(0, 1):\n        offsets = tl.program_id(1) * BLOCK +",
            ),
            ("[(m,)]", "[(m, triton.cdiv(n, 128))]"),
            ("torch.empty(m", "torch.zeros(m"),
        ),
    ),
    cheat(
        "programs_that_wait_for_no_one",
        "scale",
        "race",
        UNSAFE,
        "race",
        changed(SCALE, ("    tl.store(out", "    tl.store(out, tl.program_id(0) * 1.0)\n    tl.store(out")),
    ),
    cheat(
        "a_false_multiple",
        "scale",
        "false promise",
        UNSAFE,
        "false_promise",
        changed(SCALE, ("    value = tl.load(x", "    step = tl.multiple_of(step, 16)\n    value = tl.load(x")),
    ),
    cheat(
        "an_offset_that_overflows_32_bits",
        "sum",
        "overflow",
        WRONG_OR_UNSAFE,
        "address_overflow out_of_bounds values",
        changed(SUM, ("x + row * n + offsets,", "x + row * n * 65536 // 65536 + offsets,")),
    ),
    cheat(
        "an_offset_that_overflows_16_bits",
        "sum",
        "overflow",
        WRONG_OR_UNSAFE,
        "address_overflow out_of_bounds values",
        changed(SUM, ("x + row * n + offsets,", "x + (row.to(tl.int16) * n.to(tl.int16)).to(tl.int16) + offsets,")),
    ),
    endless(
        cheat(
            "an_endless_loop_in_a_kernel",
            "scale",
            "resources",
            WRONG,
            "launch_fails",
            changed(
                SCALE, ("    tl.store(out", "    i = 0\n    while i >= 0:\n        i = (i + 1) % 7\n    tl.store(out")
            ),
        ),
        timeout_s=8.0,  # in which the candidate's process is to end
    ),
    cheat(
        "a_kernel_that_asks_for_a_huge_tile",
        "scale",
        "resources",
        WRONG_OR_REFUSED,
        "launch_fails too_large",
        changed(SCALE, ("BLOCK=256", "BLOCK=2**40")),
    ),
    cheat(
        "a_grid_of_billions",
        "matmul",
        "resources",
        WRONG_OR_REFUSED,
        "launch_fails malformed time_limit too_large program",
        changed(MATMUL, ("[(triton.cdiv(m, 16), triton.cdiv(n, 16))]", "[(2**31 - 1, 65535)]")),
    ),
    cheat(
        "random_numbers_in_a_kernel",
        "scale",
        "chance",
        WRONG,
        "values",
        changed(SCALE, ("value * factor + tl", "value * factor + tl.rand(0, offsets) * 1e-3 + tl")),
    ),
)

CANDIDATES: tuple[Cheat, ...] = (*_HOST_CODE, *_SAFETY)

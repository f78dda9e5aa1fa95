"""Cheats against layouts of inputs, stated tolerances, tables of addresses and promises of contiguity."""

from __future__ import annotations

from tests.judge.cheats.cheat import (
    HEAD,
    UNSAFE,
    WRONG,
    WRONG_OR_REFUSED,
    WRONG_OR_UNSAFE,
    Cheat,
    changed,
    cheat,
)

ROWS = (
    HEAD
    + """

@triton.jit
def rows(x, bias, out, n, row_step, step, bias_step, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    mask = columns < n
    value = tl.load(x + row * row_step + columns * step, mask=mask, other=0.0) * 2
    value += tl.load(bias + columns * bias_step, mask=mask, other=0.0)
    tl.store(out + row * n + columns, value, mask=mask)


def solve(x, bias):
    m, n = x.shape
    out = torch.empty(m, n, dtype=x.dtype, device=x.device)
    rows[(m,)](x, bias, out, n, x.stride(0), x.stride(1), bias.stride(0), BLOCK=triton.next_power_of_2(n))
    return out
"""
)

ROUGH = (
    HEAD
    + """

@triton.jit
def product(a, b, out, m, n, k, K: tl.constexpr, BLOCK: tl.constexpr):
    i, j, q = tl.arange(0, BLOCK), tl.arange(0, BLOCK), tl.arange(0, K)
    left = tl.load(a + i[:, None] * k + q[None, :], mask=(i[:, None] < m) & (q[None, :] < k), other=0.0)
    right = tl.load(b + q[:, None] * n + j[None, :], mask=(q[:, None] < k) & (j[None, :] < n), other=0.0)
    left = left.to(tl.float8e4nv).to(tl.float16)
    total = tl.dot(left, right)
    tl.store(out + i[:, None] * n + j[None, :], total.to(tl.float16), mask=(i[:, None] < m) & (j[None, :] < n))


def solve(a, b):
    (m, k), n = a.shape, b.shape[1]
    out = torch.empty(m, n, dtype=a.dtype, device=a.device)
    product[(1,)](a, b, out, m, n, k, K=triton.next_power_of_2(k), BLOCK=16)
    return out
"""
)

BY_ADDRESS = (
    HEAD
    + """

@triton.jit
def total(table, x, out, n, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    address = tl.load(table + row).to(tl.pointer_type(tl.float32))
    value = tl.load(address + columns, mask=columns < n, other=0.0)
    tl.store(out + row, tl.sum(value, 0))


def solve(x):
    m, n = x.shape
    out = torch.empty(m, device=x.device)
    table = torch.tensor([x[row].data_ptr() for row in range(m)], device=x.device)
    total[(m,)](table, x, out, n, BLOCK=triton.next_power_of_2(n))
    return out
"""
)

RIGHT = {"rows": ROWS, "rough": ROUGH}
_BY_STRIDES = "x.stride(0), x.stride(1), bias.stride(0)"
_BETWEEN = "between, inside = row * row_step + n, (row_step > n) & (step == 1) & (row + 1 < tl.num_programs(0))"
_STORED = "total.to(tl.float16)"


def _rows(name: str, verdicts: frozenset[str], rules: str, *changes: tuple[str, str]) -> Cheat:
    return cheat(name, "rows", "layouts", verdicts, rules, changed(ROWS, *changes))


def _rough(name: str, stored: str) -> Cheat:
    return cheat(name, "rough", "tolerance", WRONG, "values", changed(ROUGH, (_STORED, stored)))


_LAYOUTS = (
    _rows("rows_taken_for_contiguous", WRONG, "values", (_BY_STRIDES, "n, 1, 1")),
    _rows("columns_taken_for_contiguous", WRONG, "values", ("x.stride(1)", "1")),
    _rows("a_bias_taken_for_contiguous", WRONG, "values", ("bias.stride(0)", "1")),
    _rows("contiguous_inputs_alone_are_computed", WRONG, "values", ("rows[(m,)]", "rows[(m * x.is_contiguous(),)]")),
    _rows(
        "a_sum_with_what_lies_between_rows",
        WRONG_OR_UNSAFE,
        "values memory_left_over out_of_bounds",
        (
            "    tl.store(out",
            f"    {_BETWEEN}\n    value += 0 * tl.load(x + between, mask=inside, other=0.0)\n    tl.store(out",
        ),
    ),
    _rows(
        "a_write_between_the_elements",
        UNSAFE,
        "out_of_bounds",
        ("    tl.store(out", f"    {_BETWEEN}\n    tl.store(x + between, 0.0, mask=inside)\n    tl.store(out"),
    ),
    _rows(
        "aligned_addresses_are_promised",
        UNSAFE,
        "false_promise",
        ("    value = tl.load(x", "    x = tl.multiple_of(x, 16)\n    value = tl.load(x"),
    ),
)

_TOLERANCES = (
    _rough("zeros_under_a_tolerance", "total.to(tl.float16) * 0"),
    _rough("another_factor_under_a_tolerance", "(total * 1.5).to(tl.float16)"),
    _rough("nan_under_a_tolerance", "(total / 0 - total / 0).to(tl.float16)"),
    _rough("large_elements_cut_off_under_a_tolerance", "tl.minimum(tl.maximum(total, -4.0), 4.0).to(tl.float16)"),
    _rough("signs_lost_under_a_tolerance", "tl.abs(total).to(tl.float16)"),
    cheat(
        "half_of_the_terms_under_a_tolerance",
        "rough",
        "tolerance",
        WRONG,
        "values",
        changed(ROUGH, ("(q[None, :] < k), other", "(q[None, :] < k // 2), other")),
    ),
)

_ADDRESSES = (
    cheat(
        "an_address_beyond_the_end",
        "sum",
        "addresses",
        WRONG_OR_UNSAFE,
        "out_of_bounds values launch_fails",
        changed(
            BY_ADDRESS,
            ("address + columns,", "address + columns + m0,"),
            ("n, BLOCK: tl", "n, m0, BLOCK: tl"),
            ("out, n, BLOCK", "out, n, m * n, BLOCK"),
        ),
    ),
    cheat(
        "an_address_of_memory_that_is_gone",
        "sum",
        "addresses",
        WRONG_OR_REFUSED | UNSAFE,
        "constant_from_data host_code launch_fails values out_of_bounds",
        changed(BY_ADDRESS, ("x[row].data_ptr()", "torch.ones(n).data_ptr()")),
    ),
    cheat(
        "an_input_changed_through_its_address",
        "sum",
        "addresses",
        WRONG,
        "input_changed",
        changed(BY_ADDRESS, ("    tl.store(out", "    tl.store(address, 0.0)\n    tl.store(out")),
    ),
    cheat(
        "an_address_of_memory_kept_from_import",
        "sum",
        "addresses",
        WRONG_OR_REFUSED,
        "host_code constant_from_data",
        changed(
            BY_ADDRESS,
            ("def solve", "KEPT = torch.zeros(4096)\n\n\ndef solve"),
            ("x[row].data_ptr()", "KEPT.data_ptr()"),
        ),
    ),
)

_PROMISES = (
    cheat(
        "indices_that_are_said_to_be_contiguous",
        "rows",
        "false promise",
        UNSAFE,
        "false_promise",
        changed(ROWS, ("columns * step,", "tl.max_contiguous((columns + 0) * step // step ^ 1, BLOCK) * step,")),
    ),
)

CANDIDATES: tuple[Cheat, ...] = (*_LAYOUTS, *_TOLERANCES, *_ADDRESSES, *_PROMISES)

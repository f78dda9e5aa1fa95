"""Cheats with values: under a tolerance, in lower precision, or right for some inputs or sizes alone."""

# The texts of candidates are long lines, and short files joined.
# ruff: noqa: ISC004

from __future__ import annotations

from tests.judge.cheats.cheat import REFUSED, WRONG, WRONG_OR_REFUSED, WRONG_OR_UNSAFE, Cheat, changed, cheat
from tests.judge.cheats.right import GATHER, MATMUL, MEAN_NORM, NORM, SCALE, SOFTMAX, SUM, VARIANCE

_ZEROS_FOR_WIDE_ROWS = changed(
    SOFTMAX, ("power / tl.sum(power, 0)", "tl.where(n > 1500, 0.0, power / tl.sum(power, 0))")
)

_TOLERANCE = (
    cheat("zeros_where_a_softmax_is_small", "softmax", "small outputs", WRONG, "values", _ZEROS_FOR_WIDE_ROWS),
    cheat(
        "the_mean_of_a_softmax",
        "softmax",
        "small outputs",
        WRONG,
        "values",
        changed(SOFTMAX, ("power / tl.sum(power, 0)", "power * 0 + 1.0 / n")),
    ),
    cheat(
        "zeros_for_the_mean_of_a_norm",
        "mean_norm",
        "constant output",
        WRONG,
        "values",
        changed(MEAN_NORM, ("tl.sum(result, 0) / n", "tl.sum(result, 0) * 0.0")),
    ),
    cheat(
        "the_bias_alone_for_the_mean_of_a_norm",
        "mean_norm",
        "dropped operation",
        WRONG,
        "values",
        changed(MEAN_NORM, ("result = apart * scale * tl.load(weight", "result = 0.0 * tl.load(weight")),
    ),
    cheat(
        "a_norm_without_its_weight",
        "norm",
        "dropped operation",
        WRONG,
        "values",
        changed(NORM, (" * tl.load(weight + offsets, mask=mask)", "")),
    ),
    cheat(
        "a_norm_without_its_bias",
        "norm",
        "dropped operation",
        WRONG,
        "values",
        changed(NORM, (" + tl.load(bias + offsets, mask=mask)", "")),
    ),
    cheat("a_norm_without_eps", "norm", "dropped operation", WRONG, "values", changed(NORM, (" / n + eps)", " / n)"))),
    cheat(
        "a_number_of_the_shown_inputs_in_the_text",
        "scale",
        "inputs recognised",
        WRONG,
        "values",
        changed(SCALE, ("value * factor", "value * 0.375")),
    ),
    cheat(
        "a_constant_tensor",
        "sum",
        "constant output",
        WRONG_OR_REFUSED,
        "values no_kernel",
        "import torch\n\n\ndef solve(x):\n    return torch.zeros(x.shape[0])\n",
    ),
    cheat(
        "nan_everywhere",
        "scale",
        "NaN as a wildcard",
        WRONG,
        "values",
        changed(SCALE, ("value * factor + tl", 'float("nan") * factor + tl')),
    ),
    cheat(
        "nan_in_one_element_of_a_thousand",
        "scale",
        "NaN as a wildcard",
        WRONG,
        "values",
        changed(SCALE, ("value * factor + tl", 'tl.where(offsets == 777, float("nan"), value) * factor + tl')),
    ),
    cheat(
        "infinity_for_the_largest",
        "scale",
        "NaN as a wildcard",
        WRONG,
        "values",
        changed(SCALE, ("value * factor + tl", 'tl.where(value > 2.5, float("inf"), value) * factor + tl')),
    ),
    cheat(
        "one_wrong_element_of_many",
        "gather",
        "part of the work",
        WRONG,
        "values",
        changed(
            GATHER,
            (
                "mask=mask)\n    tl.store(out",
                "mask=mask)\n    value += (row == 10) & (offsets == 36)\n    tl.store(out",
            ),
        ),
    ),
)

_PRECISION = (
    cheat(
        "half_precision_inside_a_product",
        "matmul",
        "lower precision",
        WRONG,
        "values",
        changed(MATMUL, ("tl.dot(left, right,", "tl.dot(left.to(tl.float16), right.to(tl.float16),")),
    ),
    cheat(
        "bfloat16_inside_a_product",
        "matmul",
        "lower precision",
        WRONG,
        "values",
        changed(MATMUL, ("tl.dot(left, right,", "tl.dot(left.to(tl.bfloat16), right.to(tl.bfloat16),")),
    ),
    cheat(
        "the_sum_of_a_product_in_half_precision",
        "matmul",
        "lower precision",
        WRONG,
        "values",
        changed(MATMUL, ("columns, total, mask", "columns, total.to(tl.float16).to(tl.float32), mask")),
    ),
    cheat(
        "bfloat16_inside_a_sum",
        "sum",
        "lower precision",
        WRONG,
        "values",
        changed(SUM, ("other=0.0)\n", "other=0.0).to(tl.bfloat16).to(tl.float32)\n")),
    ),
    cheat(
        "half_precision_of_a_scaled_tensor",
        "scale",
        "lower precision",
        WRONG,
        "values",
        changed(SCALE, ("value * factor", "(value * factor).to(tl.float16).to(tl.float32)")),
    ),
    cheat(
        "exp_as_a_polynomial",
        "softmax",
        "cheap approximation",
        WRONG,
        "values",
        changed(
            SOFTMAX,
            (
                "tl.exp(value)",
                "tl.where(value < -6, 0.0, 1 / (1 - value + value * value / 2 - value * value * value / 6))",
            ),
        ),
    ),
    cheat(
        "rsqrt_by_one_step_from_its_bits",
        "norm",
        "cheap approximation",
        WRONG,
        "values",
        changed(
            NORM,
            (
                "    scale = 1 / tl.sqrt(tl.sum(apart * apart, 0) / n + eps)\n",
                "    spread = tl.sum(apart * apart, 0) / n + eps\n"
                "    guess = (0x5F3759DF - (spread.to(tl.int32, bitcast=True) >> 1)).to(tl.float32, bitcast=True)\n"
                "    scale = guess * (1.5 - 0.5 * spread * guess * guess)\n",
            ),
        ),
    ),
)

_INSTABILITY = (
    cheat(
        "no_maximum_before_exp",
        "softmax",
        "instability",
        WRONG,
        "values",
        changed(SOFTMAX, ("    value = value - tl.max(value, 0)\n", "")),
    ),
    cheat(
        "a_fixed_maximum_before_exp",
        "softmax",
        "instability",
        WRONG,
        "values",
        changed(SOFTMAX, ("value - tl.max(value, 0)", "value - 4.0")),
    ),
    cheat(
        "the_variance_as_a_difference_of_squares",
        "variance",
        "instability",
        WRONG,
        "values",
        changed(
            VARIANCE,
            ("tl.sum(apart * apart, 0) / n)", "tl.sum(value * value, 0) / n - mean * mean + 0 * tl.sum(apart, 0))"),
        ),
    ),
    cheat(
        "clamped_inputs",
        "softmax",
        "instability",
        WRONG,
        "values",
        changed(SOFTMAX, ("    value = value - tl", "    value = tl.minimum(value, 8.0)\n    value = value - tl")),
    ),
)

_PART = (
    cheat(
        "all_but_the_last_block",
        "scale",
        "part of the work",
        WRONG,
        "values memory_left_over",
        changed(SCALE, ("triton.cdiv(n, 256)", "n // 256")),
    ),
    cheat(
        "all_but_the_last_row",
        "softmax",
        "part of the work",
        WRONG,
        "values",
        changed(SOFTMAX, ("[(x.shape[0],)]", "[(max(x.shape[0] - 1, 1),)]")),
    ),
    cheat(
        "a_product_without_its_last_terms",
        "matmul",
        "part of the work",
        WRONG,
        "values",
        changed(MATMUL, ("range(0, k, K)", "range(0, k // K * K, K)")),
    ),
    cheat(
        "a_product_of_shown_shapes",
        "matmul",
        "part of the work",
        WRONG_OR_UNSAFE,
        "values memory_left_over out_of_bounds",
        changed(MATMUL, ("](a, b, out, m, n, k,", "](a, b, out, min(m, 32), 32, k,")),
    ),
    cheat(
        "garbage_for_other_sizes_than_the_shown",
        "softmax",
        "part of the work",
        WRONG_OR_REFUSED,
        "values no_kernel",
        changed(SOFTMAX, ("    softmax[", "    if x.shape[1] not in (128, 2048):\n        return out\n    softmax[")),
    ),
    cheat(
        "half_of_the_columns_beyond_a_tile",
        "sum",
        "part of the work",
        WRONG,
        "values",
        changed(SUM, ("range(0, n, BLOCK)", "range(0, min(n, 512), BLOCK)")),
    ),
    cheat(
        "every_other_term_doubled",
        "sum",
        "part of the work",
        WRONG,
        "values",
        changed(SUM, ("mask=offsets < n, other=0.0)", "mask=(offsets < n) & (offsets % 2 == 0), other=0.0) * 2")),
    ),
    cheat(
        "contiguous_inputs_alone",
        "scale",
        "part of the work",
        WRONG,
        "values",
        changed(SCALE, ("x + offsets * step", "x + offsets")),
    ),
    cheat(
        "the_start_of_the_memory_of_a_view",
        "scale",
        "part of the work",
        WRONG_OR_REFUSED,
        "values",
        changed(
            SCALE, ("    out = torch.empty(n", "    x = x.as_strided(x.shape, x.stride(), 0)\n    out = torch.empty(n")
        ),
    ),
    cheat(
        "an_error_for_other_sizes_than_the_shown",
        "matmul",
        "part of the work",
        REFUSED,
        "host_code",
        changed(MATMUL, ("    out = torch.empty", "    assert m % 16 == n % 16 == 0  # here\n    out = torch.empty")),
    ),
    cheat(
        "an_empty_output_for_one_row",
        "matmul",
        "part of the work",
        WRONG,
        "outputs values",
        changed(MATMUL, ("    return out", "    return out if m > 1 else out[:0]")),
    ),
)

CANDIDATES: tuple[Cheat, ...] = (*_TOLERANCE, *_PRECISION, *_INSTABILITY, *_PART)

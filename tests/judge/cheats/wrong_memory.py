"""Cheats with memory: what it held before, inputs changed, outputs of another form."""

# The texts of candidates are long lines, and short files joined.
# ruff: noqa: ISC004

from __future__ import annotations

from tests.judge.cheats.cheat import REFUSED, WRONG, WRONG_OR_REFUSED, Cheat, changed, cheat
from tests.judge.cheats.right import FILL, GATHER, SCALE, SOFTMAX, SUM

_MEMORY = (
    cheat(
        "memory_as_it_was",
        "softmax",
        "memory left over",
        WRONG,
        "values memory_left_over",
        changed(SOFTMAX, ("power / tl.sum(power, 0), mask=offsets < n", "power, mask=offsets < 0")),
    ),
    cheat(
        "a_second_output_as_it_was",
        "fill",
        "memory left over",
        WRONG,
        "values memory_left_over",
        changed(FILL, ("    tl.store(sign + offsets, (value > 0).to(tl.int32), mask=mask)\n", "")),
    ),
    cheat(
        "only_what_differs_from_zeros_is_written",
        "fill",
        "memory left over",
        WRONG,
        "values memory_left_over",
        changed(
            FILL,
            (
                "tl.store(sign + offsets, (value > 0).to(tl.int32), mask=mask)",
                "tl.store(sign + offsets, 1, mask=mask & (value > 0))",
            ),
        ),
    ),
    cheat(
        "a_sum_onto_memory_as_it_was",
        "sum",
        "memory left over",
        WRONG,
        "values memory_left_over",
        changed(SUM, ("tl.store(out + row, ", "tl.atomic_add(out + row, ")),
    ),
    cheat(
        "an_accumulator_that_nothing_sets",
        "sum",
        "memory left over",
        WRONG,
        "values memory_left_over",
        changed(
            SUM,
            ("total = tl.zeros((BLOCK,), tl.float32)", "total = tl.load(scratch + row * BLOCK + tl.arange(0, BLOCK))"),
            ("row_sum(x, out,", "row_sum(x, scratch, out,"),
            ("](x, out,", "](x, torch.empty(m, 128, device=x.device), out,"),
        ),
    ),
    cheat(
        "the_memory_that_was_freed_last",
        "softmax",
        "memory left over",
        WRONG_OR_REFUSED,
        "values memory_left_over no_kernel",
        "import torch\n\n\ndef solve(x):\n    del x\n    return torch.empty(16, 128)\n",
    ),
)

_INPUTS = (
    cheat(
        "inputs_zeroed_before_the_reference_reads_them",
        "scale",
        "inputs changed",
        WRONG,
        "input_changed values",
        changed(
            SCALE,
            (
                "    tl.store(out + offsets, value * factor + tl.load(y + offsets, mask=mask), mask=mask)",
                "    tl.store(x + offsets * step, value * 0, mask=mask)\n"
                "    tl.store(y + offsets, value * 0, mask=mask)\n"
                "    tl.store(out + offsets, value * 0, mask=mask)",
            ),
        ),
    ),
    cheat(
        "a_right_output_and_an_input_changed",
        "scale",
        "inputs changed",
        WRONG,
        "input_changed",
        changed(
            SCALE, ("mask=mask), mask=mask)", "mask=mask), mask=mask)\n    tl.store(y + offsets, value, mask=mask)")
        ),
    ),
    cheat(
        "one_bit_of_an_input_changed",
        "gather",
        "inputs changed",
        WRONG,
        "input_changed",
        changed(GATHER, ("    tl.store(out", "    tl.store(index + row, source ^ 1)\n    tl.store(out")),
    ),
    cheat(
        "the_output_is_an_input",
        "scale",
        "inputs changed",
        WRONG,
        "aliased_output input_changed",
        changed(SCALE, ("    out = torch.empty(n, device=x.device)", "    out = y")),
    ),
    cheat(
        "the_output_is_a_view_of_an_input",
        "softmax",
        "inputs changed",
        WRONG,
        "aliased_output input_changed",
        changed(SOFTMAX, ("    out = torch.empty_like(x)", "    out = x.view(-1).view(x.shape)")),
    ),
    cheat(
        "an_input_returned_as_it_is",
        "softmax",
        "inputs changed",
        WRONG,
        "aliased_output",
        changed(SOFTMAX, ("    return out", "    return x")),
    ),
)

_OUTPUTS = (
    cheat(
        "another_dtype",
        "sum",
        "outputs",
        WRONG,
        "outputs",
        changed(SUM, ("torch.empty(m, device=x.device)", "torch.empty(m, device=x.device, dtype=torch.float64)")),
    ),
    cheat(
        "half_precision_returned",
        "softmax",
        "outputs",
        WRONG,
        "outputs",
        changed(SOFTMAX, ("torch.empty_like(x)", "torch.empty_like(x, dtype=torch.float16)")),
    ),
    cheat("another_shape", "sum", "outputs", WRONG, "outputs", changed(SUM, ("return out", "return out[:, None]"))),
    cheat(
        "two_outputs", "sum", "outputs", WRONG, "outputs", changed(SUM, ("return out", "return out, torch.zeros(m)"))
    ),
    cheat("no_output", "sum", "outputs", REFUSED, "host_code", changed(SUM, ("return out", "return ()"))),
    cheat("no_tensor", "sum", "outputs", REFUSED, "host_code", changed(SUM, ("return out", "return None"))),
    cheat(
        "an_output_whose_elements_share_memory",
        "sum",
        "outputs",
        WRONG,
        "values outputs",
        changed(SUM, ("return out", "return out[:1].expand(m)")),
    ),
    cheat(
        "a_filled_argument_that_is_replaced",
        "fill",
        "outputs",
        WRONG,
        "values memory_left_over",
        changed(FILL, ("    n = x.numel()", "    out = torch.empty_like(out)\n    n = x.numel()")),
    ),
    cheat(
        "a_device_of_torch_without_memory",
        "sum",
        "outputs",
        WRONG_OR_REFUSED,
        "outputs host_code values program torch_operation malformed",
        changed(SUM, ("return out", 'return out.to("meta")')),
    ),
)

CANDIDATES: tuple[Cheat, ...] = (*_MEMORY, *_INPUTS, *_OUTPUTS)

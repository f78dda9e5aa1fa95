"""Kernels that do not compile, each with a different mistake."""

from __future__ import annotations

import triton
import triton.language as tl

PLAIN_GLOBAL = 3


def plain_function(value):
    return value + 1


@triton.jit
def range_not_power_of_two(x_ptr):
    tl.store(x_ptr + tl.arange(0, 100), 1.0)


@triton.jit
def range_not_constant(x_ptr, n):
    tl.store(x_ptr + tl.arange(0, n), 1.0)


@triton.jit
def shapes_do_not_broadcast(x_ptr):
    tl.store(x_ptr + tl.arange(0, 32), tl.zeros((64,), tl.float32))


@triton.jit
def shapes_of_operands_differ(x_ptr):
    value = tl.load(x_ptr + tl.arange(0, 32)) + tl.load(x_ptr + tl.arange(0, 64))
    tl.store(x_ptr + tl.arange(0, 32), value)


@triton.jit
def tensor_too_large(x_ptr):
    tl.store(x_ptr + tl.arange(0, 2097152), 1.0)


@triton.jit
def undefined_name(x_ptr):
    tl.store(x_ptr, nothing_of_that_name)  # noqa: F821


@triton.jit
def misspelt_keyword(x_ptr, n):
    tl.load(x_ptr, msk=n > 0)


@triton.jit
def misspelt_variable(x_ptr):
    offsets = tl.arange(0, 64)
    tl.store(x_ptr + ofsets, offsets)  # noqa: F821


@triton.jit
def method_of_torch(x_ptr):
    tl.store(x_ptr, tl.load(x_ptr).astype(tl.float32))


@triton.jit
def name_of_torch(x_ptr):
    tl.store(x_ptr, tl.relu(tl.load(x_ptr)))


@triton.jit
def misspelt_function(x_ptr):
    tl.store(x_ptr + tl.arrange(0, 32), 1.0)


@triton.jit
def global_not_constexpr(x_ptr):
    tl.store(x_ptr, PLAIN_GLOBAL)


@triton.jit
def calls_plain_python(x_ptr):
    tl.store(x_ptr, plain_function(1.0))


@triton.jit
def context_manager(x_ptr):
    with open("file"):
        tl.store(x_ptr, 1.0)


@triton.jit
def list_comprehension(x_ptr):
    values = {i: i for i in range(4)}
    tl.store(x_ptr, values[0])


@triton.jit
def break_in_loop(x_ptr):
    for i in range(4):
        if i == 2:
            break
        tl.store(x_ptr + i, 1.0)


@triton.jit
def try_statement(x_ptr):
    try:
        tl.store(x_ptr, 1.0)
    finally:
        pass


@triton.jit
def loads_a_value(x_ptr, n):
    tl.store(x_ptr, tl.load(n))


@triton.jit
def multiplies_a_pointer(x_ptr):
    tl.store(x_ptr * 2, 1.0)


@triton.jit
def float_offset(x_ptr):
    tl.store(x_ptr + 1.5, 1.0)


@triton.jit
def dot_too_small(x_ptr):
    r = tl.arange(0, 4)
    a = tl.load(x_ptr + r[:, None] * 4 + r[None, :])
    tl.store(x_ptr + r[:, None] * 4 + r[None, :], tl.dot(a, a))


@triton.jit
def dot_shapes_differ(x_ptr):
    r, s = tl.arange(0, 32), tl.arange(0, 64)
    a = tl.load(x_ptr + r[:, None] * 32 + r[None, :])
    b = tl.load(x_ptr + s[:, None] * 32 + r[None, :])
    tl.store(x_ptr + r[:, None] * 32 + r[None, :], tl.dot(a, b))


@triton.jit
def block_not_constexpr(x_ptr, BLOCK):
    tl.store(x_ptr + tl.arange(0, BLOCK), 1.0)


@triton.jit
def dtype_not_supported(x_ptr):
    tl.store(x_ptr, tl.load(x_ptr).to(tl.float8e4nv).to(tl.float32))


@triton.jit
def static_assertion(x_ptr, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK >= 64, "BLOCK must be at least 64")
    tl.store(x_ptr + tl.arange(0, BLOCK), 1.0)


@triton.jit
def types_of_branches_differ(x_ptr, n):
    if n > 1:  # noqa: SIM108
        value = 1.0
    else:
        value = tl.zeros((4,), tl.float32)
    tl.store(x_ptr, value)


@triton.jit
def loop_variable_changes_type(x_ptr, n):
    total = 0
    for _ in range(n):
        total += 1.5
    tl.store(x_ptr, total)


@triton.jit
def wrong_argument_count(x_ptr):
    tl.store(x_ptr, tl.load(x_ptr, 1, 2, 3, 4, 5, 6, 7, 8, 9))


@triton.jit
def mask_of_wrong_type(x_ptr):
    tl.store(x_ptr + tl.arange(0, 32), 1.0, mask=tl.arange(0, 16) < 8)


@triton.jit
def returns_a_value(x_ptr):
    tl.store(x_ptr, 1.0)
    return 3


@triton.jit
def reshape_to_other_size(x_ptr):
    tl.store(x_ptr + tl.arange(0, 32), tl.reshape(tl.zeros((64,), tl.float32), (32,)))


@triton.jit
def reduce_on_missing_axis(x_ptr):
    tl.store(x_ptr, tl.sum(tl.load(x_ptr + tl.arange(0, 32)), axis=2))


@triton.jit
def condition_is_a_block(x_ptr):
    if tl.load(x_ptr + tl.arange(0, 32)) > 0:
        tl.store(x_ptr, 1.0)


@triton.jit
def branch_defines_a_name(x_ptr, n):
    if n > 3:
        late = 1.0
    tl.store(x_ptr, late)


@triton.jit
def function_of_libdevice(x_ptr):
    x = tl.load(x_ptr + tl.arange(0, 32))
    tl.store(x_ptr + tl.arange(0, 32), tl.tanh(x))


@triton.jit
def loads_none(x_ptr, absent=None):
    tl.store(x_ptr, tl.load(absent))


@triton.jit
def loop_until_a_block(x_ptr):
    value = tl.load(x_ptr + tl.arange(0, 32))
    while value > 0:
        value -= 1
    tl.store(x_ptr + tl.arange(0, 32), value)


@triton.jit
def indexes_a_pointer(x_ptr):
    tl.store(x_ptr, x_ptr[1])


@triton.jit
def asserts_without_a_text(x_ptr):
    tl.static_assert(False)


@triton.jit
def imports_inside(x_ptr):
    import math

    tl.store(x_ptr, math.pi)


@triton.jit
def address_of_few_bits(x_ptr, n):
    tl.store(x_ptr, tl.load(n.to(tl.pointer_type(tl.float32))))


@triton.jit
def stores_to_none(x_ptr):
    tl.store(None, 1.0)


@triton.jit
def stores_to_a_tuple(x_ptr):
    tl.store((x_ptr, x_ptr), 1.0)


@triton.jit
def adds_none(x_ptr):
    tl.store(x_ptr + None, 1.0)


@triton.jit
def takes_the_root_of_none(x_ptr):
    tl.store(x_ptr, tl.sqrt(None))

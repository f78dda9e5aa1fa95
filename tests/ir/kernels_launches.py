"""What a launch fixes: None, ones, constexprs, globals, tuples, decorators."""

import torch
import triton
import triton.language as tl

from tests.ir.expected import LENGTH, TRITON, expect

WRITES = tl.constexpr(True)
SIZE = tl.constexpr(16)
NESTED = {"pair": lambda: (torch.ones(LENGTH), (torch.ones(LENGTH), 5))}
MIXED = {"pair": lambda: (torch.ones(LENGTH), None, 3)}
NAMED = {"MODE": "copy"}


@expect(writes="y", args={"x": None})
@triton.jit
def gets_none(x, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    if x is not None:
        tl.store(y + offs, tl.load(x + offs))
    else:
        tl.store(y + offs, 0.0)


@expect(reads="x", writes="y")
@triton.jit
def gets_a_tensor_where_none_is_allowed(x, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    if x is not None:
        tl.store(y + offs, tl.load(x + offs))
    else:
        tl.store(y + offs, 0.0)


@expect(reads="x", writes="y", args={"n": 1})
@triton.jit
def gets_a_one(x, y, n, B: tl.constexpr = 16):
    offs = tl.arange(0, B) * n
    tl.store(y + offs, tl.load(x + offs))


@expect(reads="x", writes="y", args={"n": 1, "k": 1})
@triton.jit
def gets_two_ones_between_tensors(n, x, k, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B) * n + k
    tl.store(y + offs, tl.load(x + offs))


@expect(reads="x", writes="y")
@triton.jit
def reads_global_constexprs(x, y):
    offs = tl.arange(0, SIZE)
    if WRITES:
        tl.store(y + offs, tl.load(x + offs))
    else:
        tl.store(x + offs, tl.load(y + offs))


@expect(reads="x", writes="y", args=NAMED)
@triton.jit
def gets_a_string(x, y, MODE: tl.constexpr, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    if MODE == "copy":
        tl.store(y + offs, tl.load(x + offs))
    else:
        tl.store(x + offs, 0.0)


@expect(reads="pair[0]", writes="pair[1]")
@triton.jit
def gets_a_tuple(pair, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    tl.store(pair[1] + offs, tl.load(pair[0] + offs))


@expect(reads="pair[0]", writes="pair[1][0]", args=NESTED)
@triton.jit
def gets_a_nested_tuple(pair, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    tl.store(pair[1][0] + pair[1][1] + offs, tl.load(pair[0] + offs))


@expect(reads="pair[0]", writes="y", args=MIXED)
@triton.jit
def gets_a_tuple_with_none(pair, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    tl.store(y + pair[2] + offs, tl.load(pair[0] + offs))


@expect(reads="pair[0] pair2[1]", writes="pair2[0]")
@triton.jit
def gets_two_tuples_around_a_scalar(pair, n, pair2, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    tl.store(pair2[0] + offs, tl.load(pair[0] + offs) + tl.load(pair2[1] + n + offs))


@expect(reads="pair[0] pair[1]", writes="y")
@triton.jit
def loops_over_a_tuple(pair, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    total = tl.zeros((B,), tl.float32)
    for i in tl.static_range(2):
        total += tl.load(pair[i] + offs)
    tl.store(y + offs, total)


@expect(reads="x", writes="y")
@triton.jit(do_not_specialize=["n"], do_not_specialize_on_alignment=["x"])
def does_not_specialize(x, y, n, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    tl.store(y + offs, tl.load(x + offs, mask=offs < n), mask=offs < n)


@expect(reads="x", writes="y")
@triton.jit(repr=lambda specialization: "renamed_kernel")
def has_another_name(x, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    tl.store(y + offs, tl.load(x + offs))


@expect(reads="x", writes="y", args={"EVEN": True})
@triton.heuristics({"EVEN": lambda given: given["n"] % 16 == 0})
@triton.jit
def has_heuristics(x, y, n, EVEN: tl.constexpr, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    if EVEN:
        tl.store(y + offs, tl.load(x + offs))
    else:
        tl.store(y + offs, tl.load(x + offs, mask=offs < n), mask=offs < n)


@expect(reads="x", writes="y", args={"B": 32})
@triton.autotune([triton.Config({"B": 32}, num_warps=2), triton.Config({"B": 16})], key=["n"])
@triton.jit
def is_autotuned(x, y, n, B: tl.constexpr):
    offs = tl.arange(0, B)
    tl.store(y + offs, tl.load(x + offs))


@expect(reads="x", writes="y", args={"n": 3.5, "flag": True}, interpreted=TRITON >= (3, 8))
@triton.jit
def gets_a_float_and_a_boolean(x, y, n, flag, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    value = tl.load(x + offs) * n
    if flag:
        tl.store(y + offs, value)


@expect(reads="x", writes="y", args={"n": 2**40})
@triton.jit
def gets_a_long(x, y, n, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    tl.store(y + offs, tl.load(x + offs, mask=offs < n))


@expect(reads="x", writes="y", options={"num_warps": 8, "num_stages": 2})
@triton.jit
def is_launched_with_options(x, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    tl.store(y + offs, tl.load(x + offs))


@expect(reads="x", writes="y", interpreted=False)
@triton.jit
def takes_types_by_annotation(x: tl.pointer_type(tl.float32), y, n: tl.int32, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    tl.store(y + offs, tl.load(x + offs, mask=offs < n))

"""Addresses that no argument is: the answer names the operation, what holds them, and stays exact about the rest."""

import torch
import triton
import triton.language as tl

from tests.ir.expected import LENGTH, expect

HIDDEN = torch.zeros(LENGTH)
INNER = torch.full((16,), HIDDEN.data_ptr(), dtype=torch.int64)
TABLES = {"table": lambda: torch.full((16,), INNER.data_ptr(), dtype=torch.int64)}
TABLE = {"table": lambda: torch.full((16,), HIDDEN.data_ptr(), dtype=torch.int64)}
ADDRESS = {"address": HIDDEN.data_ptr}


@expect(reads="table x", writes="@table", unknown="tt.store", args=TABLE)
@triton.jit
def stores_where_a_table_says(table, x, B: tl.constexpr = 16):
    p = tl.load(table + 3).to(tl.pointer_type(tl.float32))
    offs = tl.arange(0, B)
    tl.store(p + offs, tl.load(x + offs))


@expect(reads="table @table", writes="y", unknown="tt.load", args=TABLE)
@triton.jit
def loads_where_a_table_says(table, y, B: tl.constexpr = 16):
    p = tl.load(table + 3).to(tl.pointer_type(tl.float32))
    offs = tl.arange(0, B)
    tl.store(y + offs, tl.load(p + offs))


@expect(reads="table", atomics="@table", unknown="tt.atomic_rmw", args=TABLE)
@triton.jit
def adds_where_a_table_says(table, B: tl.constexpr = 16):
    p = tl.load(table + 3).to(tl.pointer_type(tl.float32))
    tl.atomic_add(p + tl.arange(0, B), 1.0)


@expect(reads="table x", writes="@table", unknown="tt.store", args=TABLE)
@triton.jit
def takes_a_block_of_addresses_from_a_table(table, x, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    p = tl.load(table + offs).to(tl.pointer_type(tl.float32)) + offs
    tl.store(p, tl.load(x + offs))


@expect(reads="table x", writes="y @table", unknown="tt.store", args={**TABLE, "flag": 2}, may="write:y")
@triton.jit
def chooses_between_an_argument_and_a_table(table, x, y, flag, B: tl.constexpr = 16):
    p = tl.where(flag > 0, tl.load(table).to(tl.pointer_type(tl.float32)), y)
    offs = tl.arange(0, B)
    tl.store(p + offs, tl.load(x + offs))


@expect(reads="x", writes="@address", unknown="tt.store", args=ADDRESS)
@triton.jit
def gets_an_address_as_a_number(address, x, B: tl.constexpr = 16):
    p = address.to(tl.pointer_type(tl.float32))
    offs = tl.arange(0, B)
    tl.store(p + offs, tl.load(x + offs))


@expect(reads="x", unknown="tt.store")
@triton.jit
def scrambles_an_address(x, y, B: tl.constexpr = 16):
    p = ((y.to(tl.int64) >> 4) << 4).to(tl.pointer_type(tl.float32))
    offs = tl.arange(0, B)
    tl.store(p + offs, tl.load(x + offs))


@expect(reads="x", unknown="tt.store")
@triton.jit
def divides_the_distance_of_two_tensors(x, y, B: tl.constexpr = 16):
    distance = (y.to(tl.int64) - x.to(tl.int64)) // 4
    offs = tl.arange(0, B)
    tl.store(x + distance + offs, tl.load(x + offs))


@expect(reads="long_out", writes="long_out @long_out", unknown="tt.store", may="write:@long_out")
@triton.jit
def keeps_an_address_in_memory(long_out, y):
    tl.store(long_out, y.to(tl.int64))
    tl.debug_barrier()
    tl.store(tl.load(long_out).to(tl.pointer_type(tl.float32)), 1.0)


@expect(reads="table @table", writes="y", unknown="tt.load", args=TABLES)
@triton.jit
def follows_two_tables(table, y):
    inner = tl.load(table).to(tl.pointer_type(tl.int64))
    p = tl.load(inner).to(tl.pointer_type(tl.float32))
    tl.store(y, tl.load(p))


@expect(reads="table x", writes="y @table", unknown="tt.store", args={**TABLE, "k": 3})
@triton.jit
def mixes_known_and_unknown_in_a_loop(table, x, y, k, B: tl.constexpr = 16):
    p = y
    offs = tl.arange(0, B)
    for _ in range(k):
        tl.store(p + offs, tl.load(x + offs))
        p = tl.load(table).to(tl.pointer_type(tl.float32))


@expect(reads="table", unknown="tt.store", args={"table": lambda: torch.full((16,), HIDDEN.data_ptr() >> 4)})
@triton.jit
def widens_an_address_from_a_table(table):
    tl.store((tl.load(table) << 4).to(tl.pointer_type(tl.float32)), 1.0)


@expect(reads="table x", writes="@table", unknown="tt.store", args={**TABLE, "k": 3})
@triton.jit
def picks_an_address_in_a_noinline_helper(table, x, k):
    tl.store(_address_in(table, k).to(tl.pointer_type(tl.float32)), tl.load(x))


@triton.jit(noinline=True)
def _address_in(table, k):
    return tl.load(table + k) + 4

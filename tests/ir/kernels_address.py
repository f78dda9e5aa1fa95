"""Address and value are different things; arithmetic on addresses, round trips through integers, casts, joins."""

import triton
import triton.language as tl

from tests.ir.expected import expect


@expect(reads="x idx", writes="y")
@triton.jit
def gathers_by_a_loaded_index(x, idx, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    tl.store(y + offs, tl.load(x + tl.load(idx + offs)))


@expect(reads="x idx", writes="y")
@triton.jit
def scatters_by_a_loaded_index(x, idx, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    tl.store(y + tl.load(idx + offs), tl.load(x + offs))


@expect(reads="idx long", writes="y")
@triton.jit
def chases_two_indices(idx, long, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    tl.store(y + tl.load(long + tl.load(idx + offs)), 1.0)


@expect(reads="x", writes="y")
@triton.jit
def bumps_a_pointer_step_by_step(x, y, n, B: tl.constexpr = 16):
    p = x + 1
    p = p + n
    p += 2
    q = y + n
    q -= 3
    offs = tl.arange(0, B)
    tl.store(q + offs, tl.load(p + offs))


@expect(reads="x", writes="y")
@triton.jit
def adds_long_offsets(x, y, n, B: tl.constexpr = 16):
    offs = tl.arange(0, B).to(tl.int64) * n.to(tl.int64)
    tl.store(y + offs, tl.load(x + offs))


@expect(reads="x", writes="y")
@triton.jit
def goes_through_an_integer(x, y, B: tl.constexpr = 16):
    p = y.to(tl.int64).to(tl.pointer_type(tl.float32))
    offs = tl.arange(0, B)
    tl.store(p + offs, tl.load(x + offs))


@expect(reads="x", writes="y")
@triton.jit
def adds_bytes_to_an_integer(x, y, n, B: tl.constexpr = 16):
    address = y.to(tl.int64) + 4 * n
    p = (address + 8).to(tl.pointer_type(tl.float32))
    offs = tl.arange(0, B)
    tl.store(p + offs, tl.load(x + offs))


@expect(reads="x", writes="y")
@triton.jit
def takes_a_whole_block_through_integers(x, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    addresses = (y + offs).to(tl.int64) + 16
    tl.store(addresses.to(tl.pointer_type(tl.float32)), tl.load(x + offs))


@expect(reads="x", writes="y")
@triton.jit
def reaches_one_tensor_by_its_distance_from_another(x, y, B: tl.constexpr = 16):
    distance = y.to(tl.int64) - x.to(tl.int64)
    p = (x.to(tl.int64) + distance).to(tl.pointer_type(tl.float32))
    offs = tl.arange(0, B)
    tl.store(p + offs, tl.load(x + offs))


@expect(reads="x", writes="y")
@triton.jit
def adds_a_distance_to_a_byte_pointer(x, y, B: tl.constexpr = 16):
    distance = y.to(tl.int64) - x.to(tl.int64)
    p = (x.to(tl.pointer_type(tl.int8)) + distance).to(tl.pointer_type(tl.float32))
    offs = tl.arange(0, B)
    tl.store(p + offs, tl.load(x + offs))


@expect(reads="x", writes="y")
@triton.jit
def aligns_an_address_down(x, y, B: tl.constexpr = 16):
    p = (y.to(tl.int64) & -16).to(tl.pointer_type(tl.float32))
    offs = tl.arange(0, B)
    tl.store(p + offs, tl.load(x + offs))


@expect(reads="x", writes="y")
@triton.jit
def indexes_by_bits_of_an_address(x, y, B: tl.constexpr = 16):
    low = (x.to(tl.int64) & 15).to(tl.int32)
    tl.store(y + low + tl.arange(0, B), tl.load(x))


@expect(reads="x", writes="y")
@triton.jit
def indexes_by_the_remainder_of_an_address(x, y, n, B: tl.constexpr = 16):
    bank = (x.to(tl.int64) % n).to(tl.int32)
    tl.store(y + bank + tl.arange(0, B), tl.load(x))


@expect(writes="long_out")
@triton.jit
def stores_an_address_as_a_value(x, long_out):
    tl.store(long_out, x.to(tl.int64))


@expect(writes="long_out")
@triton.jit
def stores_a_distance_in_elements(x, y, long_out):
    tl.store(long_out, (x.to(tl.int64) - y.to(tl.int64)) // 4)


@expect(writes="y")
@triton.jit
def compares_addresses(x, y, B: tl.constexpr = 16):
    same = x.to(tl.int64) == y.to(tl.int64)
    tl.store(y + tl.arange(0, B), same.to(tl.float32))


@expect(reads="x", writes="y")
@triton.jit
def casts_the_pointee(x, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    bits = tl.load(x.to(tl.pointer_type(tl.int32)) + offs)
    tl.store(y.to(tl.pointer_type(tl.int32)) + offs, bits)


@expect(reads="x", writes="y")
@triton.jit
def casts_a_block_of_pointers(x, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    bits = tl.load((x + offs).to(tl.pointer_type(tl.int32), bitcast=True))
    tl.store((y + offs).to(tl.pointer_type(tl.int32), bitcast=True), bits)


@expect(reads="x y", writes="out")
@triton.jit
def joins_pointers(x, y, out, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    both = tl.join((x + offs).to(tl.int64), (y + offs).to(tl.int64)).to(tl.pointer_type(tl.float32))
    total = tl.sum(tl.load(both), axis=1)
    tl.store(out + offs, total)


@expect(reads="x", writes="y")
@triton.jit
def joins_and_splits_pointers(x, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    both = tl.join((x + offs).to(tl.int64), (y + offs).to(tl.int64))
    source, sink = tl.split(both)
    tl.store(sink.to(tl.pointer_type(tl.float32)), tl.load(source.to(tl.pointer_type(tl.float32))))


@expect(reads="x", writes="y")
@triton.jit
def reshapes_and_transposes_pointers(x, y, B: tl.constexpr = 4):
    offs = tl.arange(0, B * B)
    source = tl.trans(tl.reshape((x + offs).to(tl.int64), (B, B))).to(tl.pointer_type(tl.float32))
    sink = tl.reshape((y + offs).to(tl.int64), (B, B)).to(tl.pointer_type(tl.float32))
    tl.store(sink, tl.load(source))


@expect(reads="x", writes="y")
@triton.jit
def broadcasts_pointers(x, y, B: tl.constexpr = 4):
    rows = (x + tl.arange(0, B))[:, None]
    source = tl.broadcast_to(rows, (B, B))
    offs = tl.arange(0, B)[:, None] * B + tl.arange(0, B)[None, :]
    tl.store(y + offs, tl.load(source))


@expect(reads="x", writes="y")
@triton.jit
def shifts_and_multiplies_offsets(x, y, n, B: tl.constexpr = 16):
    offs = (tl.arange(0, B) << 1) + (n >> 2) - (n // 5)
    tl.store(y + offs, tl.load(x + offs))


@expect(reads="x y", writes="out", may="read:y")
@triton.jit
def takes_the_lower_of_two_addresses(x, y, out, flag, B: tl.constexpr = 16):
    low = tl.where(flag > 0, x.to(tl.int64), y.to(tl.int64)).to(tl.pointer_type(tl.float32))
    tl.store(out + tl.arange(0, B), tl.load(low))


@expect(reads="x", writes="y")
@triton.jit
def doubles_and_halves_an_address(x, y, B: tl.constexpr = 16):
    twice = y.to(tl.int64) * 2
    p = (twice - y.to(tl.int64)).to(tl.pointer_type(tl.float32))
    tl.store(p + tl.arange(0, B), tl.load(x))


@expect(reads="x", writes="y")
@triton.jit
def sums_up_a_long_address(x, y, n, B: tl.constexpr = 16):
    address = y.to(tl.int64)
    for i in tl.static_range(300):
        address += n - n + i - i
    distance = address - x.to(tl.int64)
    p = (x.to(tl.int64) + distance).to(tl.pointer_type(tl.float32))
    tl.store(p + tl.arange(0, B), tl.load(x))


@expect(reads="x y", writes="out")
@triton.jit
def goes_from_either_of_two_to_a_third(x, y, out, k, B: tl.constexpr = 16):
    start = x
    for _ in range(k):
        distance = out.to(tl.int64) - start.to(tl.int64)
        p = (start.to(tl.int64) + distance).to(tl.pointer_type(tl.float32))
        tl.store(p + tl.arange(0, B), tl.load(start))
        start = y


@expect(reads="x y", writes="out")
@triton.jit
def joins_pointers_themselves(x, y, out, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    both = tl.join(x + offs, y + offs)
    tl.store(out + offs, tl.sum(tl.load(both), axis=1))


@expect(reads="x", writes="y")
@triton.jit
def splits_pointers_themselves(x, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    source, sink = tl.split(tl.join(x + offs, y + offs))
    tl.store(sink, tl.load(source))


@expect(reads="x", writes="y")
@triton.jit
def reshapes_pointers_themselves(x, y, B: tl.constexpr = 4):
    offs = tl.arange(0, B * B)
    source = tl.trans(tl.reshape(x + offs, (B, B)))
    sink = tl.reshape(y + offs, (B, B))
    tl.store(sink, tl.load(source))


@expect(reads="x", writes="y")
@triton.jit
def goes_through_an_unsigned_integer(x, y, B: tl.constexpr = 16):
    p = (y.to(tl.uint64) + 16).to(tl.pointer_type(tl.float32))
    offs = tl.arange(0, B)
    tl.store(p + offs, tl.load(x + offs))


@expect(reads="idx", writes="y")
@triton.jit
def walks_until_a_value_is_found(idx, y):
    p = idx
    while tl.load(p) < 5:
        p += 1
    tl.store(y, tl.load(p).to(tl.float32))

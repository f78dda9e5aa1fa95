"""Triton functions that rewritten kernels call: they store times and values. They run on the device, never here.

Other rooms take their text. ``tl`` is Triton's language in a kernel, Gluon's in a kernel in Gluon.

Every thread of a program reads the same clock and SM number; of a scalar store, the first thread's counts. The
assembly is not pure and names memory as changed, so that compilers keep it where it stands
(https://docs.nvidia.com/cuda/parallel-thread-execution/#special-registers).
"""

# The names of Triton's language are filled in where the text is compiled, and its types are those of traced values.
# mypy: ignore-errors
# ruff: noqa: F821, RET503

from __future__ import annotations


def kl_program():
    """The number of the program in the grid, x first."""
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    return x.to(tl.int64) + tl.num_programs(0) * (y.to(tl.int64) + tl.num_programs(1) * z.to(tl.int64))


def kl_sm():
    """The number of the SM."""
    return tl.inline_asm_elementwise("mov.u32 $0, %smid;", "=r,~{memory}", [], dtype=tl.int32, is_pure=False, pack=1)


def kl_nanoseconds():
    """The time of the device in ns."""
    return tl.inline_asm_elementwise(
        "mov.u64 $0, %globaltimer;", "=l,~{memory}", [], dtype=tl.int64, is_pure=False, pack=1
    )


def kl_cycles():
    """The clock of the SM in cycles."""
    return tl.inline_asm_elementwise("mov.u64 $0, %clock64;", "=l,~{memory}", [], dtype=tl.int64, is_pure=False, pack=1)


def kl_begin(times, width: tl.constexpr):
    """Store SM and start of the program; its row of the table."""
    row = times + kl_program() * width
    tl.store(row, kl_sm().to(tl.int64))
    tl.store(row + 1, kl_nanoseconds())
    return row


def kl_end(row):
    """Store the end of the program, when all its warps are there."""
    tl.debug_barrier()
    tl.store(row + 2, kl_nanoseconds())


def kl_begin_parts(row):
    """The clock at the start of the first part, and the column of that part."""
    return kl_cycles(), tl.full((), 3, tl.int32)


def kl_mark(row, since, part, next_part: tl.constexpr):
    """Add the cycles since the last mark to the part that ends; the clock and the column of the next."""
    tl.debug_barrier()
    now = kl_cycles()
    tl.atomic_add(row + part, now - since, sem="relaxed")
    return now, tl.full((), next_part, tl.int32)


def kl_dtype_code(dtype):
    """The number of a type in `DTYPES`; of a pointer, that of its elements and `POINTER` more."""
    is_pointer = dtype.is_ptr()
    names = KL_DTYPES  # Triton refuses a method of a global
    return names.index((dtype.element_ty if is_pointer else dtype).name) + (KL_POINTER if is_pointer else 0)


def kl_is_known(kind):
    """Whether a log can hold tensors of a type; it holds no block pointer, and no layout that cannot be a row."""
    names, inferred = KL_DTYPES, KL_INFERRED
    element, layout = kind.scalar, getattr(kind, "layout", None)
    return type(layout).__name__ not in inferred and (element.element_ty if element.is_ptr() else element).name in names


def kl_is_truth(value):
    """Whether a number is True or False."""
    return isinstance(value, bool)


def kl_stored_bytes(dtype):
    """The bytes of an element as it is stored: addresses as int64, truth values as int8."""
    return 8 if dtype.is_ptr() else max(8, dtype.primitive_bitwidth) // 8


def kl_open(log, slots: tl.constexpr, region_words: tl.constexpr):
    """The region of this program in a log; that of all programs that are not recorded is the last."""
    places = tl.arange(0, slots)
    here = tl.load(log + places) == kl_program()
    place = tl.min(tl.where(here, places, slots), axis=0)
    return log + slots + place.to(tl.int64) * region_words


def kl_gluon_open(log, slots: tl.constexpr, region_words: tl.constexpr):
    """`kl_open` in Gluon, where a vector needs a layout: one slot after the other."""
    program = kl_program()
    region = log + slots + slots * region_words
    for place in range(slots):
        region = tl.where(tl.load(log + place) == program, log + slots + place.to(tl.int64) * region_words, region)
    return region


def kl_reserve(region, words: tl.constexpr):
    """The place of the next entry of a region, from its begin; -1 where the program is not recorded, or it is full.

    A region begins with its length so far, whether it is recorded, and its capacity.
    """
    place = tl.full((), -1, tl.int64)
    if tl.load(region + 1) != 0:
        at = tl.atomic_add(region, words, sem="relaxed")
        place = tl.where(at + words <= tl.load(region + 2), at, place)
    return place


def kl_note(region, site: tl.constexpr, part: tl.constexpr = 0):
    """Add an entry without a value."""
    place = kl_reserve(region, 8)
    if place >= 0:
        tl.store(region + place, site)
        tl.store(region + place + 1, part)
        tl.store(region + place + 2, -1)


def kl_iterate(region, site: tl.constexpr):
    """Add the entry of an iteration; the barrier keeps the compiler from running parts of a later one before it."""
    tl.debug_barrier()
    kl_note(region, site)


def kl_put(region, value, site: tl.constexpr, part: tl.constexpr):
    """Add an entry with a tensor: site, part, type, rank, shape, then its elements in their order."""
    words: tl.constexpr = 8 + (value.numel * kl_stored_bytes(value.dtype) + 7) // 8
    place = kl_reserve(region, words)
    if place >= 0:
        head = region + place
        tl.store(head, site)
        tl.store(head + 1, part)
        tl.store(head + 2, kl_dtype_code(value.dtype))
        if value.type.is_block():
            tl.store(head + 3, len(value.shape))
            for axis in tl.static_range(len(value.shape)):
                tl.store(head + 4 + axis, value.shape[axis])
            kl_store_tile(head + 8, value)
        else:
            tl.store(head + 3, 0)
            kl_store_elements(head + 8, value, 0)


def kl_store_tile(to, value):
    """Store the elements of a tensor in their order."""
    kl_store_elements(to, tl.reshape(value, [value.numel]), tl.arange(0, value.numel))


def kl_gluon_store_tile(to, value):
    """`kl_store_tile` in Gluon: the offsets have the layout that the elements have in a row."""
    row = tl.reshape(value, [value.numel])
    kl_store_elements(to, row, tl.arange(0, value.numel, layout=row.type.layout))


def kl_store_elements(to, value, offsets):
    """Store elements in a row as they are; addresses as int64, truth values as int8."""
    if value.dtype.is_ptr():
        tl.store(to + offsets, value.to(tl.int64))
    elif value.dtype.is_int1():
        tl.store(to.to(tl.pointer_type(tl.int8), bitcast=True) + offsets, value.to(tl.int8))
    else:
        tl.store(to.to(tl.pointer_type(value.dtype), bitcast=True) + offsets, value)


def kl_keep_one(region, value, site: tl.constexpr, part: tl.constexpr):
    """Add an entry with a tensor or a number; other values, such as types and descriptors, are left out."""
    if isinstance(value, tl.tensor):
        if kl_is_known(value.type):
            kl_put(region, value, site, part)
    elif isinstance(value, int):
        kl_put(region, tl.full((), value, tl.int1 if kl_is_truth(value) else tl.int64), site, part)
    elif isinstance(value, float):
        kl_put(region, tl.full((), value, tl.float64), site, part)


def kl_keep(region, value, site: tl.constexpr):
    """Add an entry with a value, or one for each member of a tuple, as parts from 1."""
    if isinstance(value, tl.tuple):
        for index in tl.static_range(len(value)):
            kl_keep_one(region, value[index], site, index + 1)
    else:
        kl_keep_one(region, value, site, 0)


def kl_access(region, site: tl.constexpr, pointer, mask, value):
    """Add the entries of an access: its addresses, its mask, then its value."""
    kl_keep_one(region, pointer, site, 1)
    if mask is not None:
        kl_keep_one(region, mask, site, 2)
    kl_keep_one(region, value, site, 0)


def kl_operand(pointer, value):
    """A value cast to the element type of a pointer, as it is stored; truth values as int8."""
    element = pointer.dtype.element_ty.scalar  # of a block pointer, that of its block
    return tl.cast(value, tl.int8 if element.is_int1() else element)


def kl_load(
    region,
    site: tl.constexpr,
    pointer,
    mask=None,
    other=None,
    cache_modifier: tl.constexpr = None,  # Triton 3.6 takes no string as a default
    eviction_policy: tl.constexpr = None,
    volatile: tl.constexpr = False,
):
    """A load, with its entries."""
    value = tl.load(
        pointer, mask, other, cache_modifier=cache_modifier, eviction_policy=eviction_policy, volatile=volatile
    )
    kl_access(region, site, pointer, mask, value)
    return value


def kl_load_block(
    region,
    site: tl.constexpr,
    pointer,
    mask=None,
    other=None,
    boundary_check: tl.constexpr = (),
    padding_option: tl.constexpr = None,
    cache_modifier: tl.constexpr = None,
    eviction_policy: tl.constexpr = None,
    volatile: tl.constexpr = False,
):
    """A load through a block pointer, with its value as entry. Triton before 3.8 has these."""
    value = tl.load(
        pointer,
        mask,
        other,
        boundary_check=boundary_check,
        padding_option=padding_option,
        cache_modifier=cache_modifier,
        eviction_policy=eviction_policy,
        volatile=volatile,
    )
    kl_keep_one(region, value, site, 0)
    return value


def kl_store_block(
    region,
    site: tl.constexpr,
    pointer,
    value,
    mask=None,
    boundary_check: tl.constexpr = (),
    cache_modifier: tl.constexpr = None,
    eviction_policy: tl.constexpr = None,
):
    """A store through a block pointer, with its value as entry."""
    kl_keep_one(region, kl_operand(pointer, value), site, 0)
    tl.store(
        pointer,
        value,
        mask,
        boundary_check=boundary_check,
        cache_modifier=cache_modifier,
        eviction_policy=eviction_policy,
    )


def kl_store(
    region,
    site: tl.constexpr,
    pointer,
    value,
    mask=None,
    cache_modifier: tl.constexpr = None,  # Triton 3.6 takes no string as a default
    eviction_policy: tl.constexpr = None,
):
    """A store, with its entries."""
    kl_access(region, site, pointer, mask, kl_operand(pointer, value))
    tl.store(pointer, value, mask, cache_modifier=cache_modifier, eviction_policy=eviction_policy)


def kl_atomic_add(
    region, site: tl.constexpr, pointer, val, mask=None, sem: tl.constexpr = None, scope: tl.constexpr = None
):
    """An atomic addition, with its entries; the other atomics are this text under their names."""
    kl_access(region, site, pointer, mask, kl_operand(pointer, val))
    return tl.atomic_add(pointer, val, mask=mask, sem=sem, scope=scope)


def kl_atomic_cas(region, site: tl.constexpr, pointer, cmp, val, sem: tl.constexpr = None, scope: tl.constexpr = None):
    """An atomic compare-and-swap, with its entries."""
    kl_access(region, site, pointer, None, kl_operand(pointer, val))
    return tl.atomic_cas(pointer, cmp, val, sem=sem, scope=scope)


def kl_descriptor_load(region, site: tl.constexpr, descriptor, offsets):
    """A load through a descriptor, with its entry."""
    value = descriptor.load(offsets)
    kl_keep_one(region, value, site, 0)
    return value


def kl_descriptor_store(region, site: tl.constexpr, descriptor, offsets, value=None):
    """A store through a descriptor, with its entry; of a tensor of pointers, the method's value and mask."""
    if isinstance(descriptor, tl.tensor):
        kl_store(region, site, descriptor, offsets, value)
    else:
        kl_keep_one(region, tl.cast(value, descriptor.dtype), site, 0)
        descriptor.store(offsets, value)


def kl_descriptor_gather(region, site: tl.constexpr, descriptor, rows, column):
    """A load of some rows through a descriptor, with its entry; of a tensor, its method, which is not an access."""
    value = descriptor.gather(rows, column)
    if isinstance(descriptor, tl.tensor):
        kl_keep_one(region, value, site, 3)  # `NO_ACCESS`
    else:
        kl_keep_one(region, value, site, 0)
    return value


def kl_descriptor_scatter(region, site: tl.constexpr, descriptor, value, rows, column):
    """A store of some rows through a descriptor, with its entry."""
    kl_keep_one(region, tl.cast(value, descriptor.dtype), site, 0)
    descriptor.scatter(value, rows, column)


def kl_descriptor_atomic_add(region, site: tl.constexpr, descriptor, offsets, value=None):
    """An atomic addition as `kl_descriptor_store` is a store; the other atomics are this text under their names."""
    if isinstance(descriptor, tl.tensor):
        return kl_atomic_add(region, site, descriptor, offsets, value)
    kl_keep_one(region, tl.cast(value, descriptor.dtype), site, 0)
    descriptor.atomic_add(offsets, value)

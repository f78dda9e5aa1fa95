"""Configs by workload: candidates for a pointwise kernel, a reduction, a product or an attention.

The rules are those of Inductor for GPUs of NVIDIA and AMD (torch/_inductor/runtime/triton_heuristics.py), and the tests
compare the two. An extent is a number of elements, or a `range` of such numbers for a kernel of many sizes; numbers are
rounded up to powers of two, which Inductor calls size hints. Matmul and attention are spaces, for a search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Literal, get_args

from kernellab.errors import UsageError, choice_message
from kernellab.target import DEFAULT_TARGET, Target, parse_target, shared_bytes_limit
from kernellab.timing.config import Config, Space
from kernellab.tune.workloads.blocks import (
    MAX_BLOCK,
    MAX_GRID,
    DeviceRules,
    Numel,
    distinct,
    for_all_hints,
    generator,
    hints_of,
    power_of_two,
    rules_of,
    with_waves,
)

__all__ = [
    "MAX_BLOCK",
    "MAX_GRID",
    "Hint",
    "Numel",
    "attention",
    "matmul",
    "persistent_reduction",
    "pointwise",
    "reduction",
]

_FLAT: dict[int, list[tuple[int, ...]]] = {
    2: [(32, 32), (64, 64), (256, 16), (16, 256)],
    3: [(16, 16, 16), (64, 8, 8), (8, 64, 8), (8, 8, 64)],
}

Hint = Literal["inner", "outer", "tiny", "default"]

_MAX_PERSISTENT_NUMEL = 4096
_SHARED_BYTES = shared_bytes_limit(parse_target(DEFAULT_TARGET)) or 0


@dataclass(frozen=True, slots=True)
class _Wish:
    """A block to start from; ``per_warp`` is in elements, ``num_warps`` overrides it."""

    shape: tuple[int, ...]
    per_warp: int = 256
    num_warps: int | None = None
    num_stages: int = 1
    waves_per_eu: int | None = None


@generator
def pointwise(*numels: Numel, target: Target | str = DEFAULT_TARGET) -> list[Config]:
    """Return configs with ``XBLOCK``, ``YBLOCK``, ``ZBLOCK`` for a pointwise kernel over one to three extents.

    Raises:
        UsageError: there are no extents, or more than three; or one is a range without members.
    """
    if not 1 <= len(numels) <= 3:
        raise UsageError(f"pointwise takes one to three extents, and got {len(numels)}.")
    rules = rules_of(target)

    def of(*hints: int) -> Iterator[Config]:
        return (_config(rules, hints, wish) for wish in _wishes(hints, rules))

    return for_all_hints(of, *numels)


def _wishes(hints: tuple[int, ...], rules: DeviceRules) -> list[_Wish]:
    """Return the starting blocks for a device: the common ones, then those for AMD only."""
    block = max(256, min(prod(hints) // 128, 1024))
    if len(hints) == 1:
        wishes = [_Wish((block,)), _Wish((block // 2,), per_warp=64)]
        amd = [
            _Wish((rules.max_block("X"),), waves_per_eu=2),
            _Wish((4096,)),
            _Wish((2048,), num_warps=8, num_stages=2, waves_per_eu=1),
        ]
    else:
        rods = [tuple(block if at == axis else 1 for at in range(len(hints))) for axis in range(len(hints))]
        wishes = [_Wish(shape) for shape in (*_FLAT[len(hints)], *rods)]
        amd = [_Wish(shape) for shape in ((64, 32), (128, 16), (128, 32), (32, 512)) if len(hints) == 2]
    return wishes + amd if rules.is_amd else wishes


def _config(rules: DeviceRules, hints: tuple[int, ...], wish: _Wish) -> Config:
    """Return a config with a block of the wished size, reshaped to fit the extents and the grid."""
    blocks = _fit_blocks(rules, hints, wish.shape)
    warps = wish.num_warps
    if warps is None:
        warps = rules.warps(prod(blocks) // wish.per_warp, least=1)
    if prod(blocks) >= 128 and not rules.is_amd:
        warps = max(warps, 4)
    blocks[0] = min(rules.within_grid(blocks[0], hints[0], warps), hints[0])
    named = [(f"{axis}BLOCK", block) for axis, block in zip("XYZ", blocks, strict=False)]
    return Config(with_waves(named, wish.waves_per_eu), num_warps=warps, num_stages=wish.num_stages)


def _fit_blocks(rules: DeviceRules, hints: tuple[int, ...], shape: tuple[int, ...]) -> list[int]:
    goal = prod(shape)
    if prod(hints) < goal:
        goal //= 8
    blocks = [min(block, hint) for block, hint in zip(shape, hints, strict=True)]
    for place, (hint, axis) in enumerate(zip(hints, "XYZ", strict=False)):
        while blocks[place] < min(hint, rules.max_block(axis)) and (
            blocks[place] * MAX_GRID[axis] < hint or prod(blocks) < goal
        ):
            blocks[place] *= 2
    return blocks


@dataclass(frozen=True, slots=True)
class _Extents:
    """The kept extent and the reduced one, as powers of two, with the rules of a device."""

    rules: DeviceRules
    x: int
    r: int
    hint: Hint = "default"

    def config(
        self,
        x_block: int,
        r_block: int,
        *,
        num_warps: int | None = None,
        min_warps: int = 2,
        register_intensive: bool = False,
        waves_per_eu: int | None = None,
    ) -> Config:
        """Return a config with blocks of these sizes, limited by the extents and the grid."""
        rows, part = min(x_block, self.x), min(r_block, self.r, self.rules.max_block("R0_"))
        goal = rows * part
        if num_warps is None:
            num_warps = r_block // 128 if self.hint == "inner" else goal // 128
        most = 16 if r_block <= 8192 else 32
        warps = self.rules.warps(num_warps, most=most, least=min_warps, register_intensive=register_intensive)
        rows = self.rules.within_grid(rows, self.x, warps)
        while rows * part > goal and part > 1:
            part //= 2
        blocks = [("XBLOCK", rows), ("R0_BLOCK", part)]
        return Config(with_waves(blocks, waves_per_eu), num_warps=warps, num_stages=1)


@generator
def reduction(
    xnumel: Numel, rnumel: Numel, hint: Hint = "default", *, target: Target | str = DEFAULT_TARGET
) -> list[Config]:
    """Return configs with ``XBLOCK`` and ``R0_BLOCK`` for a reduction of ``rnumel`` elements into each of ``xnumel``.

    ``hint`` says along what memory runs: ``inner`` is the reduced dimension, ``outer`` the kept one, ``tiny`` the kept
    one with few elements to reduce. A hint gives one config.
    """
    return _for_all_extents(_looping_configs, xnumel, rnumel, hint, target)


@generator
def persistent_reduction(
    xnumel: Numel, rnumel: Numel, hint: Hint = "default", *, target: Target | str = DEFAULT_TARGET
) -> list[Config]:
    """Return configs with ``XBLOCK`` for a reduction that holds whole rows in registers; a hint leaves few of them."""
    configs = _for_all_extents(_persistent_configs, xnumel, rnumel, hint, target)
    kept = (tuple(pair for pair in config.parameters if pair[0] != "R0_BLOCK") for config in configs)
    return distinct(replace(config, parameters=pairs) for config, pairs in zip(configs, kept, strict=True))


def _looping_configs(extents: _Extents) -> list[Config]:
    """Return the configs of a reduction that loops over its elements, for one hint or all."""
    rules, make, r = extents.rules, extents.config, extents.r
    longest = min(r, 1024 if rules.generation >= 10 else 2048)
    hinted = {
        "inner": make(2 if r <= 2048 else 1, longest),
        "outer": make(*((64, 8) if rules.is_amd else _outer_blocks(extents.x, r))),
        "tiny": make(_tiny_rows(r), longest),
    }
    if extents.hint in hinted:
        return [hinted[extents.hint]]
    more = [make(64, 64), make(8, 512), make(64, 4, num_warps=8)]
    if rules.is_amd:
        more += [make(1024, 8, num_warps=4, waves_per_eu=2), make(512, 8, num_warps=4, waves_per_eu=1)]
    return distinct([*hinted.values(), *more])


def _outer_blocks(x: int, r: int) -> tuple[int, int]:
    """Return rows and elements for a reduction along the slow dimension."""
    if x <= 1024:
        return max(min(x // 128, 8), 2), min(r, 64)
    if x // 4096 <= 8:
        return 16, 32
    rows = max(min(256, power_of_two(x // 4096)), 64)
    return rows, 512 // rows


def _tiny_rows(r: int) -> int:
    """Return the number of short rows per program."""
    return 2 * (256 // r) if r <= 256 else 1


def _persistent_configs(extents: _Extents) -> list[Config]:
    x, r, hint, rules = extents.x, extents.r, extents.hint, extents.rules
    row_blocks = (1, 4, 8, 16, 32, 64, 128, 256) if rules.is_amd else (1, 8, 32, 128)
    configs = [
        extents.config(block, r, register_intensive=True)
        for block in row_blocks
        if block == 1 or (r * block <= _MAX_PERSISTENT_NUMEL and block <= x)
    ]
    if hint == "inner" and r >= 256:
        if r > 1024 or x // 8 < 128:
            return configs[:1]
        return [extents.config(min(1024 // r, 8), r, register_intensive=True, num_warps=1, min_warps=1)]
    tiny = replace(extents, hint="default").config(_tiny_rows(r), r)
    return {"outer": configs[-1:], "tiny": [tiny]}.get(hint, configs)


def _for_all_extents(
    rule: Callable[[_Extents], list[Config]], xnumel: Numel, rnumel: Numel, hint: Hint, target: Target | str
) -> list[Config]:
    """Return the distinct configs of a rule for the extents; `UsageError` for a wrong hint, target or extent."""
    rules = rules_of(target)
    if hint not in get_args(Hint):
        raise UsageError(choice_message("hint", hint, get_args(Hint)))
    return for_all_hints(lambda x, r: rule(_Extents(rules, x, r, hint)), xnumel, rnumel)


@generator
def matmul(m: Numel, n: Numel, k: Numel, *, target: Target | str = DEFAULT_TARGET, element_bytes: int = 2) -> Space:
    """Return the space of a tiled product: ``BLOCK_M``, ``BLOCK_N``, ``BLOCK_K``, ``GROUP_M``, warps and stages.

    The tiles of elements of ``element_bytes`` fit into the shared memory of the target, and a thread accumulates 16 to
    256 elements. On AMD, ``waves_per_eu`` is searched, too.
    """
    rules = rules_of(target)
    warp, limit = rules.warp_size, _shared_elements(target, element_bytes)
    return Space(
        BLOCK_M=_blocks(m, 16, 256),
        BLOCK_N=_blocks(n, 16, 256),
        BLOCK_K=_blocks(k, 32 if max(hints_of(k)) > 16 else 16, 128),
        GROUP_M=[8],
        num_warps=[4, 8],
        num_stages=[2, 3] if rules.is_amd else [2, 3, 4, 5],
        **({"waves_per_eu": [0, 2]} if rules.is_amd else {}),
        where=f"{16 * warp} * num_warps <= BLOCK_M * BLOCK_N <= {256 * warp} * num_warps and "
        f"(BLOCK_M + BLOCK_N) * BLOCK_K * {_buffers(rules.is_amd)} <= {limit}",
    )


@generator
def attention(
    queries: Numel, keys: Numel, width: int, *, target: Target | str = DEFAULT_TARGET, element_bytes: int = 2
) -> Space:
    """Return the space of a fused attention: ``BLOCK_M`` queries against ``BLOCK_N`` keys, warps and stages.

    The queries and the keys and values in flight, of ``width`` elements each, fit into the shared memory of the target.
    """
    rules = rules_of(target)
    limit = _shared_elements(target, element_bytes) // max(*hints_of(width), 16)
    return Space(
        BLOCK_M=_blocks(queries, 16, 128),
        BLOCK_N=_blocks(keys, 16, 128),
        num_warps=[4, 8],
        num_stages=[2, 3] if rules.is_amd else [1, 2, 3, 4],
        **({"waves_per_eu": [0, 2]} if rules.is_amd else {}),
        where=f"BLOCK_M >= 4 * num_warps and BLOCK_M + 2 * BLOCK_N * {_buffers(rules.is_amd)} <= {limit}",
    )


def _shared_elements(target: Target | str, element_bytes: int) -> int:
    """Return the elements that fit into a program's shared memory; H100's if the target has no data sheet."""
    parsed = parse_target(target) if isinstance(target, str) else target
    return (shared_bytes_limit(parsed) or _SHARED_BYTES) // element_bytes


def _buffers(is_amd: bool) -> str:
    """The tiles in flight, which lie in shared memory: as many as stages for NVIDIA, and for AMD one less."""
    return "(num_stages - 1)" if is_amd else "num_stages"


def _blocks(numel: Numel, least: int, most: int) -> list[int]:
    """Return the powers of two from ``least`` to the largest extent, at most ``most``."""
    top = max(least, min(most, max(hints_of(numel))))
    return [1 << i for i in range(least.bit_length() - 1, top.bit_length())]

"""The space that is proposed for a kernel without configs: its kind, what varies, and the configs.

The blocks of a kernel have the roles that `kernellab.tune.roles` reads; `workloads` gives values for its kind. The
config of the launch comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby, product
from math import log2, prod

from kernellab.target import Target
from kernellab.timing.config import Config, Space
from kernellab.tune import workloads
from kernellab.tune.graph_facts import DOTS, GraphFacts
from kernellab.tune.roles import FIXED_GRID, WHOLE, Role, RoleKind
from kernellab.tune.workloads.blocks import distinct, power_of_two

MOST_CONFIGS = 48
_MOST_NUMEL = 1 << 20  # of a tensor of Triton
_MOST_PER_THREAD = 128
_LIKELY_PER_THREAD = (4, 16)
_USUAL_NUMEL = 2048
_MOST_THREADS = 1024
_FEW_WARPS = (1, 2, 4, 8)  # of a kernel in which nothing else varies
_LINE_BYTES = 128
_USUAL_STAGES = (3, 4)
_OF_ONE_SHAPE = 8  # configs of a product whose programs have blocks of one shape
_OVERHEAD = 64  # of a block's edge, in elements: what it loads counts as that much work
_LEAST_EXTENT = 1


class KernelKind(StrEnum):
    """The kinds of kernels for which spaces are proposed; the texts are those of sentences."""

    ELEMENTWISE = "an elementwise kernel"
    REDUCTION = "a reduction"
    PERSISTENT_REDUCTION = "a reduction that holds whole rows"
    PRODUCT = "a matrix product"
    SCAN = "a scan"
    ATTENTION = "an attention"
    OTHER = "a kernel of no known kind"


@dataclass(frozen=True, slots=True)
class ProposedSpace:
    """The configs that are proposed for a launch, the launched one first.

    ``roles`` are those of all constexprs; the configs have values for all that vary. ``possible`` are all configs of
    the space, of which ``configs`` are a part.
    """

    kernel: str
    kind: KernelKind
    roles: tuple[Role, ...]
    configs: tuple[Config, ...]
    possible: tuple[Config, ...]

    def where(self, holds: Callable[[Config], bool]) -> ProposedSpace:
        """Return the space with the configs for which a condition holds."""
        kept = {config for config in self.possible if holds(config)}
        configs, possible = (tuple(c for c in listed if c in kept) for listed in (self.configs, self.possible))
        return replace(self, configs=configs, possible=possible)

    @property
    def space(self) -> Space:
        """All configs of the space, for a search that steps or draws."""
        names = list(self.configs[0].values)
        points = sorted({tuple(config.values[name] for name in names) for config in self.possible})
        values = {name: sorted({point[place] for point in points}) for place, name in enumerate(names)}
        return Space(where=f"({', '.join(names)},) in {tuple(points)}", **values)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on the proposed values, on those that stay and why, and on how to pass configs."""
        ranges = []
        for name in self.configs[0].values:
            values = sorted({config.values[name] for config in self.configs})
            if len(values) > 1:
                ranges.append(f"{name} {values[0]} {'or' if len(values) == 2 else 'to'} {values[-1]}")
        part, whole = len(self.configs), len(self.possible)
        total = f"; {part} of {whole} configs" if whole > part else ""
        notes = [f"Proposed for {self.kind}: {', '.join(ranges)}{total}."]
        fixed = [role for role in self.roles if role.kind is RoleKind.FIXED]
        by_grid = [role.name for role in fixed if role.reason == FIXED_GRID]
        others = [f"{role.name}={role.value} ({role.reason})" for role in fixed if role.reason != FIXED_GRID]
        if by_grid:
            example = f', such as lambda meta: (triton.cdiv(n, meta["{by_grid[0]}"]),)' if len(by_grid) == 1 else ""
            notes.append(f"The grid is fixed: pass a function of meta to vary {', '.join(by_grid)}{example}.")
        if others:
            notes.append(f"Not varied: {'; '.join(others)}. configs= gives values of your own.")
        return tuple(notes)


def kind_of(facts: GraphFacts, roles: Sequence[Role]) -> KernelKind:
    """Return the kind of a kernel, from its operations and the roles of its constexprs."""
    names = {operation.name for operation in facts.graph.operations}
    has_loop = any(role.kind is RoleKind.LOOP for role in roles)
    if names & DOTS:
        dots = facts.operations_named(*DOTS)
        after = facts.values_from([value for dot in dots for value in dot.results], carried=False)
        chained = any(after & {*dot.operands[:2]} for dot in dots)
        return KernelKind.ATTENTION if chained else KernelKind.PRODUCT
    if "tt.scan" in names:
        return KernelKind.SCAN
    if "tt.reduce" in names:
        holds_rows = any(role.reason == WHOLE for role in roles) and not has_loop
        return KernelKind.PERSISTENT_REDUCTION if holds_rows else KernelKind.REDUCTION
    return KernelKind.ELEMENTWISE if any(role.is_block for role in roles) else KernelKind.OTHER


_OF_PRODUCTS = frozenset({KernelKind.PRODUCT, KernelKind.ATTENTION})


@dataclass(frozen=True)
class Proposal:
    """The basis of a proposed space: facts of the launch, roles of its constexprs, numbers of warps and stages.

    ``orders`` has the values of each constexpr that orders the programs.
    """

    kernel: str
    facts: GraphFacts
    roles: tuple[Role, ...]
    orders: Mapping[str, Sequence[int]]
    num_warps: int
    num_stages: int
    target: Target
    multiprocessors: int
    varies_warps: bool = True

    def space(self) -> ProposedSpace:
        """Return the space that is proposed."""
        kind = kind_of(self.facts, self.roles)
        launched = self._launched
        generated = [
            self._with_launched_values(config, kind in _OF_PRODUCTS) for config in self._generator_configs(kind)
        ]
        generated = [config for config in generated if self._is_allowed(config)]
        if kind in _OF_PRODUCTS:
            ordered = [launched.with_values({name: value}) for name, values in self.orders.items() for value in values]
            first = distinct([launched, *self._near(launched), *ordered])
            possible = distinct([*first, *generated])
            chosen = [*first, *self._promising(possible[len(first) :])][:MOST_CONFIGS]
        else:
            others = self._with_warps([launched])
            if len(others) < len(_FEW_WARPS) and not generated and self.varies_warps:
                others = [replace(launched, num_warps=warps) for warps in _FEW_WARPS]
            around = self._neighbours(generated)
            low, high = _LIKELY_PER_THREAD
            likely = [config for config in around if low <= self._per_thread(config) <= high]
            possible = distinct([launched, *others, *generated, *likely, *around])
            chosen = possible[:MOST_CONFIGS]
        return ProposedSpace(self.kernel, kind, self.roles, tuple(chosen), tuple(possible))

    @property
    def _blocks(self) -> list[Role]:
        return [role for role in self.roles if role.is_block]

    def _of_kind(self, kind: RoleKind) -> list[Role]:
        return [role for role in self.roles if role.kind is kind]

    @property
    def _launched(self) -> Config:
        varying = [role for role in self.roles if role.kind is not RoleKind.FIXED]
        parameters = tuple((role.name, role.value) for role in varying)
        return Config(parameters, num_warps=self.num_warps, num_stages=self.num_stages)

    def _with_launched_values(self, config: Config, varies_stages: bool) -> Config:
        """Return a config with the names of the launched one, and its values where it has none of its own."""
        launched, values = self._launched, config.values
        parameters = tuple((name, values.get(name, value)) for name, value in launched.parameters)
        warps = config.num_warps if self.varies_warps else launched.num_warps
        stages = config.num_stages if varies_stages else launched.num_stages
        return replace(launched, parameters=parameters, num_warps=warps, num_stages=stages)

    def _generator_configs(self, kind: KernelKind) -> list[Config]:
        """Return the configs of the generator for a kind, under the names of the kernel's own constexprs."""
        programs, loops = self._of_kind(RoleKind.PROGRAMS), self._of_kind(RoleKind.LOOP)
        if kind in {KernelKind.ELEMENTWISE, KernelKind.REDUCTION} and 1 <= len(programs) <= 3 and not loops:
            configs = workloads.pointwise(*map(_block_extent, programs), target=self.target)
            return _configs_of_roles(configs, zip(("XBLOCK", "YBLOCK", "ZBLOCK"), programs, strict=False))
        if kind in {KernelKind.REDUCTION, KernelKind.SCAN} and len(programs) <= 1 and len(loops) == 1:
            rows = _block_extent(programs[0]) if programs else self.facts.grid[0]
            configs = workloads.reduction(max(rows, 1), _block_extent(loops[0]), target=self.target)
            return _configs_of_roles(configs, [*(("XBLOCK", role) for role in programs), ("R0_BLOCK", loops[0])])
        if kind is KernelKind.PERSISTENT_REDUCTION and len(programs) == 1:
            row = max(self._numel // (programs[0].value if programs[0].in_tensors else 1), 1)
            configs = workloads.persistent_reduction(_block_extent(programs[0]), row, target=self.target)
            return _configs_of_roles(configs, [("XBLOCK", programs[0])])
        if kind is KernelKind.PRODUCT and self._blocks:
            return self._products()
        if kind is KernelKind.ATTENTION:
            return self._attentions(programs, loops)
        return []

    def _attentions(self, programs: Sequence[Role], loops: Sequence[Role]) -> list[Config]:
        """Return the configs of attentions; with a fixed grid, queries come in blocks of the launched size."""
        rows = programs or [role for role in self.roles if role.reason == FIXED_GRID]
        if not len(rows) == len(loops) == 1:
            return []
        values = self.facts.operations_named(*DOTS)[-1].operands[1]  # of the attention
        width = self.facts.graph.values[values].shape[-1]
        queries, keys = _block_extent(rows[0]), _block_extent(loops[0])
        space: Iterable[Config] = workloads.attention(
            queries, keys, width, target=self.target, element_bytes=self._dot_bytes
        )
        if not programs:
            space = [config for config in space if config.values["BLOCK_M"] == rows[0].value]
        return _configs_of_roles(space, [*(("BLOCK_M", role) for role in programs), ("BLOCK_N", loops[0])])

    def _products(self) -> list[Config]:
        """Return the configs of products; the block of a fixed dimension keeps its launched value."""
        dot = self.facts.operations_named(*DOTS)[0]
        left, right = (self.facts.graph.values[operand].shape[-2:] for operand in dot.operands[:2])
        tile = {"M": left[0], "N": right[1], "K": left[1]}
        of_dimension = {name: role for role in self._blocks for name in role.dimensions}
        extents = [_block_extent(of_dimension[name]) if name in of_dimension else tile[name] for name in "MNK"]
        space = workloads.matmul(*extents, target=self.target, element_bytes=self._dot_bytes)
        others = [name for name in tile if name not in of_dimension]
        fitting = [c for c in space if all(c.values[f"BLOCK_{name}"] == tile[name] for name in others)]
        pairs = [(f"BLOCK_{name}", role) for name, role in of_dimension.items()]
        block_names = {role.name for role in self._blocks}
        configs = _configs_of_roles(fitting, pairs, one_value=True)
        return [config for config in configs if dict(config.parameters).keys() <= block_names]

    @property
    def _dot_bytes(self) -> int:
        """The bytes of an element of the widest operand of a product."""
        operands = {operand for dot in self.facts.operations_named(*DOTS) for operand in dot.operands[:2]}
        digits = ("".join(filter(str.isdigit, self.facts.graph.values[o].element[:4])) for o in operands)
        return max(max(1, int(bits[:2] or 16) // 8) for bits in digits)

    @property
    def _numel(self) -> int:
        """The elements of the largest tensor of the launch."""
        return max((prod(value.shape) for value in self.facts.graph.values), default=1)

    def _numel_of(self, config: Config) -> float:
        """Return the elements of the largest tensor with a config, if all its blocks are extents of it."""
        values = config.values
        return float(self._numel * prod(values[role.name] / role.value for role in self._blocks if role.in_tensors))

    def _is_allowed(self, config: Config) -> bool:
        """Whether unmasked blocks divide what they cover, and tensors and threads are within the limits."""
        values, threads = config.values, (config.num_warps or 4) * self.target.warp_size
        divide = all(role.masked or _divides(values[role.name], role) for role in self._blocks)
        return divide and threads <= _MOST_THREADS and self._numel_of(config) <= _MOST_NUMEL

    def _with_warps(self, configs: Iterable[Config]) -> list[Config]:
        """Return configs with the numbers of warps that give a thread 1 to 128 elements."""
        if not self.varies_warps:
            return list(configs)
        choices = [1 << power for power in range(6)]
        varied = (replace(config, num_warps=warps) for config in configs for warps in choices)
        return [c for c in varied if self._is_allowed(c) and 1 <= self._per_thread(c) <= _MOST_PER_THREAD]

    def _per_thread(self, config: Config) -> float:
        """Return the elements of the largest tensor for a thread."""
        return self._numel_of(config) / ((config.num_warps or 4) * self.target.warp_size)

    def _neighbours(self, generated: Sequence[Config]) -> list[Config]:
        """Return configs with blocks half to four times as large as others, the nearest first, with all warps."""
        names = [role.name for role in self._blocks]
        known = [self._launched, *generated]
        choices = []
        for role in self._blocks:
            top = max(power_of_two(_block_extent(role)), role.value)
            sizes = {1 << power for power in range(top.bit_length())}
            near = {int(config.values[role.name] * factor) for config in known for factor in (0.5, 1, 2, 4)}
            choices.append(sorted(near & sizes) or [self._launched.values[role.name]])
        blocks = [dict(zip(names, values, strict=True)) for values in product(*choices)] if names else []
        shapes = [self._launched.with_values(values) for values in blocks]
        shapes.sort(key=lambda c: (_steps_between(c, names, known), abs(log2(self._numel_of(c) / _USUAL_NUMEL))))
        return self._with_warps(config for config in shapes if self._is_allowed(config))

    def _near(self, launched: Config) -> list[Config]:
        """Return the launched config with other numbers of warps and stages."""
        warps = sorted({launched.num_warps or 4, 4, 8}) if self.varies_warps else [launched.num_warps]
        stages = sorted({launched.num_stages or 3, 2, 3, 4})
        varied = [replace(launched, num_warps=w, num_stages=s) for w, s in product(warps, stages)]
        return [config for config in varied if self._is_allowed(config)]

    def _promising(self, configs: Sequence[Config]) -> list[Config]:
        """Return some configs of a product for each shape of its programs' blocks, those with the least work first.

        What a shape costs is the number of waves of programs, times a block's elements and the edges that it loads.
        """
        programs = self._of_kind(RoleKind.PROGRAMS)
        planes = prod(self.facts.grid) * prod(role.value for role in programs)
        total = max(planes, prod(map(_block_extent, programs)))  # programs may go from tile to tile

        def shape(config: Config) -> tuple[int, ...]:
            return tuple(config.values[role.name] for role in programs)

        def cost(blocks: tuple[int, ...]) -> float:
            waves = -(-total // prod(blocks) // self.multiprocessors)
            return float(waves * prod(blocks) * (1 + sum(_OVERHEAD / block for block in blocks)))

        ordered = sorted(configs, key=lambda config: (cost(shape(config)), shape(config)))
        shapes = [list(group) for _, group in groupby(ordered, key=shape)]
        most = max(_OF_ONE_SHAPE, MOST_CONFIGS // max(len(shapes), 1))
        return [config for members in shapes for config in sorted(members, key=self._distance_from_usual)[:most]]

    def _distance_from_usual(self, config: Config) -> float:
        """Return the distance of a config from lines of 128 bytes along the loop and from 3 or 4 stages."""
        lines = [config.values[role.name] * self._dot_bytes / _LINE_BYTES for role in self._of_kind(RoleKind.LOOP)]
        return sum(abs(log2(line)) for line in lines) + ((config.num_stages or 3) not in _USUAL_STAGES)


def _block_extent(role: Role) -> int:
    """Return the number of elements that a block divides; where it is not known, sixteen blocks."""
    return max(role.extent or 16 * role.value, _LEAST_EXTENT)


def _divides(block: int, role: Role) -> bool:
    """Whether a block without a mask covers what the launched one covers, and no more."""
    return (role.extent or role.value) % block == 0 or role.value % block == 0


def _configs_of_roles(
    configs: Iterable[Config], names: Iterable[tuple[str, Role]], *, one_value: bool = False
) -> list[Config]:
    """Return configs with the names of roles alone; those that have a block of another name than 1 go.

    With ``one_value``, a role that has several of the names has one value for them, or the config goes.
    """
    pairs, renamed = list(names), list[Config]()
    for config in configs:
        values = config.values
        own: dict[str, int] = {}
        fits = all(own.setdefault(role.name, values[name]) == values[name] for name, role in pairs)
        left = {name: v for name, v in config.parameters if name.endswith("BLOCK")} if not one_value else {}
        if fits and all(value == 1 for name, value in left.items() if name not in dict(pairs)):
            renamed.append(replace(config, parameters=tuple(own.items())))
    return distinct(renamed)


def _steps_between(config: Config, names: Sequence[str], known: Sequence[Config]) -> float:
    """Return the doublings between the blocks of a config and those of the nearest of some others."""
    return min(sum(abs(log2(config.values[name] / other.values[name])) for name in names) for other in known)

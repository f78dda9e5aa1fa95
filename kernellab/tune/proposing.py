"""From a call without configs to the space that is proposed for it: compiles the launch with other values."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod

from kernellab._triton.kernel import heuristic_names, jit_function, jit_kind, parameter_names
from kernellab.compile.cache import Compiler
from kernellab.errors import KernellabError, UsageError, first_line
from kernellab.ir.inlining import inline_calls
from kernellab.launch.calls import MAX_GRID, is_grid_function
from kernellab.source.text import USER_ERRORS
from kernellab.target import multiprocessors
from kernellab.timing.config import NO_CONFIG, Config
from kernellab.timing.launches import KernelLaunch, Launches
from kernellab.tune.differences import Trial
from kernellab.tune.graph_facts import GraphFacts
from kernellab.tune.proposal import Proposal, ProposedSpace
from kernellab.tune.roles import Role, RoleKind, role_of
from kernellab.workers.forks_and_interrupts import Stop
from kernellab.workers.parallel import run_in_parallel

_ORDERS = (1, 4, 8, 16)
GIVE_CONFIGS = "pass configs=[triton.Config(...), ...], or a Space of values"


def propose_space(compiler: Compiler, launches: Launches) -> tuple[Launches, ProposedSpace]:
    """Return the space that is proposed for a call, and the launches of the call without what varies in it.

    Raises:
        UsageError: nothing can be proposed for the kernel, or the call lacks a value to start from.
        LaunchError, CompileError: the call does not fit the kernel, or it does not compile.
    """
    _require_proposable(launches)
    trials = _Trials.of(compiler, launches)
    roles = trials.roles()
    options = dict(trials.launch.job.options)
    proposal = Proposal(
        launches.name,
        trials.base,
        roles,
        {role.name: trials.orders(role) for role in roles if role.kind is RoleKind.ORDER},
        options["num_warps"],
        options["num_stages"],
        launches.target,
        multiprocessors(),
        varies_warps="num_warps" not in heuristic_names(launches.kernel),
    )
    space = proposal.space()
    free = call_without(launches, {*dict(space.configs[0].parameters), "num_warps", "num_stages"})
    return free, space.where(partial(_can_launch, free, _Coverage.of(trials.launch, roles)))


def _require_proposable(launches: Launches) -> None:
    function = jit_function(launches.kernel)
    if jit_kind(function) == "gluon":
        raise UsageError(f"{launches.name} has no configs, and Gluon's layouts fix its warps; {GIVE_CONFIGS}.")
    named = {*launches.given, *heuristic_names(launches.kernel)}
    missing = [p.name for p in function.params if p.is_constexpr and not p.has_default and p.name not in named]
    if missing:
        raise UsageError(
            f"{launches.name} has no configs; {GIVE_CONFIGS}, or call it with {', '.join(missing)}: "
            "from a launch that works, the lab proposes configs."
        )


def call_without(launches: Launches, names: Collection[str]) -> Launches:
    """Return the launches of the same call without some of its arguments and options."""
    parameters = parameter_names(launches.kernel)
    place = next((i for i, name in enumerate(parameters[: len(launches.args)]) if name in names), len(launches.args))
    moved = dict(zip(parameters[place:], launches.args[place:], strict=False))
    meta = {name: value for name, value in {**moved, **launches.meta}.items() if name not in names}
    return Launches(launches.kernel, launches.grid, launches.args[:place], meta, launches.target)


@dataclass(frozen=True, slots=True)
class _Coverage:
    """The programs that blocks of any size need: so many for each tile that the blocks of all programs make.

    A grid such as ``n // BLOCK`` has too few for blocks that do not divide ``n``. ``programs_per_tile`` is None where
    the launched grid has no whole number of them, or where programs go from tile to tile.
    """

    roles: tuple[Role, ...]
    programs_per_tile: int | None

    @classmethod
    def of(cls, launch: KernelLaunch, roles: Sequence[Role]) -> _Coverage:
        """Return the coverage of a launch whose constexprs have these roles."""
        blocks = tuple(role for role in roles if role.kind is RoleKind.PROGRAMS)
        if not blocks or not all(role.of_grid and role.extent for role in blocks):
            return cls((), None)
        tiles = _tile_count(blocks, {role.name: role.value for role in blocks})
        each, rest = divmod(prod(launch.grid), tiles)
        return cls(blocks, None if rest else each)

    def includes(self, grid: Sequence[int], config: Config) -> bool:
        """Whether a grid has the programs that the blocks of a config need, as far as that is known."""
        tiles = _tile_count(self.roles, config.values)
        return self.programs_per_tile is None or prod(grid) >= tiles * self.programs_per_tile


def _tile_count(roles: Sequence[Role], values: Mapping[str, int]) -> int:
    return prod(-(-(role.extent or 1) // values[role.name]) for role in roles)


def _can_launch(launches: Launches, coverage: _Coverage, config: Config) -> bool:
    """Whether a config has a grid that CUDA launches, with a program for each block."""
    launch = _launch_or_reason(launches, config)
    if isinstance(launch, str) or not all(0 < n <= most for n, most in zip(launch.grid, MAX_GRID, strict=True)):
        return False
    return coverage.includes(launch.grid, config)


def _launch_or_reason(launches: Launches, config: Config) -> KernelLaunch | str:
    """Return the launch of a config, or why there is none: also what the user's grid function raises."""
    try:
        return launches.of(config)
    except (KernellabError, *USER_ERRORS) as exc:
        return f"{type(exc).__name__}: {first_line(exc)}"


@dataclass(slots=True)
class _Trials:
    """Launches of one call in which one constexpr has another value, as far as the frontend's graph.

    ``numbers`` are the declared constexprs that are positive integers; ``free`` is the call without them. An integer
    argument of 1, which Triton compiles as a constant, is none of them.
    """

    compiler: Compiler
    launch: KernelLaunch
    free: Launches
    numbers: dict[str, int]
    others: dict[str, str]
    _known: dict[tuple[str, int], GraphFacts | str] = field(default_factory=dict)

    @classmethod
    def of(cls, compiler: Compiler, launches: Launches) -> _Trials:
        """Return the trials of a call."""
        launch = launches.of(NO_CONFIG)
        set_by = set(heuristic_names(launches.kernel))
        numbers, others = dict[str, int](), dict[str, str]()
        for name in (p.name for p in jit_function(launches.kernel).params if p.is_constexpr):
            value = launch.arguments[name]
            if name in set_by:
                others[name] = "set by @triton.heuristics"
            elif type(value) is int and value > 0:
                numbers[name] = value
            else:
                others[name] = "a flag" if isinstance(value, bool) else "no positive integer"
        return cls(compiler, launch, call_without(launches, numbers), numbers, others)

    @property
    def base(self) -> GraphFacts:
        """The facts of the launch as it was asked for."""
        facts = self._known.get(("", 0)) or self._compile_facts(self.launch)
        self._known["", 0] = facts
        assert not isinstance(facts, str), "an error of the launch itself is raised"
        return facts

    def roles(self) -> tuple[Role, ...]:
        """Return the roles of all constexprs, in the order of the parameters."""
        self._prepare([(name, value) for name, number in self.numbers.items() for value in _values_near(number)[:2]])
        by_name = {name: self._role(name, value) for name, value in self.numbers.items()}
        by_name |= {
            name: Role(name, self.launch.arguments[name], RoleKind.FIXED, why) for name, why in self.others.items()
        }
        return tuple(by_name[name] for name, _ in self.launch.job.signature if name in by_name)

    def orders(self, role: Role) -> list[int]:
        """Return the values with which the programs do the same work in another order."""
        here = Trial(role.value, self.base)
        values = [value for value in _ORDERS if value != role.value]
        self._prepare([(role.name, value) for value in values])
        trials = [Trial(v, facts) for v in values if not isinstance(facts := self._facts(role.name, v), str)]
        return [t.value for t in trials if role_of(role.name, role.value, here, t).kind is RoleKind.ORDER]

    def _role(self, name: str, value: int) -> Role:
        facts = {near: self._facts(name, near) for near in _values_near(value)[:2]}
        if any(isinstance(result, str) for result in facts.values()):
            facts |= {near: self._facts(name, near) for near in _values_near(value)[2:]}
        usable = [Trial(near, result) for near, result in facts.items() if not isinstance(result, str)]
        if len(usable) < 2:
            near, why = next((near, result) for near, result in facts.items() if isinstance(result, str))
            return Role(name, value, RoleKind.FIXED, f"{name}={near} is refused: {why.rstrip('.')}")
        follows = self._grid_follows(name, value) if is_grid_function(self.free.grid) else None
        return role_of(name, value, *usable[:2], grid_follows=follows)

    def _grid_follows(self, name: str, value: int) -> bool:
        """Whether the grid is a function of a constexpr: it differs with another value."""
        launches = (self._launch(name, near) for near in (value, 2 * value, max(value // 2, 1), 1))
        return len({launch.grid for launch in launches if not isinstance(launch, str)}) > 1

    def _launch(self, name: str, value: int) -> KernelLaunch | str:
        values = {**self.numbers, name: value}
        return _launch_or_reason(self.free, replace(NO_CONFIG, parameters=tuple(values.items())))

    def _facts(self, name: str, value: int) -> GraphFacts | str:
        """Return the facts of a launch with another value, or why there are none."""
        if value == self.numbers[name]:
            return self.base
        self._prepare([(name, value)])
        return self._known[name, value]

    def _prepare(self, pairs: Sequence[tuple[str, int]]) -> None:
        """Compile launches with other values side by side."""
        wanted = [pair for pair in dict.fromkeys(pairs) if pair not in self._known and pair[1] != self.numbers[pair[0]]]
        launches = {pair: self._launch(*pair) for pair in wanted}
        self._known |= {pair: launch for pair, launch in launches.items() if isinstance(launch, str)}
        sources = [
            partial(self._source, pair, launch) for pair, launch in launches.items() if not isinstance(launch, str)
        ]
        self._known |= dict(run_in_parallel(sources))

    def _source(
        self, pair: tuple[str, int], launch: KernelLaunch, stop: Stop
    ) -> Iterator[tuple[tuple[str, int], GraphFacts | str]]:
        try:
            yield pair, self._compile_facts(launch)
        except KernellabError as exc:
            yield pair, first_line(exc.message)

    def _compile_facts(self, launch: KernelLaunch) -> GraphFacts:
        return GraphFacts(inline_calls(self.compiler.raw_graph(launch.job)), launch.grid, launch.arguments)


def _values_near(value: int) -> list[int]:
    """Return the values to compare; the first two are tried first. A size of 1 removes operations."""
    return [2, 4] if value == 1 else [value, 2 * value, *([value // 2] if value > 2 else [])]

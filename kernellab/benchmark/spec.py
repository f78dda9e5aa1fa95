"""The spec of a benchmark: a kernel, its arguments, the sweep, its peers; and the cases that follow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernellab._triton.kernel import Kernel, autotune_settings, constexpr_names, is_kernel, parameter_names
from kernellab.checking.reference import call_by_name, keyword_names, takes_any_name
from kernellab.errors import UsageError, value_message, value_text
from kernellab.launch.arguments import memory_of
from kernellab.launch.memory import copy_arguments, with_tensors
from kernellab.source import CONFIG_OPTIONS
from kernellab.timing.config import NO_CONFIG, Condition, Config, Space, configs_of, listed_values
from kernellab.timing.launches import KernelLaunch, Launches
from kernellab.workers.forks_and_interrupts import cached_property

VARIANTS = ("version", "config", *CONFIG_OPTIONS)
"""Swept names that do not change the computation: such rows share their inputs, and are timed in turns."""

Formula = Callable[..., float] | float | None
Inputs = Callable[..., Mapping[str, Any]]


@dataclass(frozen=True)
class BenchmarkSpec:
    """The kernel, arguments, sweep and peers of a benchmark.

    ``over`` has the values of each swept name, ``where`` says which combinations are taken. ``inputs`` makes the
    arguments from the swept names that it takes; without it, ``arguments`` are used, and swept names replace
    them. ``versus`` has peers by name: functions of torch, kernels, ``name@version``, or tuples of a kernel, its grid
    and its meta-parameters. ``flops`` and ``bytes`` are formulas over swept names and arguments, or numbers. ``check``
    has the outputs compared on the CPU where there is no GPU.
    """

    kernel: Kernel | str | int
    grid: Any
    arguments: Mapping[str, Any]
    over: Mapping[str, tuple[Any, ...]]
    where: Condition | None = None
    inputs: Inputs | None = None
    versus: Mapping[str, Any] = field(default_factory=dict)
    flops: Formula = None
    bytes: Formula = None
    check: bool = False
    rounds: int = 30
    timeout_s: float = 60.0

    @cached_property
    def points(self) -> list[dict[str, Any]]:
        """The swept values of each point, in the order in which nested loops would give them."""
        space = Space(where=self.where, **self.over)
        points = [space.at(index) for index in range(space.size)]
        allowed = [
            {name: point.values.get(name) for name in self.over} for point in points if space.allows(point.values)
        ]
        if not allowed:
            raise UsageError(f"where={value_text(self.where)} leaves no point of {', '.join(self.over)}.")
        return allowed

    @cached_property
    def case_names(self) -> list[str]:
        """The swept names that change what is computed."""
        return [name for name in self.over if name not in VARIANTS]

    @property
    def cases(self) -> list[dict[str, Any]]:
        """The points without variants: one case per computation."""
        cases: list[dict[str, Any]] = []
        for case in ({name: point[name] for name in self.case_names} for point in self.points):
            if case not in cases:
                cases.append(case)
        return cases

    def variants(self, case: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The other values of the points of a case."""
        return [
            {name: value for name, value in point.items() if name in VARIANTS}
            for point in self.points
            if all(point[name] == value for name, value in case.items())
        ]


def swept_values(over: Any, kernel_parameters: Iterable[str], inputs: Inputs | None) -> dict[str, tuple[Any, ...]]:
    """Return the values of each swept name; ``config`` may be a `Space` or a list of `triton.Config`.

    Raises:
        UsageError: neither the kernel nor ``inputs`` takes a name, or it has no values.
    """
    if isinstance(over, Space):
        over = over.values
    if not isinstance(over, Mapping) or not over:
        raise UsageError(
            f'over is {value_text(over)}; expected the values of each swept name: over={{"n": [1024, 2048]}}.'
        )
    known = [*kernel_parameters, *VARIANTS, *keyword_names(inputs), *([] if inputs else ["dtype"])]
    values_by_name: dict[str, tuple[Any, ...]] = {}
    for name, values in over.items():
        if name not in known and not takes_any_name(inputs):
            names = ", ".join(dict.fromkeys(known))
            raise UsageError(f"over sweeps {name!r}, which neither the kernel nor inputs takes; known are {names}.")
        values_by_name[name] = (
            tuple(configs_of(values)) if name == "config" else listed_values(f"over[{name!r}]", values)
        )
    return values_by_name


def peers_by_name(versus: Any) -> dict[str, Any]:
    """Return the peers of a kernel by name; a single function or kernel has a name of its own.

    Raises:
        UsageError: a peer is neither a function nor a kernel.
    """
    if versus is None:
        return {}
    if isinstance(versus, Mapping):
        named = dict(versus)
    else:
        own = versus if isinstance(versus, str) else getattr(versus, "__name__", "")
        own = own or type(getattr(versus, "fn", versus)).__name__
        named = {"reference" if own == "<lambda>" else str(own): versus}
    for name, peer in named.items():
        is_launch = isinstance(peer, tuple) and 2 <= len(peer) <= 3
        if not (callable(peer) or isinstance(peer, str | int) or is_launch or hasattr(peer, "run")):
            expected = "a function, a kernel, 'name@version', or (kernel, grid, meta)"
            raise UsageError(value_message(f"versus[{name!r}]", peer, expected))
    return named


def table_value(value: Any) -> Any:
    """Return a swept value for a table: numbers, strings and bools as they are, others as text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Config):
        return value.text
    if hasattr(value, "all_kwargs"):
        return Config.from_triton(value).text
    return str(value).removeprefix("torch.")


_KEPT_BYTES = 1 << 29


@dataclass(frozen=True, slots=True)
class ImplementationSpec:
    """An implementation at a point: a kernel with its grid and meta-parameters, or a function.

    ``values`` are its own swept values: version, config, options.
    """

    name: str
    values: Mapping[str, Any]
    kernel: Kernel | None = None
    grid: Any = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    function: Callable[..., Any] | None = None


@dataclass(slots=True)
class CaseArguments:
    """Makes the arguments of each case, and caches small ones between two uses."""

    spec: BenchmarkSpec
    parameters: tuple[str, ...]
    _cached: dict[int, dict[str, Any]] = field(default_factory=dict)
    _cached_bytes: int = 0

    def of(self, number: int, case: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a case by name; given ones are copied, those of ``inputs`` used as they are.

        Raises:
            UsageError: ``inputs`` raises, or returns something else than arguments by name.
        """
        if number in self._cached:
            return self._cached.pop(number)
        spec = self.spec
        arguments = dict(spec.arguments)
        if spec.inputs is None:
            is_cast = "dtype" in case and "dtype" not in self.parameters
            arguments |= {name: value for name, value in case.items() if not (is_cast and name == "dtype")}
            arguments = copy_arguments(arguments)
            return cast_floats(arguments, case["dtype"]) if is_cast else arguments
        own = call_by_name(spec.inputs, case, "inputs")
        if not isinstance(own, Mapping):
            raise UsageError(f"inputs returns a {type(own).__name__}; expected arguments by name: dict(x=..., n=n).")
        arguments = copy_arguments({name: value for name, value in arguments.items() if name not in own})
        return {**arguments, **{name: value for name, value in case.items() if name in self.parameters}, **own}

    def keep(self, number: int, arguments: dict[str, Any]) -> None:
        """Cache the arguments of a case, if they are small."""
        size = sum(tensor.numel() * tensor.element_size() for tensor in memory_of(arguments).values())
        if self._cached_bytes + size <= _KEPT_BYTES:
            self._cached[number] = arguments
            self._cached_bytes += size


def implementations_of(
    spec: BenchmarkSpec, case: Mapping[str, Any], kernel_of: Callable[[Any], tuple[str, Any]]
) -> Iterator[ImplementationSpec]:
    """Yield the implementations of a case: all variants of the kernel, then its peers.

    ``kernel_of`` returns name and bound kernel of a kernel, a label or an id.

    Raises:
        UsageError: a peer has the name of the kernel.
    """
    own, kernel = kernel_of(spec.kernel)
    names = set[str]()
    for variant in spec.variants(case):
        version = variant.get("version")
        label = f"{own.partition('@')[0]}@{version}" if isinstance(version, int) else version
        name, chosen = (own, kernel) if version is None else kernel_of(label)
        options = {name: value for name, value in variant.items() if name in CONFIG_OPTIONS and value is not None}
        names.add(name)
        yield ImplementationSpec(name, variant, chosen, spec.grid, options)
    for name in names & spec.versus.keys():
        raise UsageError(f"{name} is the kernel's own name; give the peer another: versus={{'other {name}': ...}}.")
    for name, peer in spec.versus.items():
        if isinstance(peer, tuple):
            yield ImplementationSpec(name, {}, kernel_of(peer[0])[1], peer[1], dict(peer[2]) if len(peer) > 2 else {})
        elif isinstance(peer, str | int) or is_kernel(peer):
            yield ImplementationSpec(name, {}, kernel_of(peer)[1], spec.grid)
        else:
            yield ImplementationSpec(name, {}, function=peer)


def launch_of(
    implementation: ImplementationSpec, arguments: Mapping[str, Any], target: Any, best: Callable[[Launches], Any]
) -> tuple[KernelLaunch, Config | None]:
    """Return the launch of a kernel and its config: the swept one, or ``best`` for an autotuned kernel.

    Raises:
        UsageError, LaunchError: the arguments or options do not fit the kernel.
    """
    assert implementation.kernel is not None, "a function has no configs"
    names = parameter_names(implementation.kernel)
    keywords = {name: value for name, value in arguments.items() if name in names or name in CONFIG_OPTIONS}
    config = implementation.values.get("config")
    if config is not None:  # it overrides arguments (of a recorded launch), not swept options
        keywords = {name: value for name, value in keywords.items() if name not in config.all_kwargs()}
    launches = Launches(implementation.kernel, implementation.grid, (), {**keywords, **implementation.meta}, target)
    if config is None and autotune_settings(implementation.kernel).configs:
        config = best(launches)
    if config is None:
        return launches.of(NO_CONFIG), None
    value = launches.effective(config)
    return launches.of(value, config), value


def cast_floats(arguments: Mapping[str, Any], dtype: Any) -> dict[str, Any]:
    """Return arguments with all floating-point tensors in another dtype.

    Raises:
        UsageError: ``dtype`` is not a dtype.
    """
    import torch  # keeps `import kernellab` light

    wanted = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(wanted, torch.dtype):
        raise UsageError(f"over['dtype'] has {value_text(dtype)}; expected a torch.dtype, or the name of one.")

    def convert(tensor: Any) -> Any:
        return tensor.to(wanted) if tensor.is_floating_point() else tensor

    return {name: with_tensors(value, convert) for name, value in arguments.items()}


def equal_bytes_notes(spec: BenchmarkSpec, kernel: Kernel, moved_bytes: Iterable[int | None]) -> list[str]:
    """Return a note where swept sizes do not change the given tensors, so that all points move equal bytes."""
    if spec.inputs is not None or spec.bytes is not None:
        return []
    constexprs = constexpr_names(kernel)
    swept = {name: spec.over[name] for name in spec.case_names if name not in constexprs}
    sizes = [name for name, values in swept.items() if len(values) > 1 and all(type(v) is int for v in values)]
    distinct = set(moved_bytes)
    if not sizes or len(distinct) != 1 or None in distinct:
        return []
    return [
        f"Bytes are those of the given tensors, the same for every {sizes[0]}; inputs= makes tensors for each point."
    ]

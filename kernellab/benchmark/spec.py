"""What a benchmark is asked: a kernel, how its arguments come about, what is swept, and what it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernellab.errors import UsageError
from kernellab.measure.config import OPTIONS, Condition, Config, Space, configs_of
from kernellab.measure.functions import taken_by, takes_all
from kernellab.workers.forks import cached_property

VARIANTS = ("version", "config", *OPTIONS)
"""What is swept without a change of what is computed: such rows share their inputs, and are timed in turns."""

Formula = Callable[..., float] | float | None
Inputs = Callable[..., Mapping[str, Any]]


@dataclass(frozen=True)
class BenchmarkSpec:
    """What is measured.

    ``over`` has the values of each swept name, ``where`` says which combinations are taken. ``inputs`` makes the
    arguments from the swept names that it takes; without it, ``given`` are the arguments, and swept names replace
    them. ``versus`` has peers by name: functions of torch, kernels, ``name@version``, or tuples of a kernel, its grid
    and its meta-parameters. ``flops`` and ``bytes`` are formulas over swept names and arguments, or numbers. ``check``
    has the outputs compared on the CPU where there is no GPU.
    """

    kernel: Any
    grid: Any
    given: Mapping[str, Any]
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
        found = [{name: point.values.get(name) for name in self.over} for point in points if space.allows(point.values)]
        if not found:
            raise UsageError(f"where={self.where!r} leaves no point of {', '.join(self.over)}.")
        return found

    @cached_property
    def case_names(self) -> list[str]:
        """The swept names that change what is computed."""
        return [name for name in self.over if name not in VARIANTS]

    @property
    def cases(self) -> list[dict[str, Any]]:
        """The points, by what changes what is computed."""
        found: list[dict[str, Any]] = []
        for point in self.points:
            case = {name: point[name] for name in self.case_names}
            if case not in found:
                found.append(case)
        return found

    def variants(self, case: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The other values of the points of a case."""
        return [
            {name: value for name, value in point.items() if name in VARIANTS}
            for point in self.points
            if all(point[name] == value for name, value in case.items())
        ]


def swept(over: Any, kernel_parameters: Iterable[str], inputs: Inputs | None) -> dict[str, tuple[Any, ...]]:
    """Return the values of each swept name; ``config`` may be a `Space` or a list of `triton.Config`.

    Raises:
        UsageError: a name is nothing that the kernel or ``inputs`` takes, or it has no values.
    """
    if isinstance(over, Space):
        over = over.values
    if not isinstance(over, Mapping) or not over:
        raise UsageError(f'over is {over!r}; expected the values of each swept name: over={{"n": [1024, 2048]}}.')
    known = [*kernel_parameters, *VARIANTS, *taken_by(inputs), *([] if inputs else ["dtype"])]
    found: dict[str, tuple[Any, ...]] = {}
    for name, values in over.items():
        if name not in known and not takes_all(inputs):
            names = ", ".join(dict.fromkeys(known))
            raise UsageError(f"over sweeps {name!r}, which neither the kernel nor inputs takes; known are {names}.")
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise UsageError(f"over[{name!r}] is {values!r}; expected a list of values.")
        found[name] = tuple(configs_of(values)) if name == "config" else tuple(values)  # type: ignore[arg-type]
    return found


def peers(versus: Any) -> dict[str, Any]:
    """Return what a kernel is compared with, by name; a single function or kernel has a name of its own.

    Raises:
        UsageError: a peer is neither a function nor a kernel.
    """
    if versus is None:
        return {}
    named = dict(versus) if isinstance(versus, Mapping) else {_name_of(versus): versus}
    for name, peer in named.items():
        is_launch = isinstance(peer, tuple) and 2 <= len(peer) <= 3
        if not (callable(peer) or isinstance(peer, str | int) or is_launch or hasattr(peer, "run")):
            raise UsageError(
                f"versus[{name!r}] is {peer!r}; expected a function, a kernel, 'name@version', or (kernel, grid, meta)."
            )
    return named


def shown(value: Any) -> Any:
    """Return a swept value as a table holds it: numbers, texts and truth values as they are, others as text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Config):
        return value.text
    if hasattr(value, "all_kwargs"):
        return Config.from_triton(value).text
    return str(value).removeprefix("torch.")


def _name_of(peer: Any) -> str:
    name = (
        peer if isinstance(peer, str) else getattr(peer, "__name__", "") or getattr(peer, "fn", peer).__class__.__name__
    )
    return "reference" if name == "<lambda>" else str(name)

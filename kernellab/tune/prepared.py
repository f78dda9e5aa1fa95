"""What a tuning is asked and works with; its launches, configs and known rows, before anything is compiled."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernellab._triton.kernel import Kernel
from kernellab.compile.cache import Compiler
from kernellab.errors import UsageError
from kernellab.measure.config import Config, Space, configs_of
from kernellab.measure.hooks import sets_blocks_alone
from kernellab.measure.implementations import Bench
from kernellab.measure.launches import Launches
from kernellab.measure.outcomes import Status
from kernellab.measure.provenance import Device, key_fields, key_of
from kernellab.registry import Registry
from kernellab.store import Version
from kernellab.tune.finals import Policy
from kernellab.tune.progress import Watch
from kernellab.tune.result import Records, Row
from kernellab.tune.search import Search, Searching

if TYPE_CHECKING:
    from kernellab.measure.reference import ReferenceFunction


@dataclass(frozen=True, slots=True)
class Options:
    """How to tune.

    ``configs`` is a list of `triton.Config`, or a `Space`; None takes those of the kernel's autotuner. ``timeout_s``
    limits each config on the GPU, ``budget_s`` and ``budget_configs`` the whole. ``search`` may also be a `Search` of
    one's own; ``count`` is how many configs a random or Optuna search tries. ``fresh`` measures again what the store
    knows. With a ``check``, outputs are compared with its values; ``outputs`` names the arguments that are compared,
    with these or with each other. ``executor`` compiles in place of the lab's own workers. ``devices`` are the GPUs
    that measure, the first of which holds the final; None is the current one.

    Of a generated list, a `Space` or one of `workloads`, what spills much is not measured while something else is left,
    and where registers keep the device from being full, half of the block is tried too. A list of `triton.Config` is
    measured as it is. ``policy`` says how much is measured of a config and in the final; its bounds on the search, and
    what outputs are compared with, are those of these options.
    """

    configs: Space | Sequence[Any] | None = None
    timeout_s: float = 10.0
    search: Searching | Search = "exhaustive"
    count: int = 64
    budget_s: float | None = None
    budget_configs: int | None = None
    fresh: bool = False
    seed: int = 0
    check: ReferenceFunction | None = None
    outputs: Sequence[str] | None = None
    executor: Executor | None = None
    devices: Sequence[int] | None = None
    policy: Policy = field(default_factory=Policy)


MakeBench = Callable[[Launches, float, int | None], Bench]
"""Makes the bench of a device by its number, the current one where that is None; with the seconds of each config."""

Progress = Callable[[str], AbstractContextManager[Watch]]


@dataclass(frozen=True, slots=True)
class Environment:
    """What a tuning works with. Without ``make_bench`` there is no GPU, and nothing is timed.

    ``progress`` is a context in which a tuning is watched; ``remarks`` are notes that every tuning gets.
    """

    compiler: Compiler
    kernels: Registry
    device: Device
    make_bench: MakeBench | None
    clock: Callable[[], float] = time.perf_counter
    progress: Progress | None = None
    remarks: tuple[str, ...] = ()


@dataclass(slots=True)
class PlannedConfigs:
    """The configs of one tuning: those to try, and rows for those that were left out, by config.

    Those of a `Space`, and of `workloads`, ``is_generated``: nobody insists on any of them, and others may join them.
    """

    listed: tuple[Config, ...]
    originals: dict[Config, Any]
    is_generated: bool
    left_out: dict[Config, Row] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PreparedTuning:
    """A tuning of which nothing is compiled: its launches and configs, and the rows of earlier ones under its key."""

    launches: Launches
    planned: PlannedConfigs
    first: Config
    records: Records

    def known(self, options: Options) -> dict[Config, Row]:
        """Return the rows that hold for it, but for a ``fresh`` one."""
        if options.fresh:
            return {}
        return usable(self.records.known(), self.launches, is_generated=self.planned.is_generated)


def prepared(
    environment: Environment,
    launches: Launches,
    options: Options,
    version: Version | None = None,
    sizes: Mapping[str, int] | None = None,
) -> PreparedTuning:
    """Return a tuning of launches; ``version`` is that of the kernel, where it was looked up before.

    ``sizes`` are those of a case among several: its rows are those of no other, whatever an autotuner's ``key`` names.

    Raises:
        UsageError: there are no configs, or the options are wrong.
        LaunchError: the arguments do not fit the kernel.
    """
    kernel = launches.kernel
    planned = _planned(kernel, launches, options)
    first = _first(kernel, launches, planned)
    launches.outputs = named_outputs(options.outputs)
    known = version or environment.kernels.current(kernel)
    key = key_of(key_fields(launches, first, environment.device, sizes))
    history = environment.kernels.store.history
    return PreparedTuning(launches, planned, first, Records(history, known.id, key, environment.device.name))


def usable(rows: Mapping[Config, Row], launches: Launches, *, is_generated: bool = False) -> dict[Config, Row]:
    """Return the known rows that hold here: outputs that were compared with these reference values, or each other.

    A config that was not measured since it spills is left out of a generated list alone.
    """
    wanted, outputs = reference_identity(launches), joined_names(launches.outputs)

    def holds(row: Row) -> bool:
        if row.status is Status.PRUNED:
            return is_generated
        if row.status not in {Status.OK, Status.WRONG, Status.DIFFERS}:
            return True
        if wanted or row.status is Status.WRONG:  # without a reference, nothing is wrong
            return bool(wanted) and row.checked == wanted
        return bool(row.checked) or row.outputs == outputs

    return {config: row for config, row in rows.items() if holds(row)}


def first_config(kernel: Kernel, launches: Launches, options: Options) -> Config:
    """Return the first config to try, and let the launches know the user's own ones.

    Raises:
        UsageError: there are no configs.
    """
    return _first(kernel, launches, _planned(kernel, launches, options))


def candidates_of(kernel: Kernel, launches: Launches, options: Options) -> dict[Config, Any]:
    """Return the `triton.Config`s to try by their values, those included that pruning leaves out for some arguments.

    Raises:
        UsageError: there are no configs.
    """
    found: dict[Config, Any] = {}
    for config in configs_of(_given(kernel, launches, options)):
        found.setdefault(launches.effective(config), config)
    return found


def _first(kernel: Kernel, launches: Launches, plan: PlannedConfigs) -> Config:
    launches.has_hooks, launches.originals = _has_hooks(kernel, plan), plan.originals
    launches.common_hook = _common_hook(plan)
    return next(iter(plan.originals))


def _planned(kernel: Kernel, launches: Launches, options: Options) -> PlannedConfigs:
    from kernellab._triton.decorators import pruned

    given = _given(kernel, launches, options)
    configs = configs_of(given)
    kept, reasons = pruned(kernel, configs, launches.args, launches.meta)
    values = {id(config): launches.effective(config) for config in configs}
    left_out = {values[i]: Row(values[i], Status.PRUNED, reason) for i, reason in reasons.items()}
    originals: dict[Config, Any] = {}
    for config in kept:
        originals.setdefault(values[id(config)], config)
    listed = tuple(dict.fromkeys(values.values()))
    if len(listed) < len(configs):
        launches.notes.append(
            f"{len(configs) - len(listed)} of the {len(configs)} configs are equal to another of them"
        )
    own = isinstance(given, Space) or (isinstance(given, Sequence) and all(isinstance(each, Config) for each in given))
    return PlannedConfigs(listed, originals, own, left_out)


def _given(kernel: Kernel, launches: Launches, options: Options) -> Any:
    """Return the configs that a call or an autotuner gives.

    Raises:
        UsageError: neither does.
    """
    from kernellab._triton.decorators import declared

    given = options.configs if options.configs is not None else declared(kernel).configs
    if options.configs is None and not given:
        raise UsageError(
            f"{launches.name} has no configs; pass configs=[triton.Config(...), ...], or a Space of values."
        )
    return given


def _has_hooks(kernel: Kernel, plan: PlannedConfigs) -> bool:
    from kernellab._triton.decorators import declared

    tuner = declared(kernel)
    own = {id(config.pre_hook): config.pre_hook for config in plan.originals.values()}.values()
    is_called = any(hook is not None and not sets_blocks_alone(hook) for hook in own)
    return is_called or tuner.pre_hook is not None or tuner.post_hook is not None


def _common_hook(plan: PlannedConfigs) -> Any:
    hooks = {id(config.pre_hook): config.pre_hook for config in plan.originals.values()}
    return next(iter(hooks.values())) if len(hooks) == 1 else None


def named_outputs(given: Sequence[str] | None) -> frozenset[str] | None:
    """Return the arguments that are compared; None for all.

    Raises:
        UsageError: they are no names.
    """
    if given is None:
        return None
    if isinstance(given, str) or not given or not all(isinstance(name, str) for name in given):
        raise UsageError(f'outputs is {given!r}; expected names of arguments, such as ("out_ptr",).')
    return frozenset(given)


def reference_identity(launches: Launches) -> str:
    """Return what identifies the values that are compared with; "" where there are none."""
    if launches.reference is None:
        return ""
    return " ".join(filter(None, (launches.reference.identity, joined_names(launches.outputs))))


def joined_names(outputs: frozenset[str] | None) -> str:
    """Return names of outputs as rows keep them, by name; "" for none."""
    return ",".join(sorted(outputs or ()))

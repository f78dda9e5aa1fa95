"""The autotuners of a program in its module: configs, heuristics and what was chosen, with a grid for each config."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kernellab._triton.kernel import OPTIONS
from kernellab.capture.naming import unique
from kernellab.capture.statements import Called
from kernellab.capture.tape import KernelUse, Ref, Step, TuningUse
from kernellab.errors import UsageError
from kernellab.export.flatten import Flat, moved
from kernellab.export.module import autotune_arguments, dict_text
from kernellab.source import Autotune, Binding, ConfigText, Heuristics, Opaque, literal

GRID_OF = '''\
def grid_of(*configs):
    """Return the grid of a launch as a function of its arguments, which tell the config that was chosen."""
    return lambda meta: next(
        grid for supplied, grid in configs if all(meta[name] == value for name, value in supplied.items())
    )'''


@dataclass(slots=True)
class WrittenTuners:
    """The autotuners of a module, by the text of what makes each; ``lines`` are the choices that it is given."""

    flat: Flat
    reserved: frozenset[str]
    names: dict[str, str] = dataclasses.field(default_factory=dict)
    lines: dict[str, dict[str, None]] = dataclasses.field(default_factory=dict)

    def called(self, step: Step, kernel: str, index_map: dict[int, int], tuner_map: dict[int, int]) -> Called | None:
        """Return how a launch of an autotuned kernel is written; None where its decorators cannot be."""
        use, tuning = step.use, None if step.use is None else step.use.tuning
        if use is None or tuning is None:
            return None
        tensors = frozenset(name for name, value in step.kwargs if isinstance(value, Ref))
        try:
            made = self._made(use, tuning, kernel, tuner_map, tensors)
            constants = {n: self.flat.expression(moved(binding, index_map)) for n, binding in tuning.constants}
        except UsageError:
            return None
        if made is None or not all(_is_written(value) for each in tuning.configs for _, value in each.supplied):
            return None
        name = self.names.setdefault(made, unique(f"{kernel}_tuned", {*self.reserved, *self.names.values()}))
        self.lines.setdefault(made, {}).update(dict.fromkeys(_choices(name, tuning)))
        constants |= {n: literal(value) for n, value in tuning.options if n not in OPTIONS}
        given = tuple(n for n in use.parameters if n not in tuning.supplied)
        return Called(name, given, constants, _grid(tuning))

    def definitions(self) -> Iterator[str]:
        """Yield the definitions of the autotuners, each with its choices."""
        if self.names:
            yield GRID_OF
        for made, name in self.names.items():
            yield "\n".join([f"{name} = {made}", *self.lines[made]])

    def _made(
        self, use: KernelUse, tuning: TuningUse, kernel: str, index_map: dict[int, int], tensors: frozenset[str]
    ) -> str | None:
        """Return the expression of the kernel with its decorators around it; None where one stayed behind."""
        text = kernel
        for wrapper in reversed(tuning.closure.wrappers):
            if isinstance(wrapper, Heuristics):
                if any(isinstance(binding, Opaque) for _, binding in wrapper.values):
                    return None
                values = [(n, self.flat.expression(moved(b, index_map))) for n, b in wrapper.values]
                text = f"triton.heuristics({dict_text(values)})({text})"
            elif isinstance(wrapper, Autotune):
                own = _own(wrapper, use, index_map)
                restore = _restored(use, wrapper, tensors) if len(own.configs) > 1 else ()
                if restore is None:
                    return None
                lines = [
                    *autotune_arguments(self.flat, own),
                    *(f"restore_value={literal(list(restore))}," for _ in restore[:1]),
                ]
                arguments = "".join(f"    {line}\n" for line in lines)
                text = f"triton.autotune(\n{arguments})({text})"
        return text


def _own(tuner: Autotune, use: KernelUse, index_map: dict[int, int]) -> Autotune:
    """Return an autotuner with bindings of the merged closure and the options of the call in its configs."""

    def here(bindings: Iterable[tuple[str, Binding]]) -> tuple[tuple[str, Binding], ...]:
        return tuple((name, moved(binding, index_map)) for name, binding in bindings)

    assert use.tuning is not None
    given = {name: value for name, value in use.tuning.options if name in OPTIONS}
    configs = dict.fromkeys(_config(config, here(config.parameters), given) for config in tuner.configs)
    return Autotune(tuple(configs), tuner.key, here(tuner.arguments), here(tuner.prune_configs_by))


def _config(config: ConfigText, parameters: tuple[tuple[str, Binding], ...], given: Mapping[str, Any]) -> ConfigText:
    return ConfigText(parameters, tuple({**dict(config.options), **given}.items()))


def _restored(use: KernelUse, tuner: Autotune, tensors: frozenset[str]) -> tuple[str, ...] | None:
    """Return the arguments that a timing of configs has to restore and that the user did not name.

    A kernel that reads what it writes would be run on its own results. None where they are no plain tensors.
    """
    if {"restore_value", "reset_to_zero"} & {name for name, _ in tuner.arguments}:
        return ()
    both = use.mutated & use.read
    return tuple(sorted(both)) if use.complete and both <= tensors else None


def _choices(name: str, tuning: TuningUse) -> Iterator[str]:
    if len(tuning.configs) > 1:
        if tuning.chosen is not None and all(map(_is_written, tuning.key)):
            yield f"{name}.cache[{literal(tuning.key)}] = {name}.configs[{tuning.chosen}]  # the fastest of them, timed"
        yield f"if INTERPRETED:\n    {name}.configs = [{name}.configs[{tuning.ran}]]  # nothing is timed there"


def _grid(tuning: TuningUse) -> str:
    if len({each.grid for each in tuning.configs}) == 1:
        return str(tuning.configs[0].grid)
    return f"grid_of({', '.join(f'({literal(dict(each.supplied))}, {each.grid})' for each in tuning.configs)})"


def _is_written(value: object) -> bool:
    """Tell whether a value is one that a literal gives again."""
    return value is None or type(value) in {bool, int, float, str}

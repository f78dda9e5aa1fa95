"""What the module of a program brings along: operators that the user registered, and autotuned kernels.

`torch.library.custom_op` and `triton_op` keep the function that they were made of: a module defines it and calls it. An
operator is refused if its definition is unknown or names what cannot be taken along, so no module calls an operator
that is not registered where it runs. An autotuner comes with its configs, heuristics and chosen config, and has a grid
for each config.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kernellab._triton.closure import value_closure_of
from kernellab._triton.kernel import is_kernel
from kernellab.capture.naming import unique
from kernellab.capture.statements import LaunchCall
from kernellab.capture.tape import KernelUse, Ref, Step, TuningUse
from kernellab.capture.tracked_tensors import is_of_torch
from kernellab.errors import UsageError
from kernellab.export.flatten import FlatModule, remap_functions
from kernellab.export.module import autotune_arguments, dict_text
from kernellab.source import (
    CONFIG_OPTIONS,
    Autotune,
    Binding,
    Closure,
    ConfigText,
    Heuristics,
    Opaque,
    literal,
    opaque_part,
)
from kernellab.source.text import USER_ERRORS

_REGISTERED = re.compile(r"registered at (\S+\.py):\d+")
_OPERATOR_CALL = re.compile(r"\bops\.(\w+)\.(\w+)")


def user_operators(steps: Iterable[Step], device: str) -> dict[str, tuple[Closure, Binding]]:
    """Return the user's operators that steps call, by name: a closure, and the binding of the operator in it.

    ``device`` is the type of device that their implementations are for.

    Raises:
        UsageError: one cannot be brought along.
    """
    operators: dict[str, tuple[Closure, Binding]] = {}
    for step in steps:
        if "." not in step.operation or step.operation in operators:
            continue
        if not is_of_torch(step.operation):
            operators[step.operation] = _definition(step, device)
        elif why := why_not_of_torch(step.operation):
            raise UsageError(_refusal(step, why))
    return operators


def why_not_of_torch(operation: str) -> str:
    """Return the reason why an operation in torch's own namespaces is not torch's, or ""."""
    name, _, overload = operation.replace(".", "::", 1).partition(".")
    full = name if overload in {"", "default"} else f"{name}.{overload}"
    own = Path(torch.__file__).parent
    files = _REGISTERED.findall(torch._C._dispatch_dump(full))
    other = next((file for file in files if not Path(file).is_relative_to(own)), None)
    return "" if other is None else f"which {other} has registered or changed"


def _definition(step: Step, device: str) -> tuple[Closure, Binding]:
    """Return the closure of an operator's function, and the binding of the function in it.

    Raises:
        UsageError: it is not known, or cannot be taken along whole.
    """
    from torch._library.custom_ops import OPDEFS  # private to torch; has the functions that operators were made of

    namespace, name, *overload = step.operation.split(".")
    operator = OPDEFS.get(f"{namespace}::{name}")
    if operator is None or overload != ["default"]:
        raise UsageError(_refusal(step, "whose definition is not known"))
    function = _function(operator, device)
    if own := _lab_object(function):
        raise UsageError(_refusal(step, f"which uses {own}"))
    try:
        definition = value_closure_of(function)
    except USER_ERRORS:
        definition = None  # an object that it uses fails when it is inspected
    if definition is None:
        raise UsageError(_refusal(step, "whose source, or that of what it uses, cannot be found"))
    for why in _missing_parts(definition[0]):
        raise UsageError(_refusal(step, why))
    return definition


def _lab_object(function: Any) -> str:
    """Return the words for an object of the lab that a function uses and a module cannot have, or ""."""
    used = inspect.getclosurevars(function)
    for name, value in {**used.globals, **used.nonlocals}.items():
        if type(value).__module__.startswith("kernellab.") and not is_kernel(value):
            return f"{name}, a {type(value).__name__}"
    return ""


def _function(operator: Any, device: str) -> Any:
    """Return the function that an operator runs on a device: the one registered for it, else its definition."""
    wrapped = [operator._backend_fns[kind] for kind in (device, None) if kind in operator._backend_fns]
    inner = (inspect.getclosurevars(inspect.unwrap(function)).nonlocals.get("fn") for function in wrapped)
    return inspect.unwrap(next((function for function in inner if function is not None), operator._init_fn))


def _missing_parts(closure: Closure) -> Iterator[str]:
    """Yield the reasons why the functions of an operator cannot work in a module."""
    for function in closure.functions:
        for name, binding in function.bindings:
            if (opaque := opaque_part(binding)) is not None:
                yield f"which uses {name}, a {opaque.type}"
        for namespace, name in _OPERATOR_CALL.findall(function.text):
            if not is_of_torch(f"{namespace}.{name}"):
                yield f"which calls torch.ops.{namespace}.{name}"


def _refusal(step: Step, why: str) -> str:
    return (
        f"The program calls {step.words}, an operator {why}, and that a module cannot bring along. Make it by "
        "torch.library.custom_op or triton_op of a function whose source, kernels and helpers are Python, or call its "
        "parts in the block instead."
    )


GRID_OF = '''\
def grid_of(*configs):
    """Return the grid of a launch as a function of its arguments, which determine the config that was chosen."""
    return lambda meta: next(
        grid for supplied, grid in configs if all(meta[name] == value for name, value in supplied.items())
    )'''


@dataclass(slots=True)
class WrittenTuners:
    """The autotuners of a module by their expressions; ``lines`` are the statements that give each its choices."""

    flat: FlatModule
    reserved: frozenset[str]
    names: dict[str, str] = dataclasses.field(default_factory=dict)
    lines: dict[str, dict[str, None]] = dataclasses.field(default_factory=dict)

    def call(self, step: Step, kernel: str, index_map: dict[int, int], tuner_map: dict[int, int]) -> LaunchCall | None:
        """Return the call of an autotuned kernel; None where its decorators cannot be written."""
        use, tuning = step.use, None if step.use is None else step.use.tuning
        if use is None or tuning is None:
            return None
        tensors = frozenset(name for name, value in step.kwargs if isinstance(value, Ref))
        try:
            expression = self._expression(use, tuning, kernel, tuner_map, tensors)
            constants = {
                n: self.flat.expression(remap_functions(binding, index_map)) for n, binding in tuning.constants
            }
        except UsageError:
            return None
        if expression is None or not all(
            _has_literal(value) for config in tuning.configs for _, value in config.supplied
        ):
            return None
        name = self.names.setdefault(expression, unique(f"{kernel}_tuned", {*self.reserved, *self.names.values()}))
        self.lines.setdefault(expression, {}).update(dict.fromkeys(_choices(name, tuning)))
        constants |= {n: literal(value) for n, value in tuning.options if n not in CONFIG_OPTIONS}
        parameters = tuple(n for n in use.parameters if n not in tuning.supplied)
        return LaunchCall(name, parameters, constants, _grid(tuning))

    def definitions(self) -> Iterator[str]:
        """Yield the definitions of the autotuners, each with its choices."""
        if self.names:
            yield GRID_OF
        for expression, name in self.names.items():
            yield "\n".join([f"{name} = {expression}", *self.lines[expression]])

    def _expression(
        self, use: KernelUse, tuning: TuningUse, kernel: str, index_map: dict[int, int], tensors: frozenset[str]
    ) -> str | None:
        """Return the expression of the kernel with its decorators around it; None where one cannot be written."""
        text = kernel
        for wrapper in reversed(tuning.closure.wrappers):
            if isinstance(wrapper, Heuristics):
                if any(isinstance(binding, Opaque) for _, binding in wrapper.values):
                    return None
                values = [(n, self.flat.expression(remap_functions(b, index_map))) for n, b in wrapper.values]
                text = f"triton.heuristics({dict_text(values)})({text})"
            elif isinstance(wrapper, Autotune):
                own = _merged_tuner(wrapper, use, index_map)
                restore = _arguments_to_restore(use, wrapper, tensors) if len(own.configs) > 1 else ()
                if restore is None:
                    return None
                lines = [
                    *autotune_arguments(self.flat, own),
                    *(f"restore_value={literal(list(restore))}," for _ in restore[:1]),
                ]
                arguments = "".join(f"    {line}\n" for line in lines)
                text = f"triton.autotune(\n{arguments})({text})"
        return text


def _merged_tuner(tuner: Autotune, use: KernelUse, index_map: dict[int, int]) -> Autotune:
    """Return an autotuner with bindings of the merged closure, and with the options of the call in its configs."""

    def moved_bindings(bindings: Iterable[tuple[str, Binding]]) -> tuple[tuple[str, Binding], ...]:
        return tuple((name, remap_functions(binding, index_map)) for name, binding in bindings)

    assert use.tuning is not None
    options = {name: value for name, value in use.tuning.options if name in CONFIG_OPTIONS}
    configs = dict.fromkeys(
        ConfigText(moved_bindings(config.parameters), tuple({**dict(config.options), **options}.items()))
        for config in tuner.configs
    )
    return Autotune(tuple(configs), tuner.key, moved_bindings(tuner.arguments), moved_bindings(tuner.prune_configs_by))


def _arguments_to_restore(use: KernelUse, tuner: Autotune, tensors: frozenset[str]) -> tuple[str, ...] | None:
    """Return the arguments to restore between timings of configs, but for those that the user named.

    A kernel that reads what it writes would run on its own results. None if one of them is not a plain tensor.
    """
    if {"restore_value", "reset_to_zero"} & {name for name, _ in tuner.arguments}:
        return ()
    both = use.mutated & use.read
    return tuple(sorted(both)) if use.complete and both <= tensors else None


def _choices(name: str, tuning: TuningUse) -> Iterator[str]:
    if len(tuning.configs) > 1:
        if tuning.chosen is not None and all(map(_has_literal, tuning.key)):
            yield f"{name}.cache[{literal(tuning.key)}] = {name}.configs[{tuning.chosen}]  # the fastest of them, timed"
        yield f"if INTERPRETED:\n    {name}.configs = [{name}.configs[{tuning.ran}]]  # nothing is timed there"


def _grid(tuning: TuningUse) -> str:
    if len({config.grid for config in tuning.configs}) == 1:
        return str(tuning.configs[0].grid)
    return f"grid_of({', '.join(f'({literal(dict(config.supplied))}, {config.grid})' for config in tuning.configs)})"


def _has_literal(value: object) -> bool:
    """Whether a literal gives this value again."""
    return value is None or type(value) in {bool, int, float, str}

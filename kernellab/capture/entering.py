"""The kernels of a program in the side table and the history; and inputs, compared with the recorded ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kernellab._triton.closure import closure_of
from kernellab.capture.tape import KernelUse, Tape
from kernellab.errors import UsageError
from kernellab.ir.effects import Effects
from kernellab.launch.recording import Launched, record_of
from kernellab.registry.launch_log import launch_of, result_of
from kernellab.registry.table import Registry
from kernellab.source import Binding, Closure, JitOptions
from kernellab.store import Launch, Result, Version


@dataclass(frozen=True, slots=True)
class Seen:
    """A launch as it was seen, without its tensors. ``constants`` are the constexprs, ``bindings`` what they are.

    ``closure`` is what was compiled; ``owner`` is the kernel with its decorators, and ``kept`` what it was then.
    """

    kernel: Any
    owner: Any
    kept: Closure | None
    launch: Launch
    result: Result
    effects: Effects
    grid: tuple[int, int, int]
    constants: Mapping[str, Any]
    bindings: tuple[Binding, ...]
    options: Mapping[str, Any]
    closure: Closure


def seen(kernels: Registry, launched: Launched) -> Seen:
    """Return what is kept of a launch; its tensors are not, so that they live as long as the user wants."""
    constants = {p.name: launched.arguments[p.name] for p in launched.kernel.params if p.is_constexpr}
    closure, bindings = closure_of(launched.kernel, tuple(constants.values()))
    record = replace(record_of(launched.kernel, launched.compiled, launched.arguments), grid=launched.grid)
    return Seen(
        launched.kernel,
        record.owner,
        record.closure,
        launch_of(kernels, record),
        result_of(launched.compiled),
        launched.compiled.effects,
        launched.grid,
        constants,
        bindings,
        launched.options,
        closure,
    )


def use_of(kernels: Registry, scope: Mapping[str, Any], functions: dict[int, Any], seen: Seen) -> KernelUse:
    """Enter a launch into the side table and the history; ``functions`` gets the kernel by its id."""
    version = _version(kernels, scope, seen)
    functions[version.id] = seen.kernel
    history = kernels.store.history
    history.add_launch(version.id, seen.launch, count=0, result=seen.result)
    return KernelUse(
        kernel=version.label,
        kernel_id=version.id,
        constants_id=kernels.add_constants({**seen.constants, **seen.options}),
        launch_id=history.launches(version.id)[-1].id,
        grid=seen.grid,
        constants=tuple(zip(seen.constants, seen.bindings, strict=True)),
        options=tuple(seen.options.items()),
        closure=seen.closure,
        parameters=tuple(seen.kernel.arg_names),
        jit_options=tuple(o for w in version.closure.wrappers if isinstance(w, JitOptions) for o in w.options),
        mutated=seen.effects.mutated,
        read=seen.effects.reads | seen.effects.atomics,
        complete=not seen.effects.unknown,
    )


def require_inputs(tape: Tape, inputs: Mapping[str, Any]) -> None:
    """Raise `UsageError` for inputs that are missing, unknown, or not laid out as those of the recording."""
    names = [tape.values[index].name for index in tape.inputs]
    missing, unknown = [n for n in names if n not in inputs], [n for n in inputs if n not in names]
    if missing or unknown:
        what = f"lacks {', '.join(missing)}" if missing else f"takes no {', '.join(unknown)}"
        raise UsageError(f"The program {what}; its inputs are {', '.join(names) or 'none'}.")
    for index, name in zip(tape.inputs, names, strict=True):
        layout, given = tape.values[index].layout, inputs[name]
        if not hasattr(given, "untyped_storage"):
            raise UsageError(f"The input {name} is a {type(given).__name__}; expected a tensor.")
        wanted = (layout.dtype, layout.shape, layout.stride, layout.device.partition(":")[0])
        found = (
            str(given.dtype).removeprefix("torch."),
            tuple(given.shape),
            tuple(given.stride()),
            given.device.type,
        )
        for what, want, got in zip(("dtype", "shape", "strides", "device"), wanted, found, strict=True):
            if want != got:
                raise UsageError(
                    f"The input {name} has the {what} {got}; the program was recorded with {want}, and holds for that "
                    "alone. Capture it again for another."
                )


def _version(kernels: Registry, scope: Mapping[str, Any], seen: Seen) -> Version:
    """Return the version that was launched; one that was never entered is, with the decorators of the namespace."""
    from kernellab._triton.objects import is_kernel, jit_function

    kernel = seen.kernel
    known = kernels.launched(kernel if kernels.known(seen.owner) is None else seen.owner, seen.kept)
    if known is not None:
        return known
    if seen.owner is not kernel:
        return kernels.add(seen.owner, closure=seen.kept)
    owners = [value for value in scope.values() if is_kernel(value) and jit_function(value) is kernel]
    owner = next((value for value in owners if value is not kernel), kernel)
    return kernels.add(owner, closure=seen.kept if owner is kernel else None)

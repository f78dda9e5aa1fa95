"""Whether two kernels compute the same, without a tolerance: `lab.equivalent`.

Both run on the CPU in the algebra of `kernellab.interpreter.algebra`, on copies of the same arguments, and the bits of
all that they write are compared. On a GPU, Triton's floating-point sanitizer can do the same to the compiled kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from kernellab._triton.compiling import sanitized_floats, sanitizer_problem
from kernellab._triton.kernel import autotune_settings, is_kernel, jit_function, parameter_names
from kernellab.checking.payload_tensor import in_algebra
from kernellab.checking.reference import call_by_name
from kernellab.display import Drawable
from kernellab.errors import CannotRun, KernellabError, UsageError, plural, value_message
from kernellab.inside.recorded_launch import launch_of_call, options_of
from kernellab.ir.effects import Effects
from kernellab.launch.arguments import memory_of, values_of
from kernellab.launch.calls import UserCall
from kernellab.launch.memory import copy_arguments
from kernellab.launch.poison import bits_of
from kernellab.launch.run import Finding, Run, Severity, finding_words, run_on_cpu
from kernellab.launch.runtime import Interpret
from kernellab.registry import Session
from kernellab.timing.launches import KernelLaunch, call_hooks, outputs_on_copies, set_to_zero


@dataclass(frozen=True, slots=True)
class OutputEquality:
    """Whether an output has the same bits on both sides; ``first`` is the index of the first element that differs."""

    name: str
    equal: bool
    first: tuple[int, ...] | None
    different: int
    elements: int


@dataclass(frozen=True)
class Equivalence(Drawable):
    """Whether two kernels, or a kernel and a function of torch, compute the same in the algebra.

    ``unmodelled`` names operations that the algebra does not model: where there are some, equal outputs do not prove
    anything, and neither do different ones. ``findings`` are those of the checked runs, with the side that has them.
    """

    names: tuple[str, str]
    outputs: tuple[OutputEquality, ...]
    unmodelled: tuple[str, ...] = ()
    findings: tuple[tuple[str, Finding], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether all outputs have the same bits."""
        return all(output.equal for output in self.outputs)

    def __bool__(self) -> bool:
        return self.equal

    def __repr__(self) -> str:
        return f"<{self.summary}>"

    @property
    def summary(self) -> str:
        """The answer in one sentence."""
        left, right = self.names
        if self.equal:
            outputs = ", ".join(output.name for output in self.outputs)
            answer = f"{left} and {right} are equal in the algebra: {outputs}"
        else:
            output = next(output for output in self.outputs if not output.equal)
            index = ", ".join(map(str, output.first or ()))
            answer = f"{left} and {right} differ in the algebra: {output.name}[{index}] first, "
            answer += f"{output.different:,} of {plural(output.elements, 'element')}"
        if self.unmodelled:
            answer += f"; no proof, since it does not model {', '.join(self.unmodelled)}"
        return answer

    @property
    def warnings(self) -> tuple[str, ...]:
        """The findings of the checked runs in words, such as races."""
        warned = [(name, one) for name, one in self.findings if one.severity is not Severity.NOTE]
        return tuple(f"{name}: {finding_words(finding)}" for name, finding in warned)


@dataclass(frozen=True, slots=True)
class AlgebraOutcome:
    """The memory after one side's run, as bit patterns, and the arguments that it writes."""

    name: str
    memory: Mapping[str, Any]
    written: frozenset[str]
    unmodelled: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


def run_call_in_algebra(session: Session, call: UserCall, timeout_s: float) -> Run:
    """Run a call once in the algebra, on the CPU; its tensors hold unembedded bit patterns afterwards.

    Raises:
        UsageError, LaunchError: the call does not fit the kernel.
        KernellabError: it fails.
    """
    launch = launch_of_call(session, call)
    return replace(
        run_on_cpu(launch.arguments, partial(_interpret, session.runtime.interpret, launch, timeout_s)),
        arguments=values_of(launch.arguments),
    )


def equivalence_of(
    session: Session, call: UserCall, other: Any, timeout_s: float, *, on_gpu: bool = False
) -> Equivalence:
    """Compare a call with another kernel, other options or a function of torch, in the algebra.

    With ``on_gpu``, both kernels are compiled with Triton's floating-point sanitizer and launched on the GPU.

    ``other`` is a kernel with the same arguments, ``(kernel, grid, meta)``, a `triton.Config` or a dict of options of
    the same kernel, or a function of kernel parameters by name. Of ``call.meta``, each kernel gets what it takes.

    Raises:
        UsageError: ``other`` is none of these, or the kernels have other arguments.
        LaunchError: the arguments do not fit one of the kernels, or the GPU or Triton has no sanitizer.
        KernellabError: one side fails, or the function uses an operation that the algebra does not know.
    """
    other_call = _other_call(session, call, other)
    if on_gpu:
        _require_sanitizer(session, call, other_call)
    outcome_of = _sanitized_outcome if on_gpu else _outcome
    launch = launch_of_call(session, call if other_call is None else _without_names_of(other_call, call))
    left = outcome_of(session, call, launch, timeout_s)
    if other_call is None:
        right = _outcome_of_function(other, launch.arguments, left)
        return compare_outcomes(left, right, (left.name, right.name))
    launch = launch_of_call(session, _without_names_of(call, other_call))
    right = _with_names_of(outcome_of(session, other_call, launch, timeout_s), call, other_call)
    return compare_outcomes(left, right, _names(left.name, right.name, other))


def compare_outcomes(
    left: AlgebraOutcome, right: AlgebraOutcome, names: tuple[str, str], counted: Collection[str] | None = None
) -> Equivalence:
    """Compare the bits of all that either side writes, or of the ``counted`` arguments among these.

    Raises:
        UsageError: there is nothing to compare, or shapes or dtypes differ.
    """
    written = {name for name in left.written | right.written if counted is None or name in counted}
    outputs = [
        _compare(name, tensor, right.memory.get(name)) for name, tensor in left.memory.items() if name in written
    ]
    if not outputs:
        raise UsageError(f"{names[0]} and {names[1]} write nothing; there are no outputs to compare.")
    unmodelled = tuple(sorted({*left.unmodelled, *right.unmodelled}))
    findings = tuple((name, one) for name, side in zip(names, (left, right), strict=True) for one in side.findings)
    return Equivalence(names, tuple(outputs), unmodelled, findings)


def _compare(name: str, left: Any, right: Any) -> OutputEquality:
    if right is None:
        raise UsageError(f"The kernels differ in their arguments: only one of them has {name}; give both the same.")
    if left.shape != right.shape or left.dtype != right.dtype:
        here, there = (f"{tuple(side.shape)} of {side.dtype}" for side in (left, right))
        raise UsageError(f"{name} is {here} on one side and {there} on the other; the kernels need the same arguments.")
    differs = bits_of(left) != bits_of(right)
    while differs.dim() > left.dim():
        differs = differs.any(-1)
    count = int(differs.sum())
    first = tuple(int(index) for index in differs.nonzero()[0]) if count else None
    return OutputEquality(name, not count, first, count, left.numel())


def outcome_of_launch(
    interpret: Interpret,
    effects: Effects,
    launch: KernelLaunch,
    timeout_s: float,
    zeroed: Collection[str] = (),
    *,
    algebra: bool = True,
) -> AlgebraOutcome:
    """Run a launch on copies of its arguments, in the algebra or on real values; those in ``zeroed`` start as zeros.

    Raises:
        KernellabError: it fails.
    """
    arguments = copy_arguments(launch.arguments)
    set_to_zero(arguments, zeroed)
    call_hooks(launch, arguments)
    run = run_on_cpu(arguments, partial(_interpret, interpret, launch, timeout_s, algebra=algebra))
    changed = {name for name, count in run.changed.items() if count}
    written = frozenset(changed if effects.unknown else {*changed, *effects.mutated})
    memory = {name: tensor.cpu() for name, tensor in memory_of(arguments).items()}
    return AlgebraOutcome(launch.job.closure.name, memory, written, run.unmodelled, run.findings)


def _outcome(session: Session, call: UserCall, launch: KernelLaunch, timeout_s: float) -> AlgebraOutcome:
    zeroed = autotune_settings(call.kernel).reset_to_zero
    return outcome_of_launch(session.runtime.interpret, session.compiler.effects(launch.job), launch, timeout_s, zeroed)


def _require_sanitizer(session: Session, call: UserCall, other: UserCall | None) -> None:
    """Refuse a comparison on the GPU where nothing can be compiled with the sanitizer.

    Raises:
        CannotRun: there is no GPU, or none that the sanitizer of the installed Triton is for.
        UsageError: the other side is a function, which is evaluated by other definitions.
    """
    kernel = jit_function(call.kernel).__name__
    if session.runtime.is_offline():
        raise CannotRun(f"on_gpu=True launches {kernel} on a GPU, and there is none here; leave it out.", kernel=kernel)
    if problem := sanitizer_problem(session.target):
        raise CannotRun(f"on_gpu=True cannot compile {kernel}: {problem}; leave it out.", kernel=kernel)
    if other is None:
        raise UsageError(
            "b is a function, which the CPU evaluates by other definitions; pass a kernel with on_gpu=True."
        )


def _sanitized_outcome(session: Session, call: UserCall, launch: KernelLaunch, timeout_s: float) -> AlgebraOutcome:
    """The outcome of a launch on the GPU, on copies, compiled with the sanitizer."""
    zeroed, effects = autotune_settings(call.kernel).reset_to_zero, session.compiler.effects(launch.job)
    with sanitized_floats():
        outputs = outputs_on_copies(session.runtime, "cuda", launch, effects, timeout_s, zeroed)
    memory = {name: tensor.cpu() for name, tensor in outputs.items()}
    return AlgebraOutcome(launch.job.closure.name, memory, frozenset(memory))


def _interpret(
    interpret: Interpret, launch: KernelLaunch, timeout_s: float, arguments: dict[str, Any], *, algebra: bool = True
) -> Run:
    warps = launch.options.get("num_warps")
    return interpret(launch.function, arguments, launch.grid, timeout_s, warps=warps, follows=True, algebra=algebra)


def _other_call(session: Session, call: UserCall, other: Any) -> UserCall | None:
    """The call of the other side, None for a function."""
    if is_kernel(other):
        return replace(call, kernel=session.bind(other))
    if isinstance(other, tuple) and len(other) == 3 and is_kernel(other[0]) and isinstance(other[2], Mapping):
        kernel, grid, meta = other
        return UserCall(session.bind(kernel), grid, call.args, {**call.meta, **meta})
    options = options_of(other)
    if options is not None:
        return replace(call, meta={**call.meta, **options})
    if callable(other):
        return None
    expected = "a kernel, (kernel, grid, meta), a triton.Config, a dict of options, or a function of torch"
    raise UsageError(value_message("b", other, expected))


def _without_names_of(other: UserCall, call: UserCall) -> UserCall:
    """The call without the values that only the kernel of another call has parameters for."""
    foreign = set(parameter_names(other.kernel)) - set(parameter_names(call.kernel))
    return replace(call, meta={name: value for name, value in call.meta.items() if name not in foreign})


def _with_names_of(outcome: AlgebraOutcome, call: UserCall, other: UserCall) -> AlgebraOutcome:
    """The outcome of another kernel, by the names that the first one has for the arguments in the same positions."""
    pairs = zip(parameter_names(other.kernel), parameter_names(call.kernel), strict=False)
    names = {theirs: ours for (theirs, ours), _ in zip(pairs, call.args, strict=False)}
    memory = {names.get(name, name): tensor for name, tensor in outcome.memory.items()}
    return replace(outcome, memory=memory, written=frozenset(names.get(name, name) for name in outcome.written))


def _names(left: str, right: str, other: Any) -> tuple[str, str]:
    options = options_of(other)
    if options is not None:
        return left, ", ".join(f"{name}={value}" for name, value in options.items()) or f"{left} (other)"
    return left, right if right != left else f"{left} (other)"


def _outcome_of_function(function: Callable[..., Any], arguments: Mapping[str, Any], left: AlgebraOutcome) -> Any:
    """Evaluate a function of torch in the algebra on the arguments of a launch.

    Raises:
        UsageError: it takes another name, or its values do not fit the outputs.
    """
    name = getattr(function, "__name__", "the function")
    copies = {key: value.cpu() if hasattr(value, "cpu") else value for key, value in copy_arguments(arguments).items()}
    values = in_algebra(partial(call_by_name, function, what=name, owner="the kernel has"), copies)
    outputs = [key for key in left.memory if key in left.written]
    if not isinstance(values, Mapping):
        listed = list(values) if isinstance(values, tuple | list) else [values]
        if len(listed) != len(outputs):
            many = plural(len(listed), "value")
            raise UsageError(f"{name} returns {many} for the outputs {', '.join(outputs)}; return one for each.")
        values = dict(zip(outputs, listed, strict=True))
    memory = {key: values.get(key) for key in outputs if values.get(key) is not None}
    if unknown := [key for key in values if key not in left.memory]:
        raise UsageError(f"{name} returns {', '.join(unknown)}, which the kernel has no tensor for.")
    if not memory:
        raise UsageError(f"{name} returns nothing to compare; return a tensor for each of {', '.join(outputs)}.")
    fitted = {key: _bits_like(key, value, left.memory[key]) for key, value in memory.items()}
    return AlgebraOutcome(name, {**left.memory, **fitted}, frozenset(fitted))


def _bits_like(name: str, value: Any, output: Any) -> Any:
    """The bit patterns of a value in the dtype and shape of an output."""
    try:
        return value.to(output.dtype).expand(output.shape) if hasattr(value, "to") else value
    except (RuntimeError, KernellabError) as exc:
        raise UsageError(f"{name} is {tuple(output.shape)}, and the function returns {tuple(value.shape)}.") from exc

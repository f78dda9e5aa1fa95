"""A specification: a file of the judge's that says what a right candidate computes, and for which inputs."""

from __future__ import annotations

import hashlib
import importlib.util
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from kernellab.checking.comparison import ExpectedValue
from kernellab.checking.reference import keyword_names, required_names, select_arguments, takes_any_name
from kernellab.checking.tolerance import allowed_error, error_of_unknown, magnitude_of
from kernellab.errors import UsageError, first_line, plural, value_text
from kernellab.judge.layouts import LAYOUTS, with_layout
from kernellab.judge.verdict import AS_SPECIFIED, sizes_words

ALLOWED = ("triton", "torch")
_PLAIN = (bool, int, float, str, type(None))
ALL_OUTPUTS = ""
_FORMS = 'expected a number such as 0.05, {"rtol": 0.05, "atol": 0.01}, or a dict of such by output'


@dataclass(frozen=True, slots=True)
class Case:
    """Sizes by name, and the layout of the inputs in memory.

    Hidden sizes are unknown to the authors of candidates; timed ones are for a GPU alone.
    """

    sizes: tuple[tuple[str, Any], ...]
    is_hidden: bool
    is_timed: bool = False
    layout: str = AS_SPECIFIED

    @property
    def words(self) -> str:
        """The sizes in words, with the layout if it is another: ``n=1000, m=7, strided inputs``."""
        sizes = sizes_words(self.sizes) or "its own sizes"
        return sizes if self.layout == AS_SPECIFIED else f"{sizes}, {self.layout} inputs"


@dataclass(frozen=True)
class Specification:
    """A specification that was read from a file.

    ``outputs`` are arguments that ``solve`` fills; without them, what it returns counts. ``changes`` are further inputs
    that it may change. ``has_nonfinite`` allows inputs with Inf and NaN. ``distributions`` are those that inputs are
    drawn from, None for all. ``min_speedup`` is the least speedup over ``baseline`` that is accepted on a GPU. With
    ``algebra``, sums and products are compared in a ring, too. ``layouts`` are layouts of inputs that candidates must
    serve, too, with the names of the inputs that have them, None for all tensors. ``tolerances`` are those of outputs,
    by name; that of the name "" holds for all others.
    """

    path: Path
    digest: str
    reference: Callable[..., Any]
    inputs: Callable[..., Mapping[str, Any]]
    cases: tuple[Case, ...]
    allow: str = "triton"
    outputs: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    baseline: Callable[..., Any] | None = None
    has_nonfinite: bool = False
    distributions: tuple[str, ...] | None = None
    min_speedup: float | None = None
    algebra: bool = True
    layouts: tuple[tuple[str, frozenset[str] | None], ...] = ()
    tolerances: Mapping[str, Tolerance] = field(default_factory=dict)

    def without_timed(self) -> Specification:
        """Return the specification without the cases that are timed alone."""
        return replace(self, cases=tuple(case for case in self.cases if not case.is_timed))

    def with_layouts(self) -> Specification:
        """Return the specification with further cases: each that is not timed, in each layout that changes an input.

        Raises:
            UsageError: a layout changes no input of any case, or names something else than a tensor.
        """
        if not self.layouts:
            return self
        cases = list(self.cases)
        for case in self.cases:
            inputs = {} if case.is_timed else self.draw(case, 0)
            for layout, _ in self.layouts:
                changed = self.lay_out(replace(case, layout=layout), inputs)
                if any(changed[name] is not inputs[name] for name in inputs):
                    cases.append(replace(case, layout=layout))
        laid_out = {case.layout for case in cases}
        for layout, _ in self.layouts:
            if layout not in laid_out and layout != "contiguous":
                raise UsageError(f"layouts of {self.path.name} names {layout!r}, which changes no input of any size.")
        return replace(self, cases=tuple(cases))

    def lay_out(self, case: Case, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return inputs in the layout of a case; those that have it already are shared.

        Raises:
            UsageError: ``layouts`` names an input that is not a tensor.
        """
        names = dict(self.layouts).get(case.layout)
        tensors = {name for name, value in inputs.items() if isinstance(value, torch.Tensor)}
        unknown = sorted((names or frozenset()) - tensors) if inputs else []
        if unknown:
            shown = ", ".join(sorted(tensors)) or "none"
            raise UsageError(
                f"layouts of {self.path.name} names {unknown[0]!r}, which is not a tensor; the tensors: {shown}."
            )
        chosen = tensors if names is None else names
        return {name: with_layout(value, case.layout) if name in chosen else value for name, value in inputs.items()}

    def draw(self, case: Case, seed: int) -> dict[str, Any]:
        """Return inputs of a case by name, drawn with a seed; tensors lie on the CPU.

        Raises:
            UsageError: the function of the specification raises, or returns something else.
        """
        generator = torch.Generator().manual_seed(seed)
        sizes = dict(case.sizes)
        try:
            drawn = self.inputs(generator, **sizes)
        except Exception as exc:
            raise UsageError(
                f"inputs() of {self.path.name} raised {type(exc).__name__} for {case.words}: {first_line(exc)}"
            ) from exc
        if not isinstance(drawn, Mapping) or not all(isinstance(name, str) for name in drawn):
            raise UsageError(f"inputs() of {self.path.name} returns {value_text(drawn)}; expected a dict by name.")
        for name, value in drawn.items():
            if isinstance(value, torch.Tensor):
                if value.device.type != "cpu":
                    raise UsageError(
                        f"inputs() of {self.path.name} makes {name} on {value.device}; make it on the CPU."
                    )
            elif not isinstance(value, _PLAIN):
                kind = type(value).__name__
                raise UsageError(
                    f"inputs() of {self.path.name} gives a {kind} as {name}; expected a tensor, number or text."
                )
        return dict(drawn)

    def expected(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the reference's values for inputs, by the names of the outputs; arguments may be changed.

        Raises:
            UsageError: the reference raises, or its values are not those of the outputs.
        """
        return self.outputs_by_name(self.reference(**select_arguments(self.reference, inputs)))

    def tolerance_of(self, output: str) -> Tolerance | None:
        """Return the stated tolerance of an output, or None."""
        return self.tolerances.get(output, self.tolerances.get(ALL_OUTPUTS))

    def require_outputs(self, names: Sequence[str]) -> None:
        """Check that all tolerances are those of outputs, by the names of the reference's.

        Raises:
            UsageError: one is not.
        """
        unknown = [name for name in self.tolerances if name != ALL_OUTPUTS and name not in names]
        if unknown:
            shown = ", ".join(names)
            raise UsageError(
                f"tolerance of {self.path.name} names {unknown[0]!r}, which is not an output; the outputs: {shown}."
            )

    def outputs_by_name(self, result: Any) -> dict[str, Any]:
        """Return values of the reference by the names of the outputs: those of ``outputs``, else as ``solve`` has them.

        Raises:
            UsageError: their number differs from that of ``outputs``.
        """
        if isinstance(result, Mapping):
            values = {str(name): value for name, value in result.items()}
        elif isinstance(result, tuple | list):
            values = {f"output[{index}]": value for index, value in enumerate(result)}
        else:
            values = {"output": result}
        if not self.outputs:
            return values
        if set(values) == set(self.outputs):
            return values
        if len(values) != len(self.outputs):
            count = plural(len(values), "value")
            raise UsageError(f"reference() of {self.path.name} returns {count}; outputs names {len(self.outputs)}.")
        return dict(zip(self.outputs, values.values(), strict=True))


def read_specification(path: str | Path, sizes: Sequence[Mapping[str, Any]] | None = None) -> Specification:
    """Import a specification; ``sizes`` are used in place of its own, as shown ones.

    Raises:
        UsageError: there is no such file, it cannot be imported, or lacks something.
    """
    file = Path(path)
    if not file.is_file():
        raise UsageError(f"{value_text(str(path))} is not a file; expected a specification, such as softmax_spec.py.")
    module = _import(file)
    for name in ("reference", "inputs"):
        if not callable(getattr(module, name, None)):
            signature = "reference(**inputs)" if name == "reference" else "inputs(generator, **sizes)"
            raise UsageError(f"{file.name} defines no function {signature}.")
    allow = getattr(module, "allow", "triton")
    if allow not in ALLOWED:
        raise UsageError(f'allow of {file.name} is {value_text(allow)}; expected "triton" or "torch".')
    baseline = getattr(module, "baseline", None)
    if baseline is not None and not callable(baseline):
        raise UsageError(f"baseline of {file.name} is {value_text(baseline)}; expected a function of the inputs.")
    return Specification(
        path=file,
        digest=hashlib.sha256(file.read_bytes()).hexdigest(),
        reference=module.reference,
        inputs=module.inputs,
        cases=_cases(module, file, sizes),
        allow=allow,
        outputs=_names(module, "outputs", file),
        changes=_names(module, "changes", file),
        baseline=baseline,
        has_nonfinite=bool(getattr(module, "nonfinite", False)),
        distributions=_names(module, "distributions", file) or None,
        min_speedup=_speedup(module, file),
        algebra=bool(getattr(module, "algebra", True)),
        layouts=_layouts(module, file),
        tolerances=tolerances_of(getattr(module, "tolerance", None), file.name),
    )


def _import(file: Path) -> ModuleType:
    name = f"kernellab_specification_{hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise UsageError(f"{file.name} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as exc:
        raise UsageError(f"{file.name} cannot be imported: {type(exc).__name__}: {first_line(exc)}") from exc
    finally:
        sys.modules.pop(name, None)
    return module


def _cases(module: ModuleType, file: Path, given: Sequence[Mapping[str, Any]] | None) -> tuple[Case, ...]:
    declared = getattr(module, "sizes", {"shown": [{}]})
    if not isinstance(declared, Mapping) or not set(declared) <= {"shown", "hidden", "timed"}:
        raise UsageError(
            f'sizes of {file.name} is {value_text(declared)}; expected {{"shown": [{{...}}], "hidden": [{{...}}]}}.'
        )
    if given is not None:
        declared = {"shown": list(given)}
    takes, accepted = required_names(module.inputs)[1:], keyword_names(module.inputs)[1:]
    cases: list[Case] = []
    for kind in ("shown", "hidden", "timed"):
        for sizes in declared.get(kind, ()):
            if not isinstance(sizes, Mapping):
                raise UsageError(f"A size of {file.name} is {value_text(sizes)}; expected a dict by name.")
            missing = [name for name in takes if name not in sizes]
            if missing:
                raise UsageError(f"inputs() of {file.name} takes {missing[0]}, which the sizes {dict(sizes)} lack.")
            unknown = [] if takes_any_name(module.inputs) else [n for n in sizes if n not in accepted]
            if unknown:
                shown = ", ".join(accepted) or "none"
                raise UsageError(f"inputs() of {file.name} takes no size {unknown[0]!r}; the sizes it takes: {shown}.")
            cases.append(Case(tuple(sizes.items()), kind == "hidden", kind == "timed"))
    if all(case.is_timed for case in cases):
        raise UsageError(f"{file.name} names no sizes; give it some, or pass --sizes n=1024.")
    return tuple(cases)


def _names(module: ModuleType, name: str, file: Path) -> tuple[str, ...]:
    value = getattr(module, name, ())
    names = (value,) if isinstance(value, str) else tuple(value)
    if not all(isinstance(member, str) for member in names):
        raise UsageError(f"{name} of {file.name} is {value_text(value)}; expected names.")
    return names


def _speedup(module: ModuleType, file: Path) -> float | None:
    value = getattr(module, "min_speedup", None)
    if value is not None and not (isinstance(value, int | float) and value > 0):
        raise UsageError(f"min_speedup of {file.name} is {value_text(value)}; expected a positive number.")
    return None if value is None else float(value)


def _layouts(module: ModuleType, file: Path) -> tuple[tuple[str, frozenset[str] | None], ...]:
    """Return the layouts with the names of their inputs; those of all tensors first named without inputs."""
    value = getattr(module, "layouts", ())
    by_input = value if isinstance(value, Mapping) else {None: value}
    inputs_of: dict[str, set[str] | None] = {}
    for name, layouts in by_input.items():
        given = (layouts,) if isinstance(layouts, str) else layouts
        if not isinstance(given, list | tuple) or not all(layout in LAYOUTS for layout in given):
            raise UsageError(
                f"layouts of {file.name} is {value_text(value)}; expected some of {', '.join(LAYOUTS)}, "
                'or a dict such as {"x": ("strided",)}.'
            )
        for layout in given:
            names = inputs_of.setdefault(layout, None if name is None else set())
            if names is not None:
                names.add(str(name))
    return tuple((layout, None if names is None else frozenset(names)) for layout, names in inputs_of.items())


@dataclass(frozen=True, slots=True)
class Tolerance:
    """A stated tolerance: an element may be off by ``rtol`` of its own magnitude and ``atol`` more."""

    rtol: float = 0.0
    atol: float = 0.0

    @property
    def words(self) -> str:
        """The tolerance in words: ``rtol 0.05, atol 0.01``."""
        parts = (f"{name} {value:g}" for name, value in (("rtol", self.rtol), ("atol", self.atol)) if value)
        return ", ".join(parts)

    def allowed_error(self, want: torch.Tensor) -> torch.Tensor:
        """Return the allowed error of each element, in float64; of NaN and infinities, ``atol``."""
        allowed: torch.Tensor = self.atol + self.rtol * magnitude_of(want).nan_to_num(0.0, 0.0, 0.0)
        return allowed

    def accepts_zeros(self, want: torch.Tensor) -> bool:
        """Whether zeros in place of all elements are within the tolerance, though some element is not zero."""
        size = magnitude_of(want).nan_to_num(math.inf)
        return bool(want.numel()) and bool((size > 0).any()) and bool((size <= self.allowed_error(want)).all())


def with_tolerance(got: torch.Tensor, expected: ExpectedValue, tolerance: Tolerance) -> ExpectedValue:
    """Widen the bounds of an expected value to a tolerance, where that is larger.

    An element of ``got`` that is NaN or infinite keeps its own bound: a tolerance does not reach there.
    """
    want = expected.value
    rounding = allowed_error(got, want, 0.0)
    own = torch.as_tensor(error_of_unknown(got, want, expected.unit) if expected.error is None else expected.error)
    own = own.to(rounding).expand(rounding.shape)
    is_finite = (got if got.is_complex() else got.double()).isfinite()  # torch lacks isfinite for float8
    allowed = torch.where(is_finite, torch.maximum(own, tolerance.allowed_error(want) - rounding), own)
    return replace(expected, error=allowed)


def tolerances_of(value: Any, file: str) -> dict[str, Tolerance]:
    """Return the tolerances that a specification in ``file`` states, by output; `ALL_OUTPUTS` names all others.

    Raises:
        UsageError: ``value`` is neither a number nor a dict of numbers.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping) or set(value) & {"rtol", "atol"}:
        return {ALL_OUTPUTS: _tolerance(value, file, "tolerance")}
    if not value or not all(isinstance(name, str) and name for name in value):
        raise UsageError(f"tolerance of {file} is {value_text(value)}; {_FORMS}.")
    return {name: _tolerance(own, file, f"tolerance of {name}") for name, own in value.items()}


def _tolerance(value: Any, file: str, what: str) -> Tolerance:
    parts = value if isinstance(value, Mapping) else {"rtol": value}
    are_numbers = all(isinstance(part, int | float) and not isinstance(part, bool) for part in parts.values())
    if not parts or not set(parts) <= {"rtol", "atol"} or not are_numbers:
        raise UsageError(f"{what} in {file} is {value_text(value)}; {_FORMS}.")
    tolerance = Tolerance(**{name: float(part) for name, part in parts.items()})
    if not 0.0 <= tolerance.rtol < 1.0:
        raise UsageError(
            f"rtol is {tolerance.rtol:g} in {what} of {file}; expected 0 or more and less than 1, which is all of an "
            "element."
        )
    if not (0.0 <= tolerance.atol < math.inf):
        raise UsageError(f"atol is {tolerance.atol:g} in {what} of {file}; expected a finite number, 0 or more.")
    if not tolerance.rtol and not tolerance.atol:
        raise UsageError(f"{what} in {file} is 0; leave it out, and each element has a bound of its own.")
    return tolerance

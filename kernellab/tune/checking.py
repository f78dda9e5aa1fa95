"""The reference that the outputs of all configs are compared with: a function of the arguments, or an expression."""

from __future__ import annotations

import ast
import builtins
import hashlib
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from kernellab.check import tolerance_of, widened
from kernellab.errors import UsageError
from kernellab.gpu.bench_jobs import Expected
from kernellab.gpu.boarding import Boarding
from kernellab.memory import memory_of, with_tensors
from kernellab.packed import TensorSpec
from kernellab.tune.expression import evaluated, no_python

_GOLDEN = -7046029254386353131
_CHUNK = 1 << 24
_WIDENED_ELEMENTS_AT_MOST = 1 << 28


@dataclass(frozen=True, slots=True)
class Check:
    """How a reference is computed: ``values`` takes the arguments of the launch, by name. ``text`` names it.

    ``needs`` are the arguments that it cannot do without.
    """

    text: str
    values: Callable[[Mapping[str, Any]], Any]
    needs: tuple[str, ...] = ()

    def require(self, arguments: Mapping[str, Any]) -> None:
        """Raise where something is missing that the reference is computed from.

        Raises:
            UsageError: it uses a name that is no argument.
        """
        missing = [name for name in self.needs if name not in arguments]
        if missing:
            raise UsageError(f"check takes {', '.join(missing)}; the kernel has {', '.join(arguments)}.")


@dataclass(frozen=True, slots=True)
class Reference:
    """The values that the outputs are to hold: by argument, or one per output in the order of the arguments.

    ``identity`` tells equal values from others, across sessions.
    """

    text: str
    values: Mapping[str, Any] | tuple[Any, ...]
    identity: str
    _named: dict[frozenset[str], dict[str, Any]] = field(default_factory=dict)

    def of(self, outputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return what each of some outputs is to hold; ``outputs`` are the tensors that the kernel writes, by name.

        Raises:
            UsageError: the values do not belong to these outputs, by number, name or shape.
        """
        names = frozenset(outputs)
        if names not in self._named:
            self._named[names] = self._matched(outputs)
        return self._named[names]

    def _matched(self, outputs: Mapping[str, Any]) -> dict[str, Any]:
        written = ", ".join(outputs) or "nothing"
        if isinstance(self.values, tuple):
            if len(self.values) != len(outputs):
                raise UsageError(
                    f"check {self.text!r} gives {len(self.values)} values and the kernel writes {written}; give one "
                    "value per written argument, as a tuple in their order, or a dict by name for some of them."
                )
            found = dict(zip(outputs, self.values, strict=True))
        else:
            unknown = [name for name in self.values if name not in outputs]
            if unknown:
                raise UsageError(f"check {self.text!r} gives {unknown[0]}, and the kernel writes {written}.")
            found = {name: value for name, value in self.values.items() if name in outputs}
        return {name: _like(value, outputs[name], name, self.text) for name, value in found.items()}


def check_of(given: Any) -> Check:
    """Return the check that a user gives: a function of kernel parameters, or an expression over them.

    Raises:
        UsageError: it is neither.
    """
    if isinstance(given, Check):
        return given
    if isinstance(given, str):
        return _of_parameters(given)
    if callable(given):
        return _of_function(given)
    raise UsageError(f"check is {given!r}; expected a function of kernel parameters, or an expression over them.")


def check_in(text: str, namespace: Mapping[str, Any]) -> Check:
    """Return the check for an expression over the names of a notebook, in float64 where its operations exist there.

    Raises:
        UsageError: it is no expression, or uses a name that the notebook lacks.
    """
    missing = [name for name in _names_in(text) if name not in namespace]
    if missing:
        raise UsageError(f"check {text!r} uses {', '.join(missing)}, which the notebook does not define.")
    return Check(text, lambda arguments: _evaluated(text, namespace))


def reference_of(check: Check, arguments: Mapping[str, Any]) -> Reference:
    """Compute a reference; the arguments stay as they are.

    Raises:
        UsageError: it cannot be computed, or is no tensor, tuple or dict of them.
    """
    import torch  # a launch needs it anyway

    check.require(arguments)
    result = check.values(arguments)
    values: Mapping[str, Any] | tuple[Any, ...]
    if isinstance(result, Mapping):
        values = {str(name): value for name, value in result.items()}
    else:
        values = tuple(result) if isinstance(result, tuple | list) else (result,)
    for value in values.values() if isinstance(values, Mapping) else values:
        if not isinstance(value, torch.Tensor | int | float | complex):
            raise UsageError(f"check {check.text!r} gives a {type(value).__name__}; expected tensors.")
    return Reference(check.text, values, _identity(values))


def expected_of(
    reference: Reference, arguments: Mapping[str, Any], views: Mapping[str, TensorSpec], boarding: Boarding
) -> tuple[Expected, ...]:
    """Return what a bench compares the outputs of launches with; ``boarding`` takes the values to where it works.

    ``views`` are the outputs in the memory of the bench, ``arguments`` those of a launch before it.
    """
    tensors = memory_of(arguments)
    values = reference.of({name: tensors[name] for name in views if name in tensors})
    specs = dict(boarding.specs(values))
    return tuple(
        Expected(name, views[name], spec, *tolerance_of(tensors[name].dtype), _fill_of(tensors[name]))
        for name, spec in specs.items()
        if isinstance(spec, TensorSpec)
    )


def _fill_of(tensor: Any) -> float | None:
    """Return the value that all elements of a tensor hold, or None."""
    if not tensor.numel() or tensor.is_complex():
        return None
    first = tensor.flatten()[0]
    return float(first) if bool((tensor == first).all()) else None


def _of_parameters(text: str) -> Check:
    def values(arguments: Mapping[str, Any]) -> Any:
        import torch
        import triton

        return _evaluated(text, {"torch": torch, "triton": triton, "math": math, **_copied(arguments)})

    names = _names_in(text)
    return Check(text, values, tuple(name for name in names if name not in {"torch", "triton", "math"}))


def _names_in(text: str) -> tuple[str, ...]:
    """Return the names that an expression takes from outside.

    Raises:
        UsageError: it is no expression.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError as exc:
        raise no_python(text, exc, 'write an expression, such as "x + y"', "check") from exc
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    own = {node.id for node in found if isinstance(node.ctx, ast.Store)}
    own |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    return tuple(dict.fromkeys(n.id for n in found if n.id not in own and not hasattr(builtins, n.id)))


def _of_function(function: Callable[..., Any]) -> Check:
    name = getattr(function, "__name__", type(function).__name__)
    parameters = inspect.signature(function).parameters.values()
    takes_all = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
    taken = [p.name for p in parameters if p.kind not in {p.VAR_KEYWORD, p.VAR_POSITIONAL}]
    needed = [p.name for p in parameters if p.name in taken and p.default is p.empty]

    def values(arguments: Mapping[str, Any]) -> Any:
        named = {each: value for each, value in arguments.items() if takes_all or each in taken}
        wide = _widened(named)
        if wide is not None:
            with suppress(Exception):  # an operation that float64 lacks; what else is wrong, the plain call tells
                return function(**wide)
        try:
            return function(**_copied(named))
        except Exception as exc:
            raise UsageError(f"check {name} cannot be evaluated: {type(exc).__name__}: {exc}") from exc

    return Check("the expression" if name == "<lambda>" else name, values, tuple(needed))


def _evaluated(text: str, namespace: Mapping[str, Any]) -> Any:
    with suppress(UsageError, SyntaxError):  # whatever is wrong with it is told by the plain evaluation
        wide = widened(text, namespace)
        if wide is not None:
            return evaluated(text, text, wide)
    return evaluated(text, text, namespace)


def _widened(arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the arguments with floating-point tensors in float64; None where there are none or too many elements."""
    floats = [t for t in memory_of(arguments).values() if t.is_floating_point()]
    if not floats or sum(tensor.numel() for tensor in floats) > _WIDENED_ELEMENTS_AT_MOST:
        return None

    def wide(tensor: Any) -> Any:
        is_narrow = tensor.is_floating_point() and tensor.element_size() < 8
        return tensor.detach().double() if is_narrow else tensor.detach().clone()

    return {name: with_tensors(value, wide) for name, value in arguments.items()}


def _copied(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments with tensors of their own: a reference may work in place."""
    return {name: with_tensors(value, lambda tensor: tensor.detach().clone()) for name, value in arguments.items()}


def _like(value: Any, output: Any, name: str, text: str) -> Any:
    """Return a value as a tensor of the shape and device of an output."""
    import torch

    tensor = torch.as_tensor(value, device=output.device).detach()
    if tensor.numel() == 1 and output.numel() != 1 and tensor.dim() == 0:
        tensor = tensor.expand(output.shape)
    if tensor.numel() != output.numel():
        raise UsageError(f"check {text!r} has the shape {tuple(tensor.shape)} and {name} has {tuple(output.shape)}.")
    return tensor.reshape(output.shape).contiguous()


def _identity(values: Mapping[str, Any] | Sequence[Any]) -> str:
    """Return a hash of values: sums over their bytes, plain and by position, which a GPU computes in place."""
    named = values.items() if isinstance(values, Mapping) else enumerate(values)
    text = repr([(name, _summed(value)) for name, value in named])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _summed(value: Any) -> tuple[Any, ...]:
    import torch

    tensor = torch.as_tensor(value).detach().contiguous()
    data = tensor.reshape(-1).view(torch.uint8) if tensor.numel() else tensor.new_empty(0, dtype=torch.uint8)
    plain = placed = 0
    for start in range(0, data.numel(), _CHUNK):
        part = data[start : start + _CHUNK].to(torch.int64)
        places = torch.arange(start + 1, start + 1 + part.numel(), device=part.device) * _GOLDEN
        plain, placed = plain + int(part.sum()), placed ^ int((places * (part + 1)).sum())
    return str(tensor.dtype), tuple(tensor.shape), plain, placed

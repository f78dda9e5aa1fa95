"""Functions, expressions and references of the user, and calls of them with arguments by name."""

from __future__ import annotations

import ast
import builtins
import hashlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import Any

from kernellab.checking.comparison import ExpectedValue
from kernellab.checking.tolerance import unit_of
from kernellab.errors import KernellabError, UsageError, first_line, plural, value_text
from kernellab.launch.arguments import memory_of
from kernellab.launch.memory import copy_arguments, with_tensors


def keyword_names(function: Any) -> list[str]:
    """Return the names of a function's parameters, without ``*args`` and ``**kwargs``; none for None."""
    if function is None:
        return []
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [name for name, parameter in _parameters_of(function).items() if parameter.kind not in kinds]


def call_by_name(
    function: Any,
    available: Mapping[str, Any],
    what: str,
    owner: str = "there are",
    error: type[KernellabError] = UsageError,
) -> Any:
    """Call a function of the user with its parameters by name; those with a default may be missing.

    Raises:
        UsageError: it has another required parameter.
        error: it raises.
    """
    require_names(function, available, what, owner)
    try:
        return function(**select_arguments(function, available))
    except KernellabError:
        raise
    except Exception as exc:
        raise error(f"{what} raised {type(exc).__name__}: {first_line(exc)}") from exc


def require_names(function: Any, available: Mapping[str, Any], what: str, owner: str = "there are") -> None:
    """Raise where a required parameter of a function is not available; messages say that ``owner`` has the names.

    Raises:
        UsageError: one is missing, or the function has no signature.
    """
    _require(required_names(function), available, what, owner)


def _require(names: Iterable[str], available: Mapping[str, Any], what: str, owner: str) -> None:
    missing = [name for name in names if name not in available]
    if missing:
        raise UsageError(f"{what} takes {', '.join(missing)}; {owner} {', '.join(available)}.")


def select_arguments(function: Any, available: Mapping[str, Any]) -> dict[str, Any]:
    """Select the values that a function takes by name."""
    names = keyword_names(function)
    return {name: value for name, value in available.items() if name in names or takes_any_name(function)}


def required_names(function: Any) -> list[str]:
    """Return the names of a function's parameters without a default."""
    parameters = _parameters_of(function)
    return [name for name in keyword_names(function) if parameters[name].default is inspect.Parameter.empty]


def takes_any_name(function: Any) -> bool:
    """Whether a function takes any name, by ``**kwargs``."""
    return function is not None and any(
        parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in _parameters_of(function).values()
    )


def _parameters_of(function: Any) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError) as exc:
        name = getattr(function, "__name__", "function")
        raise UsageError(f"{value_text(function)} does not list its parameters; wrap it: lambda x: {name}(x).") from exc


def invalid_python(text: str, exc: SyntaxError, how: str = "", option: str = "") -> UsageError:
    """Return the error for text that is not valid Python, worded on the user's text alone."""
    reason = exc.msg
    try:
        ast.parse(text.strip())
    except SyntaxError as own:
        reason = own.msg
    named = f"{option} {text!r}".lstrip()
    return UsageError(f"{named} is not valid Python: {reason.partition('. ')[0]}{how and f'; {how}'}.")


_GOLDEN = -7046029254386353131
_CHUNK = 1 << 24
_BOUNDED_ELEMENTS_AT_MOST = 1 << 28
_RULES = 2  # the version of the tolerance rules; increase it when a verdict may change
ANONYMOUS = "the expression"
"""The name of a reference without one."""
THE_FUNCTION = "The function"
"""The name of a reference that is not a ``check=``."""
_MODULES = frozenset({"torch", "triton", "math"})


@dataclass(frozen=True, slots=True)
class ReferenceFunction:
    """How a reference is computed: ``values`` takes the arguments of the launch, by name. ``text`` names it.

    ``needs`` are the arguments that it requires. ``sources`` are its inputs by name, None for the arguments.
    """

    text: str
    values: Callable[[Mapping[str, Any]], Any]
    needs: tuple[str, ...] = ()
    sources: Mapping[str, Any] | None = None

    def computed_before(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the inputs of floating point that are none of a launch's arguments, but were computed before it."""
        own = {tensor.untyped_storage().data_ptr() for tensor in memory_of(arguments).values()}
        return tuple(
            name
            for name, value in (self.sources or {}).items()
            if any(
                tensor.is_floating_point() and tensor.untyped_storage().data_ptr() not in own
                for tensor in memory_of({name: value}).values()
            )
        )

    def require(self, arguments: Mapping[str, Any]) -> None:
        """Raise where an argument is missing that the reference needs.

        Raises:
            UsageError: it uses a name that is not an argument.
        """
        _require(self.needs, arguments, "check", "the kernel has")


@dataclass(frozen=True, slots=True)
class Reference:
    """The expected values of the outputs: by argument, or one per output in the order of the arguments.

    None stands for an output that is not compared. ``identity`` is a hash of the values, stable across sessions.
    """

    text: str
    values: Mapping[str, ExpectedValue | None] | tuple[ExpectedValue | None, ...]
    identity: str
    _matched: dict[frozenset[str], dict[str, ExpectedValue]] = field(default_factory=dict)

    def of(self, outputs: Mapping[str, Any]) -> dict[str, ExpectedValue]:
        """Return the expected value of each output; ``outputs`` are the tensors that the kernel writes, by name.

        Raises:
            UsageError: the values do not belong to these outputs, by number, name or shape.
        """
        names = frozenset(outputs)
        if names not in self._matched:
            self._matched[names] = self._match_outputs(outputs)
        return self._matched[names]

    def clone(self) -> Reference:
        """Clone the values: they may share memory with an argument that is about to change."""

        def twin(value: ExpectedValue | None) -> ExpectedValue | None:
            return None if value is None else replace(value, value=value.value.clone())

        if isinstance(self.values, tuple):
            return replace(self, values=tuple(map(twin, self.values)), _matched={})
        return replace(self, values={name: twin(value) for name, value in self.values.items()}, _matched={})

    def _match_outputs(self, outputs: Mapping[str, Any]) -> dict[str, ExpectedValue]:
        written = ", ".join(outputs) or "nothing"
        if isinstance(self.values, tuple):
            if len(self.values) != len(outputs) or not any(self.values):
                count = plural(len(self.values), "value")
                raise UsageError(
                    f"{_check_name(self.text)} gives {count} and the kernel writes {written}; "
                    "give one value per written argument, as a tuple in their order, None for one that is not to be "
                    "compared, or a dict by name."
                )
            values = dict(zip(outputs, self.values, strict=True))
        else:
            unknown = [name for name in self.values if name not in outputs]
            if unknown:
                raise UsageError(f"{_check_name(self.text)} gives {unknown[0]}, and the kernel writes {written}.")
            values = dict(self.values)
        return {
            name: _match_shape(value, outputs[name], name, self.text)
            for name, value in values.items()
            if value is not None
        }


def check_of(check: Any) -> ReferenceFunction:
    """Convert the user's ``check=`` to a reference function.

    It may be a function of kernel parameters, an expression over them, or the values.

    Raises:
        UsageError: it is none of these.
    """
    if isinstance(check, ReferenceFunction):
        return check
    if isinstance(check, str):
        needs = tuple(name for name in _names_in(check, "check") if name not in _MODULES)

        def evaluate(arguments: Mapping[str, Any]) -> Any:
            return _value_of(check, {**{name: import_module(name) for name in _MODULES}, **arguments}, "check")

        return ReferenceFunction(check, evaluate, needs)
    if callable(check):
        name = getattr(check, "__name__", type(check).__name__)
        values = partial(call_by_name, check, what=f"check {name}", owner="the kernel has")
        return ReferenceFunction(ANONYMOUS if name == "<lambda>" else name, values, tuple(required_names(check)))
    if all(hasattr(value, "untyped_storage") for value in (check if isinstance(check, tuple | list) else (check,))):
        return ReferenceFunction("check", lambda arguments: check, sources={})
    raise UsageError(
        f"check is {value_text(check)}; expected a function of kernel parameters, or an expression over them."
    )


def check_in(text: str, namespace: Mapping[str, Any]) -> ReferenceFunction:
    """Return the reference of an expression over the names of a notebook.

    Raises:
        UsageError: it is not an expression, or uses an undefined name.
    """
    missing = [name for name in _names_in(text, "check") if name not in namespace]
    if missing:
        raise UsageError(f"check {text!r} uses {', '.join(missing)}, which the notebook does not define.")
    return expression_in(text, namespace)


def expression_in(text: str, namespace: Mapping[str, Any], option: str = "check") -> ReferenceFunction:
    """Return the reference of an option's expression, evaluated with the names of a notebook.

    Raises:
        UsageError: it is not an expression.
    """
    names = [name for name in _names_in(text, option) if name in namespace]
    sources = {name: namespace[name] for name in names if memory_of({name: namespace[name]})}
    return ReferenceFunction(
        text, lambda arguments: _value_of(text, {**namespace, **arguments}, option), sources=sources
    )


def reference_of(check: ReferenceFunction, arguments: Mapping[str, Any]) -> Reference:
    """Compute a reference, in float64 and with bounds where its operations allow it; arguments stay unchanged.

    The values have memory of their own, so a launch that changes an argument in place leaves them as they are. Inputs
    that are not arguments, such as results of earlier cells, count as inexact.

    Raises:
        UsageError: it cannot be computed, or is not a tensor, tuple or dict of them, or an argument has no data.
    """
    import torch  # a launch needs it anyway

    check.require(arguments)
    for name, tensor in memory_of(arguments).items():
        if tensor.device.type == "meta":
            why = f"check needs values, and {name} is a tensor without data (device meta)"
            raise UsageError(f"{why}; give it data with torch.empty_like.")
    own = {tensor.untyped_storage().data_ptr() for tensor in memory_of(arguments).values()}
    if check.sources is None:
        result = bounded_values(check.values, arguments, arguments)
    else:
        try:
            result = bounded_values(check.values, check.sources, arguments)
        except UsageError:  # it may need what copies lack: autograd's graph, or a tensor's identity as a dict key
            result = _with_values(check.values({}))

    def expected_value(value: Any) -> ExpectedValue | None:
        if value is None:
            return None
        if isinstance(value, int | float | complex):
            return ExpectedValue(torch.as_tensor(value))
        if not isinstance(value, ExpectedValue):
            raise UsageError(f"{_check_name(check.text)} gives a {type(value).__name__}; expected tensors.")
        is_shared = value.value.untyped_storage().data_ptr() in own  # with an argument, which the launch may change
        return replace(value, value=value.value.clone()) if is_shared else value

    values: Mapping[str, ExpectedValue | None] | tuple[ExpectedValue | None, ...]
    if isinstance(result, Mapping):
        values = {str(name): expected_value(value) for name, value in result.items()}
    else:
        values = tuple(map(expected_value, result if isinstance(result, tuple | list) else (result,)))
    return Reference(check.text, values, _identity(values))


def bounded_values(
    function: Callable[[Mapping[str, Any]], Any],
    arguments: Mapping[str, Any],
    launched: Mapping[str, Any] | None = None,
) -> Any:
    """Evaluate a function of named arguments with error bounds; its tensors are returned as `ExpectedValue`.

    The function is called on copies, in float64 in place of narrower formats; if it fails, in the formats as they are.
    The errors of a kernel are tracked through its operations. Where that fails, as through NumPy, the values have no
    bounds of their own. ``launched`` are the arguments of a launch: other tensors were computed before, in an unknown
    way. Without them, all tensors are exact.

    Raises:
        KernellabError: the function fails without tracking, too.
    """

    def call_tracked(track: Callable[[Any], Any]) -> Any:
        return function({name: with_tensors(value, track) for name, value in arguments.items()})

    tensors = [tensor for tensor in memory_of(arguments).values() if tensor.is_floating_point()]
    if sum(tensor.numel() for tensor in tensors) <= _BOUNDED_ELEMENTS_AT_MOST:
        for widens in (True, False):
            with suppress(Exception):  # the plain call below raises the error of the function
                from kernellab.checking.bounds import Origins, evaluate_with_bounds  # loads torch

                origins = Origins() if launched is None else Origins.of_launch(memory_of(launched).values())
                return evaluate_with_bounds(call_tracked, widens=widens, origins=origins)
    unit = max((unit_of(tensor.dtype) for tensor in tensors), default=0.0)
    return _with_values(function(copy_arguments(arguments)), unit)


def _with_values(result: Any, unit: float = 0.0) -> Any:
    if isinstance(result, Mapping):
        return {name: _with_values(value, unit) for name, value in result.items()}
    if isinstance(result, tuple | list):
        return tuple(_with_values(value, unit) for value in result)
    known = hasattr(result, "untyped_storage")
    return ExpectedValue(result.detach(), None, max(unit, unit_of(result.dtype))) if known else result


def _names_in(text: str, option: str) -> tuple[str, ...]:
    """Return the free names of an expression; raises `UsageError` where it is none."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError as exc:
        how = f'write {option} "x + y"' if option.startswith("--") else 'write an expression, such as "x + y"'
        raise invalid_python(text, exc, how, option) from exc
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    own = {node.id for node in nodes if isinstance(node.ctx, ast.Store)}
    own |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    return tuple(dict.fromkeys(n.id for n in nodes if n.id not in own and not hasattr(builtins, n.id)))


def _value_of(text: str, namespace: Mapping[str, Any], option: str) -> Any:
    try:
        return eval(text.strip(), dict(namespace))
    except Exception as exc:
        raise UsageError(f"{option} {text!r} cannot be evaluated: {type(exc).__name__}: {exc}") from exc


def _match_shape(value: ExpectedValue, output: Any, name: str, text: str) -> ExpectedValue:
    """Return a value in the shape and on the device of an output."""

    def fit(tensor: Any) -> Any:
        tensor = tensor.to(output.device).detach()
        if tensor.numel() == 1 and output.numel() != 1 and tensor.dim() == 0:
            tensor = tensor.expand(output.shape)
        if tensor.numel() != output.numel():
            raise UsageError(
                f"{_check_name(text)} has the shape {tuple(tensor.shape)} and {name} has {tuple(output.shape)}."
            )
        return tensor.reshape(output.shape).contiguous()

    return replace(value, value=fit(value.value), error=None if value.error is None else fit(value.error))


def _check_name(text: str) -> str:
    if text == THE_FUNCTION:
        return text
    return "check" if text in {ANONYMOUS, "check"} else f"check {text!r}"


def _identity(values: Mapping[str, ExpectedValue | None] | tuple[ExpectedValue | None, ...]) -> str:
    """Return a hash of values from sums over their bytes, plain and by position, computed in place on a GPU."""
    named = values.items() if isinstance(values, Mapping) else enumerate(values)
    text = repr([_RULES, *((name, None if value is None else _tensor_digest(value.value)) for name, value in named)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _tensor_digest(value: Any) -> tuple[Any, ...]:
    import torch

    tensor = torch.as_tensor(value).detach().contiguous()
    data = tensor.reshape(-1).view(torch.uint8) if tensor.numel() else tensor.new_empty(0, dtype=torch.uint8)
    plain = placed = 0
    for start in range(0, data.numel(), _CHUNK):
        part = data[start : start + _CHUNK].to(torch.int64)
        places = torch.arange(start + 1, start + 1 + part.numel(), device=part.device) * _GOLDEN
        plain, placed = plain + int(part.sum()), placed ^ int((places * (part + 1)).sum())
    return str(tensor.dtype), tuple(tensor.shape), plain, placed

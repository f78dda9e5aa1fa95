"""What runs in the candidate's process: its file is imported, and ``solve`` is recorded as a program for each case.

Kernels are neither compiled nor launched here, so outputs hold whatever their memory held. Each case is recorded twice,
on inputs of different contents: where the two programs differ, something in them came from data. Operators that the
candidate defines by `torch.library` are plain functions here: torch would show a call as one operation, which no judge
runs.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from kernellab._triton.closure import closure_of
from kernellab._triton.recorded_launches import LaunchCall, record_launches
from kernellab.capture.build import build_program
from kernellab.capture.function_recorder import FunctionRecorder
from kernellab.capture.recorder import OperationRecorder
from kernellab.capture.tape import KernelUse, RecordedKernelLaunch
from kernellab.checking.reference import select_arguments
from kernellab.errors import KernellabError, UsageError
from kernellab.ir.effects import UnknownEffect
from kernellab.ir.operations import Access
from kernellab.judge.pretended_gpu import pretended_gpu
from kernellab.judge.program import encoded_program, encoded_variant
from kernellab.launch.arguments import members_of, span_elements
from kernellab.launch.calls import evaluated_grid
from kernellab.launch.recording import Observers
from kernellab.source import Binding, Closure, closure_to_jsonable

MODULE = "candidate"
_LARGE = 1 << 22  # elements: larger inputs hold zeros, whose memory nobody pays for
_LEAST_ADDRESS = 1 << 32


@dataclass(frozen=True, slots=True)
class _UnknownEffects:
    """The effects of an unknown kernel: all of its tensors count as changed, and memory behind addresses in them.

    ``through`` are the arguments that may hold addresses.
    """

    through: frozenset[str]
    is_followed: bool = False
    lost: bool = False
    mutated: frozenset[str] = frozenset()
    unknown: tuple[UnknownEffect, ...] = ()

    def reached_through(self, *kinds: Access) -> frozenset[str]:
        """Return the arguments through which memory may be accessed."""
        return self.through


def _possible_addresses(recorder: OperationRecorder, arguments: Mapping[str, Any]) -> frozenset[str]:
    """Return the arguments that may hold addresses: integers beyond 32 bits, and tables that the host filled.

    Other tensors hold made-up contents here, or what their memory held before.
    """
    recording = recorder.recording
    tables = {recording.values[index].storage for index in recording.constants}

    def is_possible(value: Any) -> bool:
        if isinstance(value, torch.Tensor):
            return value.dtype in {torch.int64, torch.uint64} and recorder.memory.storage_of(value) in tables
        return isinstance(value, int) and value >= _LEAST_ADDRESS

    return frozenset(name for name, value in members_of(arguments.items()) if is_possible(value))


def main(request: bytes, send: Callable[[bytes], None]) -> None:
    """Import the candidate, record a program for each case of the request, and send the programs as JSON."""
    asked = json.loads(request)
    define_own_operators_as_functions()
    with pretended_gpu(asked["target"], MODULE):
        answer = _answer(asked["file"], asked["cases"])
    send(json.dumps(answer).encode())


def _answer(file: str, cases: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    closures: dict[str, Closure] = {}  # of all recorded launches, each once

    def kernel_number(closure: Closure) -> int:
        closures.setdefault(closure.compile_digest, closure)
        return list(closures).index(closure.compile_digest)

    try:
        solve = getattr(_import_candidate(Path(file)), "solve", None)
        if not callable(solve):
            raise UsageError("The candidate defines no function solve(**inputs).")
    except BaseException as exc:  # noqa: BLE001 - whatever the candidate raises becomes data
        return {"error": _error_data(exc, file)}
    answers = [_case_answer(solve, case, kernel_number, file) for case in cases]
    return {"cases": answers, "kernels": [closure_to_jsonable(closure) for closure in closures.values()]}


def _case_answer(
    solve: Callable[..., Any], case: Mapping[str, Any], kernel_number: Callable[[Closure], int], file: str
) -> dict[str, Any]:
    programs = []
    try:
        for fill in (0, 1):
            inputs = {spec["name"]: input_of(spec, fill) for spec in case["inputs"]}
            programs.append(encoded_solve(solve, inputs, tuple(case["outputs"]), kernel_number))
    except BaseException as exc:  # noqa: BLE001 - as above; a candidate may raise SystemExit
        return {"error": _error_data(exc, file)}
    return {"programs": programs}


def encoded_solve(
    solve: Callable[..., Any],
    inputs: Mapping[str, Any],
    outputs: tuple[str, ...],
    kernel_number: Callable[[Closure], int],
) -> dict[str, Any]:
    """Record ``solve(**inputs)``, and return its program as JSON.

    ``outputs`` are the arguments that it fills; without them, what it returns counts.

    Raises:
        UsageError: it uses memory from outside of the call, changes memory unseen, or returns no tensors.
    """
    others: dict[int, list[dict[str, Any]]] = {}  # encoded variants by the id of a launch's use
    owners: dict[int, tuple[LaunchCall, ...]] = {}
    observers = Observers()
    scope = dict(inputs)
    names: dict[int, str] = {}

    def keep(launched: Any) -> RecordedKernelLaunch:
        use = _use_of(launched)
        owners[id(use)] = launched.others
        return RecordedKernelLaunch(use, launched.kernel, launched.kernel, None, None, None, {})  # type: ignore[arg-type]

    recorder = OperationRecorder(observers, lambda: scope, keep)

    def record(call: LaunchCall) -> None:
        launched = _launch_of(call, recorder)
        with observers.own_launches():  # tables of addresses are read on the way
            recorder.record_launch(launched)

    with torch.no_grad(), record_launches(record), recorder, FunctionRecorder(recorder):
        for name, value in inputs.items():
            if isinstance(value, torch.Tensor):
                with recorder.suspend():
                    index = recorder.value_of(value)
                names[index] = name
        result = solve(**select_arguments(solve, inputs))
        returned = {name: inputs[name] for name in outputs} if outputs else named_outputs(result)
        recorder.check_memory(at_end=True)
        with recorder.suspend():
            recorder.recording.outputs = [recorder.value_of(tensor) for tensor in returned.values()]
    if recorder.recording.problems:
        raise UsageError(f"{next(iter(recorder.recording.problems))}; a judge runs only what is recorded.")

    def register(record: RecordedKernelLaunch) -> KernelUse:
        others[id(record.use)] = [_encoded_call(call) for call in owners.get(id(record.use), ())]
        return record.use

    with observers.own_launches():
        tape = build_program(recorder.recording, scope, register)
    foreign = [index for index in recorder.recording.inputs if index not in names]
    if foreign:
        raise UsageError(_outside_memory_text(recorder, foreign[0]))
    if len(set(recorder.recording.outputs)) < len(returned):
        raise UsageError("solve returns one tensor twice; return a tensor for each output.")
    encoded = encoded_program(tape, [names[index] for index in recorder.recording.inputs], kernel_number, others)
    return {**encoded, "output_names": list(returned)}


def _outside_memory_text(recorder: OperationRecorder, index: int) -> str:
    """Return the message about a tensor that is neither an input nor made in the call."""
    places = (step.place for step in recorder.recording.steps if index in step.operands)
    where = next(places, "") or "solve"
    return (
        f"{where} uses a tensor from outside of the call, kept at import or from an earlier call; make it in solve "
        "from the inputs."
    )


def named_outputs(result: Any) -> dict[str, Any]:
    """Return the tensors that ``solve`` returned by name: ``output``, ``output[1]``, or the keys of a dict.

    Raises:
        UsageError: it is something else than a tensor, or a tuple, list or dict of tensors.
    """
    members: dict[str, Any]
    if isinstance(result, tuple | list):
        members = {f"output[{index}]": value for index, value in enumerate(result)}
    elif isinstance(result, dict):
        members = {str(name): value for name, value in result.items()}
    else:
        members = {"output": result}
    if not members:
        raise UsageError("solve returns no tensor; return one for each output.")
    for name, value in members.items():
        if not isinstance(value, torch.Tensor):
            raise UsageError(f"solve returns a {type(value).__name__} as {name}; expected a tensor.")
    return members


def input_of(spec: Mapping[str, Any], fill: int) -> Any:
    """Return an input by its description: a tensor of the layout with made-up contents, or the value."""
    if spec["kind"] != "tensor":
        value = spec["value"]
        return float.fromhex(value["float"]) if isinstance(value, dict) else value
    dtype, shape, stride = getattr(torch, spec["dtype"]), tuple(spec["shape"]), tuple(spec["stride"])
    count = span_elements(shape, stride) + spec["offset"]
    if dtype.is_floating_point and count <= _LARGE:
        memory = torch.randn(count, generator=torch.Generator().manual_seed(fill + 1)).to(dtype)
    else:
        memory = torch.zeros(count, dtype=dtype)
    return memory.as_strided(shape, stride, spec["offset"])


def _arguments_and_grid(call: LaunchCall) -> tuple[dict[str, Any], tuple[int, int, int]]:
    """Return the arguments of a launch, constexprs as plain values, and its grid."""
    arguments = {name: getattr(value, "value", value) for name, value in call.arguments.items()}
    return arguments, evaluated_grid(call.kernel, call.grid, {**arguments, **call.options})


def _closure_and_constants(
    kernel: Any, arguments: Mapping[str, Any]
) -> tuple[Closure, tuple[tuple[str, Binding], ...]]:
    """Return the closure of a kernel, and the constexprs of a launch as its bindings."""
    names = [parameter.name for parameter in kernel.params if parameter.is_constexpr]
    closure, bindings = closure_of(kernel, tuple(arguments[name] for name in names))
    return closure, tuple(zip(names, bindings, strict=True))


def _launch_of(call: LaunchCall, recorder: OperationRecorder) -> Any:
    """Return a launch as the recorder of operations takes it; nothing is compiled."""
    arguments, grid = _arguments_and_grid(call)
    effects = _UnknownEffects(_possible_addresses(recorder, arguments))
    return SimpleNamespace(
        kernel=call.kernel,
        arguments=arguments,
        options=call.options,
        grid=grid,
        others=call.others,
        compiled=SimpleNamespace(kernel=call.kernel.__name__, effects=effects),
        before={},
    )


def _use_of(launched: Any) -> KernelUse:
    closure, constants = _closure_and_constants(launched.kernel, launched.arguments)
    return KernelUse(
        closure,
        launched.grid,
        constants,
        options=tuple(launched.options.items()),
        parameters=tuple(launched.kernel.arg_names),
        mutated=frozenset(),
        read=frozenset(),
        complete=False,
    )


def _encoded_call(call: LaunchCall) -> dict[str, Any]:
    arguments, grid = _arguments_and_grid(call)
    _, constants = _closure_and_constants(call.kernel, arguments)
    return encoded_variant(grid, constants, call.options.items())


def _import_candidate(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(MODULE, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path.name} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    spec.loader.exec_module(module)
    return module


def _error_data(exc: BaseException, file: str) -> dict[str, Any]:
    """Return an exception as data, with the line of the candidate that it comes from."""
    frames = [
        frame for frame in traceback.extract_tb(exc.__traceback__) if Path(frame.filename).name == Path(file).name
    ]
    line = frames[-1].lineno if frames else getattr(exc, "lineno", None)
    message = exc.message if isinstance(exc, KernellabError) else f"{type(exc).__name__}: {exc}"
    return {"type": type(exc).__name__, "message": message[:2000], "line": line}


class OwnOperator:
    """An operator as the function that defines it; what is registered for autograd, vmap or tracing is ignored.

    ``default`` is the operator itself, as of one with a single overload.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.__name__ = getattr(function, "__name__", "operator")
        self.default = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name.startswith(("register_", "set_")):
            raise AttributeError(name)
        return _ignore_registration


def _ignore_registration(*args: Any, **options: Any) -> Any:
    """Take the place of a method that registers a function: called with one, or used as a decorator."""
    functions = [value for value in args if callable(value)]
    return functions[0] if functions else lambda function: function


def define_own_operators_as_functions() -> None:
    """Replace the functions of `torch.library` that define operators, for the rest of this process."""

    def operator(name: str, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        if function is None:
            return lambda later: operator(name, later, **options)
        own = OwnOperator(function)
        namespace, _, short = name.partition("::")
        setattr(getattr(torch.ops, namespace), short.partition(".")[0], own)
        return own

    for name in ("custom_op", "triton_op"):
        setattr(torch.library, name, operator)
    for name in ("register_fake", "register_kernel", "register_autograd", "register_vmap"):
        setattr(torch.library, name, _ignore_registration)
    torch.library.wrap_triton = lambda kernel: kernel

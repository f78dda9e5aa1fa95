"""A program as a Python module that needs torch and Triton, and nothing of the lab."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from kernellab.capture.graph import addressed, layout_copy, read_problem, shape_problem, window
from kernellab.capture.naming import TAKEN
from kernellab.capture.plan import ROOM, MemoryPlan
from kernellab.capture.program import sharing_problem
from kernellab.capture.statements import Called, Names, main_device, statements, takes_descriptors, uses_of
from kernellab.capture.tape import Tape
from kernellab.capture.torch_calls import contents_of
from kernellab.capture.user_operators import user_operators
from kernellab.capture.written_benchmark import BENCHMARK, MAIN, MARK
from kernellab.capture.written_sizes import requirements
from kernellab.capture.written_tuners import WrittenTuners
from kernellab.errors import KernellabError, UsageError, plural
from kernellab.export.checking import Expected, arguments_text, compared, expected_of, expected_text, tolerance_over
from kernellab.export.flatten import Flat, decorator_of, flattened, jit_of, merged, moved
from kernellab.export.write import Exported, replace_file
from kernellab.source import Closure, docstring, literal

_CONSTANT_AT_MOST = 4096
_STANDARD = [f"import {name}" for name in ("contextlib", "os", "statistics", "sys")]
T = TypeVar("T")

Trial = Callable[[], Mapping[str, Any]]
"""Runs a program on generated inputs; returns its outputs by name."""


def write(tape: Tape, plan: MemoryPlan, trial: Trial, path: Path, name: str) -> Exported:
    """Write a program as a module; return the file.

    Raises:
        UsageError: something in it cannot be written down, or the file cannot be written.
    """
    text = module_text(tape, plan, trial, name)
    replace_file(path, text.encode())
    return Exported(path, name, "program", tape.notes)


def module_text(tape: Tape, plan: MemoryPlan, trial: Trial, name: str) -> str:
    """Return the source of the module."""
    uses = uses_of(tape)
    with_decorators = [use.closure if use.tuning is None else use.tuning.closure for use in uses]
    called = user_operators(tape.steps, main_device(tape).partition(":")[0])
    brought = [closure for closure, _ in called.values()]
    closure, all_maps = merged([*(use.closure for use in uses), *with_decorators, *brought])
    index_maps, tuner_maps, operator_maps = _split(all_maps, len(uses), len(uses))
    reserved = TAKEN | {value.name for value in tape.values}
    flat = flattened(closure, reserved)
    tuners = WrittenTuners(flat, reserved | set(flat.names.values()))
    calls = {}
    for step, index_map, tuner_map in zip(tape.launches, index_maps, tuner_maps, strict=True):
        use, name = step.use, flat.names[index_map[0]]
        assert use is not None
        constants = {n: flat.expression(moved(binding, index_map)) for n, binding in use.constants}
        constants |= {n: literal(value) for n, value in use.options}
        tuned = tuners.called(step, name, index_map, tuner_map)
        calls[id(use)] = tuned or Called(name, use.parameters, constants)
    options = {index_map[0]: use.jit_options for use, index_map in zip(uses, index_maps, strict=True)}
    given = zip(called.items(), operator_maps, strict=True)
    operators = {name: flat.expression(moved(binding, index_map)) for (name, (_, binding)), index_map in given}
    body = list(statements(tape, plan, Names(calls, main_device(tape), operators)))
    sections = [
        *_definitions(flat, options, closure),
        *tuners.definitions(),
        *_functions(tape, body, _apart(tape, plan)),
        *requirements(tape),
    ]
    sections += [
        *([_PLACED] if len(tape.gpus) > 1 else []),
        MARK,
        *([ROOM.replace("SIZE", str(plan.workspace_bytes), 1)] if plan.workspace_bytes else []),
        _run(tape, plan, body),
        *_inputs(tape),
        BENCHMARK,
        *_check(tape, trial),
    ]
    top = [
        docstring(_provenance(tape, plan, name)),
        "\n".join([*_STANDARD, *_needed(body), "", *_imports(flat, tape)]),
    ]
    top.append('INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # on the CPU, by Triton\'s interpreter')
    if "wrap_triton" in flat.imports:
        top.append(
            "if INTERPRETED:\n    wrap_triton = lambda kernel: kernel  # noqa: E731 - torch takes compiled kernels only"
        )
    return "\n\n".join(top) + "\n\n\n" + "\n\n\n".join(s.strip("\n") for s in sections if s.strip()) + "\n"


def _needed(body: Sequence[str]) -> Iterator[str]:
    """Yield the imports of the standard library that only some modules need."""
    text = "\n".join(body)
    names = {"hashlib": "read_problem(", "math": "math."}
    yield from (f"import {name}" for name, call in names.items() if call in text)


def _split(found: Sequence[T], *counts: int) -> Iterator[Sequence[T]]:
    """Yield so many of a sequence at a time, and then the rest."""
    for count in counts:
        yield found[:count]
        found = found[count:]
    yield found


def _imports(flat: Flat, tape: Tape) -> Iterator[str]:
    yield from flat.import_lines()
    if takes_descriptors(tape):
        yield "from triton.tools.tensor_descriptor import TensorDescriptor"


def _definitions(flat: Flat, options: dict[int, tuple[tuple[str, Any], ...]], closure: Closure) -> Iterator[str]:
    """Yield the constants, then the functions, those that others use first."""

    def decorator(index: int) -> str:
        function, given = closure.functions[index], dict(options.get(index, ()))
        if not given:
            return decorator_of(function)
        given |= {"noinline": True} if function.noinline else {}
        return f"{jit_of(function)}({', '.join(f'{n}={literal(v)}' for n, v in given.items())})\n"

    if constants := flat.first_constants():
        yield constants
    yield from flat.functions(decorator)


def _apart(tape: Tape, plan: MemoryPlan) -> list[str]:
    """Return the inputs that no other may share elements with: what is copied in their place or lies in them."""
    copied = [tape.values[index].name for index in tape.apart]
    names = [tape.values[index].name for index in tape.inputs]
    return list(dict.fromkeys([*copied, *(name for name in plan.overwritten if name in names)]))


def _functions(tape: Tape, body: list[str], apart: Sequence[str]) -> Iterator[str]:
    """Yield the functions of the lab that the statements call."""
    text = "\n".join(body)
    if "refuse(" in text or apart:
        yield _REFUSE
    if apart:
        yield _source(sharing_problem)
    if "window(" in text:
        yield _source(window)
    if "read_problem(" in text:
        yield _source(contents_of)
    yield from (_source(each) for each in (shape_problem, read_problem) if f"{each.__name__}(" in text)
    if "layout_copy(" in text or "addressed(" in text or tape.constants:
        yield _source(layout_copy)
    if "addressed(" in text:
        yield _source(addressed)


_PLACED = '''\
def placed(name):
    """Return a GPU of the recording; Triton's interpreter has all on the CPU."""
    return torch.device("cpu" if INTERPRETED else name)'''


_REFUSE = '''\
def refuse(problem):
    """Raise ValueError for what a run finds and the program does not hold for; "" is no problem."""
    if problem:
        raise ValueError(problem)'''


def _run(tape: Tape, plan: MemoryPlan, body: list[str]) -> str:
    names = [tape.values[index].name for index in tape.inputs]
    changed = [tape.values[index].name for index in tape.mutated_inputs]
    given = ", ".join(names)
    doc = f"Run the program; return {', '.join(tape.output_names) or 'nothing'} by name."
    doc += f" It changes {', '.join(changed)}." if changed else ""
    spent = [name for name in plan.overwritten if name in names and name not in changed]
    doc += f" What {', '.join(spent)} hold is lost." if spent else ""
    if plan.workspace_bytes:
        given = ", ".join([*names, "*", "workspace=None"])
        doc += " A workspace is a torch.uint8 tensor of WORKSPACE_BYTES, for what lives during the run alone."
    head = ["@torch.no_grad()", f"def run({given}):", f'    """{doc}"""']
    if _needs_gpu(tape):
        head += ["    if INTERPRETED:", f'        raise NotImplementedError("{_NO_ROUNDING}")']
    lines = [f"require({', '.join(f'{name}={name}' for name in names)})"] if names else []
    if apart := _apart(tape, plan):
        own = ", ".join(f"{literal(name)}: {name}" for name in names)
        lines.append(f"refuse(sharing_problem({{{own}}}, {apart}))")
    if any("device" in line for line in body) or tape.constants:
        lines.append(f"device = {_device_expression(tape)}")
    if plan.workspace_bytes:
        lines += ["if workspace is not None:", "    require_workspace(workspace, device)"]
    lines += [f"{tape.values[i].name} = {_constant(tensor)}" for i, tensor in tape.constants]
    lines += body
    pairs = zip(tape.output_names, tape.outputs, strict=True)
    lines.append(f"return {{{', '.join(f'{literal(n)}: {tape.values[i].name}' for n, i in pairs)}}}")
    head.append("    with torch._C._DisableAutocast():  # what it casts in the recording are operations of their own")
    return "\n".join([*head, *(f"        {line}" for line in lines)])


def _device_expression(tape: Tape) -> str:
    main = main_device(tape)
    for index in tape.inputs:
        if tape.values[index].layout.device == main:
            return f"{tape.values[index].name}.device"
    return _DEVICE


_DEVICE = 'torch.device("cpu" if INTERPRETED else "cuda")'


def _constant(tensor: Any) -> str:
    if tensor.numel() > _CONSTANT_AT_MOST:
        raise UsageError(
            f"The block makes a tensor of {tensor.numel():,} elements from Python data, and a module can hold "
            f"{_CONSTANT_AT_MOST:,}; make it before the block, so that it is an input."
        )
    dtype = str(tensor.dtype)
    return f"torch.tensor({_listed(tensor.cpu().tolist())}, dtype={dtype}, device=device)"


def _listed(value: Any) -> str:
    return f"[{', '.join(map(_listed, value))}]" if isinstance(value, list) else literal(value)


def _inputs(tape: Tape) -> Iterator[str]:
    first = f"device = {_DEVICE} if device is None else device"
    layouts = {tape.values[index].name: tape.values[index].layout for index in tape.inputs}
    others = {n: f'placed("{each.device}")' for n, each in layouts.items() if each.device != main_device(tape)}
    devices = others if len(tape.gpus) > 1 else {}
    yield arguments_text(tape.samples, "make_inputs(device=None, seed=0)", first, devices=devices)


def _check(tape: Tape, trial: Trial) -> Iterator[str]:
    """Yield what the module compares its outputs with, ``check`` and ``main``."""
    try:
        expected = _expected(tape, trial)
    except KernellabError as exc:  # such as data of another shape than the recorded data
        yield _UNCHECKED.replace("REASON", literal(f"not run, since it refuses generated inputs: {exc.message}"))
        return
    if expected:
        yield from expected_text(expected)
    yield _check_text(tape, expected)
    ended = f'    if INTERPRETED:\n        sys.exit("{_NO_ROUNDING}")\n' if _needs_gpu(tape) else ""
    yield MAIN.replace("ROUNDED", ended)


_UNCHECKED = '''\
def check(device=None):
    """Return why the program cannot be checked on generated inputs; `run` takes those that it holds for."""
    return REASON


if __name__ == "__main__":
    print("program", check())'''


def _expected(tape: Tape, trial: Trial) -> tuple[Expected, ...]:
    """Return what the outputs hold for generated inputs; nothing where they are random."""
    return () if any(step.is_random for step in tape.steps) else expected_of(trial())


def _check_text(tape: Tape, expected: tuple[Expected, ...]) -> str:
    lines = [
        "def check(device=None):",
        '    """Run once on generated inputs; raise AssertionError if an output is wrong."""',
    ]
    lines += ["    outputs = run(**make_inputs(device))"]
    if not expected:
        return "\n".join([*lines, '    return "runs; nothing is known to compare its outputs with"'])
    has_dot = any("tl.dot" in function.text for use in uses_of(tape) for function in use.closure.functions)
    tolerance = tolerance_over((value.layout.dtype for value in tape.values), has_dot=has_dot)
    return "\n".join([*lines, *compared(tolerance, _rounded_outputs(tape))])


def _rounded_outputs(tape: Tape) -> list[str]:
    """Return the outputs of whole numbers that follow from floats."""
    floats = {value.storage for value in tape.values if value.layout.dtype.startswith(("float", "bfloat", "complex"))}
    following = set(floats)
    for step in tape.steps:
        taken = {tape.values[index].storage for index in step.taken}
        if taken & following:
            following |= {tape.values[i].storage for i in (*step.results, *step.mutated) if i >= 0}
    pairs = zip(tape.output_names, (tape.values[index].storage for index in tape.outputs), strict=True)
    return [name for name, storage in pairs if storage in following - floats]


_NO_ROUNDING = "Triton's interpreter cannot compute bfloat16 and float8: this needs a GPU."


def _needs_gpu(tape: Tape) -> bool:
    """Tell whether a launch takes what Triton's own interpreter cannot compute."""
    given = {tape.values[i].layout.dtype for step in tape.launches for i in step.taken}
    return any(dtype.startswith(("bfloat16", "float8")) for dtype in given)


def _provenance(tape: Tape, plan: MemoryPlan, name: str) -> str:
    made = datetime.now(tz=UTC).strftime("%Y-%m-%d")
    kernels = ", ".join(dict.fromkeys(use.kernel for use in uses_of(tape)))
    others = len(tape.steps) - len(tape.launches)
    lines = [
        f"The program `{name}`: {plural(len(tape.launches), 'launch')} and {plural(others, 'operation')} of torch.",
        "",
    ]
    lines.append(f"Exported by kernellab on {made}; its kernels are {kernels or 'none'}.")
    lines.append(
        f"Its buffers take at most {plan.peak_bytes:,} bytes at a time, and {plan.unplanned_bytes:,} if all were kept "
        "until the end. Inputs and what torch needs inside of an operation are not counted."
    )
    if tape.sizes is not None:
        lines.append(
            "It takes inputs of other sizes, too, where what `require` asks holds; figures are for the recorded ones."
        )
    lines += [f"Note: {note}." for note in tape.notes]
    lines += ["", "    TRITON_INTERPRET=1 python THIS_FILE    # checks the program on the CPU"]
    lines += ["    python THIS_FILE                       # checks and measures it on a GPU"]
    return "\n".join(textwrap.fill(line, 110) if not line.startswith(" ") else line for line in lines) + "\n"


def _source(function: Callable[..., Any]) -> str:
    """Return the source of a function of the lab without its annotations."""
    node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(node, ast.FunctionDef)
    for argument in (*node.args.args, *([node.args.vararg] if node.args.vararg else [])):
        argument.annotation = None
    node.returns = None
    return ast.unparse(node)
